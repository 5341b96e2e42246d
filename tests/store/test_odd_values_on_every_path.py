"""Values that only a mistaken or hostile client sends, on each way into the database: stored as
they are or refused to that one client, and never in the way of the next message or start."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf

import asyncpg
import pytest

from queue_core.commit.unit import RetainedRecord
from queue_core.errors import NotEquivalent
from queue_core.message.message import Message, Properties
from queue_core.outcomes import REJECTED, Outcome, Verdict
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.support.managers import House, Told, bodies
from tests.support.sql_requests import outcome
from tests.support.until import until_turned

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


@pytest.mark.parametrize("outcome_", [Outcome.MODIFIED, Outcome.RELEASED])
@pytest.mark.parametrize("delay", [inf, 1e18, 1e11])
async def test_what_comes_back_for_ever_waits_and_holds_up_nobody(
    house: House, outcome_: Outcome, delay: float
) -> None:
    await house.queue()
    await house.store("q", b"waits", b"next")
    first = await house.vhost.get("q")
    assert first is not None
    house.vhost.settle([first], Verdict(outcome_, delay=delay))
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"next"]
    assert house.vhost.queue("q").counts().delayed == 1


@pytest.mark.parametrize("key", ["a\0b", "half \ud800"])
async def test_a_dead_letter_is_kept_whatever_the_key_that_it_had_before(
    house: House, key: str
) -> None:
    await house.queue("dead")
    await house.ephemeral("e", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.vhost.bind("amq.fanout", house.vhost.queue("e"))
    house.vhost.publish(Message(b"letter", "amq.fanout", routing_key=key))
    delivery = await house.vhost.get("e")
    assert delivery is not None
    house.vhost.settle([delivery], REJECTED)
    await house.flushed()
    await house.crash_and_reopen()
    (letter,) = await house.drain("dead")
    assert letter.message.body == b"letter"
    (death,) = letter.message.deaths
    assert (death.queue, death.reason, death.exchange) == ("e", "rejected", "amq.fanout")


async def test_a_retained_value_for_a_time_beyond_the_calendar_is_refused_alone(
    house: House,
) -> None:
    await house.queue()
    told = Told()
    message = Message(b"x", "amq.topic", topic="a", expires_at=1e18)
    house.vhost.publish(message, told, 7, (RetainedRecord("/", "a", message),))
    house.put("q", b"1", told=told)
    await told.answers(2)
    assert ([token for token, _ in told.refused], told.committed) == ([7], [0])


class Unreadable:
    """A form whose reader fails in a way that nobody foresaw."""

    code = 3

    def properties(self, native: bytes) -> Properties:
        raise AssertionError("no such thing")


async def test_a_retained_value_whose_properties_cannot_be_read_is_refused_alone(
    house: House,
) -> None:
    await house.queue()
    told = Told()
    message = Message(b"x", "amq.topic", topic="a", form=Unreadable(), native=b"x")
    house.vhost.publish(message, told, 7, (RetainedRecord("/", "a", message),))
    house.put("q", b"1", told=told)
    await told.answers(2)
    assert ([token for token, _ in told.refused], told.committed) == ([7], [0])


async def test_a_queue_can_be_declared_after_a_client_that_left_in_the_middle_of_it(
    house: House, db: asyncpg.Connection
) -> None:
    declaring = asyncio.create_task(house.queue("q"))
    await until_turned(lambda: house.manager._database.definitions._adding._task is not None)
    declaring.cancel()
    with suppress(asyncio.CancelledError):
        await declaring
    await house.queue("q", max_length=3)
    await house.store("q", b"1")
    await house.crash_and_reopen()
    assert await db.fetchval("SELECT count(*) FROM howdah.queue") == 1
    assert bodies(await house.drain()) == [b"1"]


async def test_an_exchange_whose_row_somebody_else_wrote_is_not_replaced(
    house: House, db: asyncpg.Connection
) -> None:
    """A person or another gateway may have made it, and publish to it."""
    await db.execute(
        "INSERT INTO howdah.exchange (vhost, name, kind, auto_delete, internal) "
        "VALUES ('/', 'x', 'direct', false, false)"
    )
    with pytest.raises(NotEquivalent, match="did not write that row"):
        await house.vhost.declare_exchange(ExchangeSpec.parse("x", "fanout", {}))
    await house.crash_and_reopen()
    assert house.vhost.router.exchange("x").spec.kind is ExchangeKind.DIRECT


@pytest.mark.parametrize("expires_at", [inf, 1e200])
async def test_a_dead_letter_that_would_have_lived_for_ever_is_kept(
    house: House, expires_at: float
) -> None:
    await house.queue("dead")
    await house.ephemeral("e", dead_letter_exchange="", dead_letter_routing_key="dead")
    house.vhost.publish(Message(b"letter", "", routing_key="e", expires_at=expires_at))
    delivery = await house.vhost.get("e")
    assert delivery is not None
    house.vhost.settle([delivery], REJECTED)
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain("dead")) == [b"letter"]
