"""The judgement of a database that a gateway finds when it starts: complete, short, or unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from queue_core.store.lost_commits.commit_marks import Extent
from queue_core.store.lost_commits.losses import SETBACK, UNPROVEN
from queue_core.store.lost_commits.ownership_history import (
    Past,
    Place,
    Record,
    Shortfall,
    Tenure,
    judge,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOOT = "this start of the machine"
PRIMARY = Place("7001", 16384, 1)
PROMOTED = Place("7001", 16384, 2)


def tenure(epoch: int, place: Place = PRIMARY, number: int = 0, messages: int = 0) -> Tenure:
    found = Extent(number, messages, NOON + timedelta(seconds=number))
    return Tenure(epoch, NOON + timedelta(hours=epoch), f"host{epoch} (pid 7)", place, found)


def past(*tenures: Tenure, place: Place = PRIMARY, number: int = 0, messages: int = 0) -> Past:
    return Past("a1", place, tenures, Extent(number, messages, NOON + timedelta(seconds=number)))


RECORD = Record(
    "a1",
    PRIMARY.server,
    PRIMARY.database,
    PRIMARY.timeline,
    epoch=3,
    started_at=tenure(3).started_at.isoformat(),
    number=120,
    numbers=[119, 120],
    messages=5000,
    at=NOON.timestamp() + 300,
    boot=BOOT,
)


def judged(record: Record | None, found: Past, *missing: int) -> Shortfall | None:
    return judge(record, found, missing, BOOT)


def test_a_database_with_every_mark_is_complete_wherever_it_is() -> None:
    assert judged(RECORD, past(tenure(3), number=120, messages=5000)) is None
    assert judged(RECORD, past(tenure(3), place=PROMOTED, number=121, messages=5000)) is None


def test_a_missing_mark_is_a_setback_with_its_bounds() -> None:
    found = judged(RECORD, past(tenure(3), place=PROMOTED, number=100, messages=4990), 119, 120)
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 10)
    assert "up to 20 commits with 10 messages" in found.detail
    assert "from 2026-01-01 12:01:40.000000 UTC to 2026-01-01 12:05:00.000000 UTC" in found.detail
    assert "numbers 101 to 120" in found.detail
    assert "timeline 1" in found.detail
    assert "timeline 2" in found.detail


def test_a_missing_mark_below_the_newest_one_is_a_setback() -> None:
    """Two transactions side by side: the one with the lower number was committed last."""
    found = judged(RECORD, past(tenure(3), number=120, messages=5000), 119)
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 0)
    assert "up to 1 commits" in found.detail


def test_a_database_that_does_not_know_the_ownership_went_back() -> None:
    found = judged(RECORD, past(tenure(2), number=80, messages=3000), 119, 120)
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 2000)


def test_an_ownership_without_a_commit_is_missed_as_well() -> None:
    bare = msgspec.structs.replace(RECORD, number=80, numbers=[], messages=3000)
    found = judged(bare, past(tenure(2), number=80, messages=3000))
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 0)


def test_a_gateway_that_went_on_without_the_commits_is_named() -> None:
    """Another host started on the standby first; what it numbered cannot be undone, but it may have
    numbered less than was lost."""
    other = tenure(4, PROMOTED, number=100, messages=4990)
    found = judged(RECORD, past(tenure(3), other, place=PROMOTED, number=500, messages=9000))
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 10)
    assert "host4 (pid 7) took it without them" in found.detail


def test_a_gateway_of_the_same_epoch_that_went_on_without_the_ownership_is_named() -> None:
    other = tenure(3, PROMOTED, number=80, messages=3000)
    other = Tenure(3, NOON + timedelta(hours=9), "other", other.place, other.found)
    found = judged(RECORD, past(tenure(2), other, place=PROMOTED, number=90, messages=3001), 119)
    assert found is not None
    assert (found.cause, found.messages) == (SETBACK, 2000)


def test_a_gateway_that_took_over_with_everything_is_no_setback() -> None:
    other = tenure(4, number=120, messages=5000)
    assert judged(RECORD, past(tenure(3), other, number=900, messages=9000)) is None


def test_an_ownership_that_was_forgotten_long_ago_is_no_setback() -> None:
    assert judged(RECORD, past(tenure(1003, number=500), number=900), 119, 120) is None


def test_without_a_record_another_timeline_cannot_be_proven_complete() -> None:
    found = judged(None, past(tenure(3), place=PROMOTED, number=100))
    assert found is not None
    assert (found.cause, found.messages) == (UNPROVEN, 0)
    assert "cannot be proven" in found.detail
    assert "host3 (pid 7)" in found.detail
    assert "number 100" in found.detail


def test_without_a_record_the_same_timeline_raises_no_doubt() -> None:
    assert judged(None, past(tenure(3), number=100)) is None
    assert judged(None, past()) is None  # the first gateway of all


def test_facts_that_the_server_hides_raise_no_doubt() -> None:
    hidden = Place("", 16384, 0)
    assert judged(None, past(tenure(3), place=hidden, number=100)) is None


def test_a_restored_dump_without_a_record_cannot_be_proven_complete() -> None:
    found = judged(None, past(tenure(3), place=Place("7001", 20000, 1), number=100))
    assert found is not None
    assert found.cause == UNPROVEN


def test_a_record_from_before_the_machines_restart_proves_nothing_about_another_timeline() -> None:
    old = msgspec.structs.replace(RECORD, boot="the start before")
    assert judged(old, past(tenure(3), number=130)) is None
    found = judged(old, past(tenure(3), place=PROMOTED, number=130))
    assert found is not None
    assert found.cause == UNPROVEN
    closed = msgspec.structs.replace(old, is_over=True)
    assert judged(closed, past(tenure(3), place=PROMOTED, number=130)) is None


def test_a_record_of_an_earlier_ownership_proves_nothing_about_the_last_one() -> None:
    other = tenure(4, number=120, messages=5000)
    found = judged(RECORD, past(tenure(3), other, place=PROMOTED, number=900, messages=9000))
    assert found is not None
    assert found.cause == UNPROVEN


def test_a_setback_that_was_told_is_not_told_again() -> None:
    told = msgspec.structs.replace(RECORD, is_told=True)
    assert judged(told, past(tenure(2), place=PROMOTED, number=80), 119, 120) is None
