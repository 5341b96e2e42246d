"""Values that only a mistaken or hostile client sends, on each way into the database: stored as they
are or refused to that one client, and never in the way of the next message, command or start."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.message import Message
from tests.store.managers import House, Told, bodies
from tests.store.test_manager_outbox import outcome

DEEP = "[" * 2000 + "]" * 2000


@pytest.mark.parametrize("priority", [-1, -100, -32_768, 300, 32_767])
async def test_a_queue_orders_whatever_priority_a_row_can_hold_and_starts_again(
    house: House, priority: int
) -> None:
    await house.queue("q", max_priority=3)
    told = Told()
    for token, given in enumerate([1, priority, 2]):
        message = Message(b"%d" % given, "", routing_key="q", priority=given)
        house.vhost.publish(message, told, token)
    await told.answers(3)
    assert told.refused == []
    await house.crash_and_reopen()
    expected = [priority, 2, 1] if priority > 2 else [2, 1, priority]
    assert bodies(await house.drain()) == [b"%d" % each for each in expected]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(f'{{"x-max-age": {DEEP}}}', id="nested too deep to be read"),
        pytest.param('{"x-max-length": 1e5000}', id="a number of 5,001 digits"),
        pytest.param('{"x-max-length": -1}', id="a number that makes no sense"),
    ],
)
async def test_a_command_that_cannot_be_read_is_answered_and_the_next_one_is_done(
    house: House, db: asyncpg.Connection, arguments: str
) -> None:
    await house.queue()
    odd = await outcome(db, "SELECT howdah.declare_queue('odd', $1::jsonb)", arguments)
    assert "error" in odd
    assert await outcome(db, "SELECT howdah.purge('q')") == {"messages": 0}
    await house.crash_and_reopen()
    assert await outcome(db, "SELECT howdah.purge('q')") == {"messages": 0}
