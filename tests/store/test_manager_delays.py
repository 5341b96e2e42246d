"""Messages that are not due are neither ready nor in flight: in counts, after every kind of
restart, and in SQL."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.delivery.consumer import Position
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, Outcome, Verdict
from tests.support.managers import KINDS, House, bodies, declare

RESTARTS = ["reopen", "crash_and_reopen"]
FIRST = Position(name="first")


def publish(house: House, *delays: float | None, queue: str = "q", priority: int = 0) -> None:
    """A message for each delay; None is due at once. The body says its place."""
    for place, delay in enumerate(delays):
        message = Message(b"%d" % place, "", routing_key=queue, priority=priority)
        message.not_before = None if delay is None else house.clock() + delay
        house.vhost.publish(message)


def counts(house: House, queue: str = "q") -> tuple[int, int, int]:
    """Ready, delayed and in flight."""
    found = house.vhost.queue(queue).counts()
    return found.ready, found.delayed, found.in_flight


async def in_sql(db: asyncpg.Connection, queue: str = "q") -> tuple[int, int]:
    """Ready and delayed; SQL goes by the server's clock, which is behind the house's."""
    row = await db.fetchrow(
        "SELECT ready, delayed FROM howdah.queue_status WHERE queue = $1", queue
    )
    assert row is not None
    return row["ready"], row["delayed"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_due_is_not_ready_though_nobody_consumes(house: House, kind: str) -> None:
    await declare(house, kind)
    publish(house, None, 60.0, None, 30.0)
    await house.flushed()
    assert counts(house) == (2, 2, 0)
    await house.later(31)
    assert counts(house) == (3, 1, 0)
    await house.later(30)
    assert bodies(await house.drain()) == [b"0", b"1", b"2", b"3"]
    assert counts(house) == (0, 0, 0)


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("priorities", [None, 3])
async def test_what_is_not_due_is_not_ready_after_a_restart(
    house: House, db: asyncpg.Connection, restart: str, priorities: int | None
) -> None:
    await house.queue("q", **({} if priorities is None else {"max_priority": priorities}))
    publish(house, 60.0, None, 30.0, None)
    await house.flushed()
    await getattr(house, restart)()
    assert counts(house) == (2, 2, 0)
    assert await in_sql(db) == (2, 2)
    await house.later(31)
    assert counts(house) == (3, 1, 0)
    await house.later(30)
    found = await house.drain()
    assert bodies(found) == [b"0", b"1", b"2", b"3"]
    assert not any(delivery.redelivered for delivery in found)


@pytest.mark.parametrize("restart", RESTARTS)
async def test_a_delayed_message_comes_back_with_its_priority_after_a_restart(
    house: House, restart: str
) -> None:
    await house.queue("q", max_priority=3)
    publish(house, None)
    publish(house, 30.0, priority=2)
    await house.flushed()
    await getattr(house, restart)()
    await house.later(31)
    assert [delivery.offset for delivery in await house.drain()] == [1, 0]


@pytest.mark.parametrize("restart", RESTARTS)
async def test_what_a_consumer_put_off_is_not_ready_after_a_restart(
    house: House, db: asyncpg.Connection, restart: str
) -> None:
    await house.queue("q")
    publish(house, None, None, 60.0)
    await house.flushed()
    first = await house.vhost.get("q")
    assert first is not None
    house.vhost.settle([first], Verdict(Outcome.RELEASED, delay=30.0))
    await house.flushed()
    assert counts(house) == (1, 2, 0)
    assert await in_sql(db) == (1, 2)
    await getattr(house, restart)()
    assert counts(house) == (1, 2, 0)
    assert await in_sql(db) == (1, 2)
    await house.later(31)
    assert counts(house) == (2, 1, 0)


@pytest.mark.parametrize("restart", RESTARTS)
async def test_a_limit_in_bytes_is_about_what_is_ready_after_a_restart(
    house: House, restart: str
) -> None:
    queue = await house.queue("q", max_length_bytes=3, overflow="reject-publish")
    publish(house, 60.0, None, 30.0)
    await house.flushed()
    assert queue.cursor.ready.bytes == 1
    await getattr(house, restart)()
    ready = house.vhost.queue("q").cursor.ready  # type: ignore[attr-defined]
    assert ready.bytes == 1
    await house.later(31)
    assert ready.bytes == 2


async def test_what_is_not_due_is_purged_and_deleted_with_the_rest(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    publish(house, None, 60.0)
    await house.flushed()
    assert await house.vhost.purge_queue("q") == 2
    assert counts(house) == (0, 0, 0)
    assert await in_sql(db) == (0, 0)
    await house.crash_and_reopen()
    assert counts(house) == (0, 0, 0)
    publish(house, None, 60.0, 60.0)
    await house.flushed()
    assert await house.vhost.delete_queue("q") == 3


@pytest.mark.parametrize("restart", [None, *RESTARTS])
async def test_of_a_stream_what_is_not_due_is_counted_apart(
    house: House, db: asyncpg.Connection, restart: str | None
) -> None:
    await house.stream("s")
    publish(house, None, 60.0, None, 30.0, queue="s")
    await house.flushed()
    if restart is not None:
        await getattr(house, restart)()
    assert counts(house, "s") == (2, 2, 0)
    assert await in_sql(db, "s") == (2, 2)
    await house.later(31)
    assert counts(house, "s") == (3, 1, 0)


async def test_a_consumer_with_a_filter_gets_what_was_delayed_when_it_is_due(house: House) -> None:
    await house.queue("q")
    inbox, _ = await house.consume("q", accepts=lambda message: message.body != b"1")
    publish(house, 30.0, 30.0, None)
    await house.flushed()
    assert bodies(await inbox.has(1)) == [b"2"]
    assert counts(house) == (0, 2, 1)
    await house.later(31)
    assert bodies(await inbox.has(2)) == [b"2", b"0"]
    assert counts(house) == (1, 0, 2)


async def test_a_message_that_was_due_and_is_in_hands_at_an_orderly_end_is_flagged(
    house: House,
) -> None:
    """Ahead of others that were never handed out, which are not."""
    await house.queue("q")
    publish(house, None, 30.0, None, None)
    await house.flushed()
    first = await house.vhost.get("q")
    assert first is not None
    house.vhost.settle([first], ACCEPTED)
    await house.later(31)
    taken = await house.vhost.get("q")
    assert taken is not None
    assert taken.offset == 1
    await house.reopen()
    found = await house.drain()
    assert [(delivery.offset, delivery.redelivered) for delivery in found] == [
        (1, True),
        (2, False),
        (3, False),
    ]


async def test_a_head_that_expires_behind_one_that_is_not_due_goes_in_time_after_a_restart(
    house: House,
) -> None:
    await house.queue("q")
    publish(house, 60.0)
    house.vhost.publish(Message(b"1", "", routing_key="q", expires_at=house.clock() + 5))
    await house.flushed()
    await house.crash_and_reopen()
    assert counts(house) == (1, 1, 0)
    await house.until(lambda: counts(house) == (0, 1, 0))


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_a_start_finds_more_delayed_messages_than_may_wait_and_refuses_more(
    house: House, kind: str
) -> None:
    await (house.stream("q") if kind == "stream" else house.queue("q"))
    publish(house, 60.0, 60.0, 60.0, None)
    await house.flushed()
    await house.crash_and_reopen()
    budget = house.vhost.context.delays
    budget.limit = 2
    assert (counts(house), budget.used) == ((1, 3, 0), 3)
    publish(house, 60.0, None)
    await house.flushed()
    assert (counts(house), budget.used) == ((2, 3, 0), 3)
    await house.later(61)
    assert (counts(house), budget.used) == ((5, 0, 0), 0)
    publish(house, 60.0)
    await house.flushed()
    assert budget.used == 1
    await house.vhost.delete_queue("q")
    assert budget.used == 0


async def test_a_delayed_message_from_sql_waits_in_the_outbox_for_room(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    publish(house, 60.0)
    await house.flushed()
    house.vhost.context.delays.limit = 1
    until = house.clock() + 120
    delay = "to_timestamp($1) - now()"
    await db.execute(f"SELECT howdah.publish('q', 'late'::text, delay => {delay})", until)
    await db.execute("SELECT howdah.publish('q', 'now'::text)")
    await house.until(lambda: counts(house) == (1, 1, 0))
    assert await db.fetchval("SELECT count(*) FROM howdah.outbox") == 1
    await house.later(61)
    await house.until(lambda: counts(house) == (2, 1, 0))
    assert house.vhost.context.counters.refused_delays == 1


@pytest.mark.parametrize("has_filter", [False, True])
@pytest.mark.parametrize("restart", [None, *RESTARTS])
async def test_what_is_delayed_in_a_stream_counts_once_and_comes_once_to_each_group(
    house: House, restart: str | None, has_filter: bool
) -> None:
    """At the bound as well: a group keeps nothing of its own, and goes on behind what waits."""
    accepts = (lambda message: message.body != b"4") if has_filter else None
    await house.stream("s")
    begun, _ = await house.consume("s", group="first", start=FIRST, accepts=accepts)
    publish(house, 60.0, None, 30.0, None, None, queue="s")
    await house.flushed()
    if restart is not None:
        await getattr(house, restart)()
        begun, _ = await house.consume("s", group="first", start=FIRST, accepts=accepts)
    budget = house.vhost.context.delays
    budget.limit = 2
    last = [] if has_filter else [b"4"]
    inboxes = [begun]
    for group in ("second", None):
        inbox, _ = await house.consume("s", group=group, start=FIRST, accepts=accepts)
        inboxes.append(inbox)
    for inbox in inboxes:
        assert bodies(await inbox.has(2 + len(last))) == [b"1", b"3", *last]
    assert (counts(house, "s")[1], budget.used) == (2, 2)
    await house.later(31)
    late, _ = await house.consume("s", group="late", start=FIRST, accepts=accepts)
    assert bodies(await late.has(3 + len(last))) == [b"1", b"2", b"3", *last]
    for inbox in inboxes:
        assert bodies(await inbox.has(3 + len(last))) == [b"1", b"3", *last, b"2"]
    assert budget.used == 1
    await house.later(31)
    for inbox in (*inboxes, late):
        assert bodies(await inbox.has(4 + len(last)))[-1] == b"0"
    await house.later(31)
    assert [len(inbox.deliveries) for inbox in (*inboxes, late)] == [4 + len(last)] * 4
    assert budget.used == 0


async def test_a_group_is_not_given_back_what_it_committed_before_it_was_due(house: House) -> None:
    stream = await house.stream("s")
    publish(house, 30.0, None, 30.0, queue="s")
    await house.flushed()
    inbox, _ = await house.consume("s", group="g", start=FIRST)
    await inbox.has(1)
    stream.commit_cursor("g", 1)
    await house.later(31)
    assert bodies(await inbox.has(2)) == [b"1", b"2"]
