"""Messages as rows, and those that differ by body alone as runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queue_core.delivery.consumer import Entry
from queue_core.message.message import NO_PROPERTIES, Death, Message, Properties
from queue_core.store.write.rows import RUN_BYTES, narrow_row, rich_columns, run_of


class Plain:
    """A form whose bytes say nothing that has a column."""

    code = 1

    def properties(self, native: bytes) -> Properties:
        return Properties(subject="s") if native == b"rich" else NO_PROPERTIES


PLAIN = Plain()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entry(offset: int, body: bytes = b"body", **values: Any) -> Entry:
    own = {name: values.pop(name) for name in ("options", "not_before") if name in values}
    facts = {"routing_key": "q", "form": PLAIN, "native": b"n", "publisher": "guest", **values}
    return Entry(Message(body, facts.pop("exchange", ""), **facts), offset=offset, **own)


def test_messages_that_differ_by_body_alone_are_a_run() -> None:
    entries = [entry(40 + i, b"%d" % i) for i in range(3)]
    run = run_of(7, 9, entries, NOW)
    assert run is not None
    rows = [narrow_row(7, 9, each, NOW, each.message.body) for each in entries]
    assert run.head == rows[0][:-1]
    assert run.bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(entry(1, routing_key="other"), id="key"),
        pytest.param(entry(1, exchange="amq.fanout"), id="exchange"),
        pytest.param(entry(1, native=b"other"), id="properties"),
        pytest.param(entry(1, publisher="somebody"), id="publisher"),
        pytest.param(entry(1, durable=False), id="durability"),
        pytest.param(entry(1, form=Plain()), id="form"),
        pytest.param(entry(1, form=None, native=b""), id="no form"),
        pytest.param(entry(1, priority=3), id="priority"),
        pytest.param(entry(1, expires_at=5.0), id="expiry"),
        pytest.param(entry(1, not_before=5.0), id="delay"),
        pytest.param(entry(1, options=("o",)), id="options"),
        pytest.param(entry(1, deaths=(Death(queue="d", reason="expired"),)), id="deaths"),
        pytest.param(entry(1, bytes(RUN_BYTES)), id="a large body"),
    ],
)
def test_a_message_that_differs_by_more_ends_the_run(other: Entry) -> None:
    assert run_of(7, 9, [entry(0), other], NOW) is None
    assert run_of(7, 9, [other, entry(0)], NOW) is None


def test_what_all_of_a_run_say_is_said_once() -> None:
    entries = [entry(i, b"%d" % i, native=b"rich", priority=3) for i in range(3)]
    run = run_of(7, 9, entries, NOW)
    assert run is not None
    assert run.rich == rich_columns(entries[2], None)
    assert "s" in run.rich


def test_a_run_that_says_nothing_has_no_more_than_the_narrow_columns() -> None:
    run = run_of(7, 9, [entry(0)], NOW)
    assert run is not None
    assert run.rich == ()
