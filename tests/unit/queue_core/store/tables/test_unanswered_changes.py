"""Names whose last change got no answer are known; a refusal is an answer."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.errors import InvalidArgument, StoreUnavailable
from queue_core.store.tables import unanswered_changes
from queue_core.store.tables.unanswered_changes import UnansweredChanges


@pytest.mark.parametrize("error", [StoreUnavailable("away"), asyncio.CancelledError(), OSError()])
def test_a_change_without_an_answer_is_remembered_until_one_comes(error: BaseException) -> None:
    changes: UnansweredChanges[str] = UnansweredChanges()
    with pytest.raises(type(error)), changes.of("q"):
        raise error
    assert "q" in changes
    with changes.of("q"):
        assert "q" in changes
    assert "q" not in changes


def test_a_change_that_is_refused_has_its_answer() -> None:
    changes: UnansweredChanges[str] = UnansweredChanges()
    with pytest.raises(InvalidArgument), changes.of("q"):
        raise InvalidArgument("no")
    assert "q" not in changes


def test_the_oldest_names_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered_changes, "MOST_NAMES", 2)
    changes: UnansweredChanges[str] = UnansweredChanges()
    for name in ("a", "b", "c"):
        with pytest.raises(StoreUnavailable), changes.of(name):
            raise StoreUnavailable("away")
    assert [name in changes for name in ("a", "b", "c")] == [False, True, True]
