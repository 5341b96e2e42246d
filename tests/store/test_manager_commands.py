"""Commands that SQL gives to a running gateway: purge, declare, bind, delete, and their order."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import asyncpg
import pytest

from queue_core.outcomes import ACCEPTED
from queue_core.queues.spec import QueueSpec
from tests.support.managers import House, bodies, drained
from tests.support.seed import make_queue
from tests.support.sql_requests import final_state, outcome, publish
from tests.support.until import until


async def test_a_purge_takes_what_sql_published_before_it(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.close()
    for body in "abc":
        await publish(db, "q", body)
    command = await db.fetchval("SELECT howdah.purge('q')")
    await house.open()
    await final_state(db, command)
    assert await db.fetchval("SELECT ready FROM howdah.queue_status WHERE queue = 'q'") == 0
    assert await house.drain() == []


async def test_a_purge_from_sql_leaves_what_is_in_flight(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.store("q", b"1", b"2", b"3")
    taken = await house.vhost.get("q")
    assert taken is not None
    assert await outcome(db, "SELECT howdah.purge('q')") == {"messages": 2}
    house.vhost.settle([taken], ACCEPTED)
    assert await house.drain() == []


async def test_a_queue_may_be_declared_and_deleted_from_sql(
    house: House, db: asyncpg.Connection
) -> None:
    arguments = json.dumps({"x-max-length": 3})
    declare = "SELECT howdah.declare_queue('new', $1::jsonb)"
    assert await outcome(db, declare, arguments) == {"created": True}
    assert await outcome(db, declare, arguments) == {"created": False}
    refused = await outcome(db, declare, "{}")
    assert "exists with argument 'x-max-length'='3'" in str(refused["error"])
    odd = "SELECT howdah.declare_queue('odd', '{\"x-odd\": 1}')"
    assert await outcome(db, odd) == {"created": True}  # what nobody knows is kept
    wrong = await outcome(db, "SELECT howdah.declare_queue('bad', '{\"x-max-length\": \"no\"}')")
    assert "x-max-length" in str(wrong["error"])
    assert house.vhost.queue("new").spec.max_length == 3
    await house.store("new", b"1")
    not_empty = await outcome(db, "SELECT howdah.delete_queue('new', if_empty => true)")
    assert "error" in not_empty
    assert await outcome(db, "SELECT howdah.delete_queue('new')") == {"messages": 1}
    assert "new" not in house.vhost.queues


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_a_queue_may_be_bound_to_a_topic_filter_from_sql(
    house: House, db: asyncpg.Connection, kind: str
) -> None:
    """While the gateway runs; and it is there after a restart."""
    await house.vhost.declare_queue(QueueSpec.parse("taps", {"x-queue-type": kind}))
    bound = {"exchange": "amq.topic", "routing_key": "plant.*.temp"}
    assert await outcome(db, "SELECT howdah.bind_topic('taps', 'plant/+/temp')") == bound
    assert house.vhost.router.route("amq.topic", "plant.7.temp")
    await house.close()
    await house.open()
    assert house.vhost.router.route("amq.topic", "plant.7.temp")
    assert not house.vhost.router.route("amq.topic", "plant.7.8.temp")
    assert await outcome(db, "SELECT howdah.unbind_topic('taps', 'plant/+/temp')") == bound
    assert not house.vhost.router.route("amq.topic", "plant.7.temp")


async def test_a_command_is_for_the_queue_that_it_was_given_for(
    house: House, db: asyncpg.Connection
) -> None:
    """One of the same name that was made since is left alone."""
    await house.queue()
    await house.close()
    command = await db.fetchval("SELECT howdah.delete_queue('q')")
    await db.execute("DELETE FROM howdah.queue WHERE name = 'q'")
    await make_queue(db, "q")
    await house.open()
    assert await final_state(db, command) == "failed"
    assert "q" in house.vhost.queues


async def test_a_command_that_breaks_does_not_hold_up_the_next(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await db.execute(
        "INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by) "
        "VALUES ('redrive', '/', 'q', '{\"offsets\": \"nonsense\"}', 'test')"
    )
    assert await outcome(db, "SELECT howdah.purge('q')") == {"messages": 0}
    row = await db.fetchrow("SELECT error FROM howdah.command WHERE kind = 'redrive'")
    assert row is not None
    assert row["error"]


async def test_commands_are_forgotten_a_week_after_they_were_done(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    old, recent = [
        await db.fetchval(
            "INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, done_at) "
            "VALUES ('purge', '/', 'q', '{}', 'test', now() - $1::interval) RETURNING id",
            age,
        )
        for age in (timedelta(days=8), timedelta(days=6))
    ]
    assert await outcome(db, "SELECT howdah.purge('q')") == {"messages": 0}

    async def is_forgotten() -> bool:
        return not await db.fetchval(
            "SELECT EXISTS (SELECT FROM howdah.command WHERE id = $1)", old
        )

    await until(is_forgotten)
    assert await db.fetchval("SELECT state FROM howdah.command_status($1)", recent) == "done"


async def test_a_queue_is_declared_bound_and_published_to_in_one_transaction(
    house: House, other: asyncpg.Connection
) -> None:
    """The requests of one transaction are done in their order."""
    async with other.transaction():
        await other.execute("SELECT howdah.declare_queue('new')")
        await other.execute("SELECT howdah.bind_topic('new', 'plant/#')")
        await other.execute("SELECT howdah.publish('new', 'first')")
        await other.execute("SELECT howdah.publish_topic('plant/7', 'second')")
    await drained(other)
    assert bodies(await house.drain("new")) == [b"first", b"second"]
    assert house.manager.counters.unroutable == 0


async def test_what_was_published_before_a_purge_goes_with_it_and_what_came_after_stays(
    house: House, other: asyncpg.Connection
) -> None:
    await house.queue("q")
    async with other.transaction():
        await other.execute("SELECT howdah.publish('q', 'before')")
        await other.execute("SELECT howdah.purge('q')")
        await other.execute("SELECT howdah.publish('q', 'after')")
    await drained(other)
    assert bodies(await house.drain("q")) == [b"after"]


async def test_more_messages_than_one_look_takes_are_there_before_a_later_purge(
    house: House, other: asyncpg.Connection
) -> None:
    await house.queue("q")
    async with other.transaction():
        await other.execute(
            "SELECT howdah.publish_many('q', array_agg(n::text)) FROM generate_series(1, 2500) n"
        )
        command = await other.fetchval("SELECT howdah.purge('q')")
    await drained(other)
    assert await final_state(other, command) == "done"
    result = await other.fetchval("SELECT result FROM howdah.commands WHERE id = $1", command)
    assert result == '{"messages": 2500}'


async def test_a_commit_between_the_looks_at_messages_and_at_commands_keeps_their_order(
    house: House, other: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.queue("q")
    transaction = other.transaction()
    await transaction.start()
    await other.execute("SELECT howdah.publish_many('q', ARRAY['1', '2', '3'])")
    command = await other.fetchval("SELECT howdah.purge('q')")
    commands = house.manager._background.commands
    look, is_committed = commands.open, asyncio.Event()

    async def commit_first(connection: asyncpg.pool.PoolConnectionProxy) -> list[asyncpg.Record]:
        monkeypatch.undo()
        await transaction.commit()
        is_committed.set()
        return await look(connection)

    monkeypatch.setattr(commands, "open", commit_first)
    await asyncio.wait_for(is_committed.wait(), 60)  # a connection does one thing at a time
    assert await final_state(other, command) == "done"
    result = await other.fetchval("SELECT result FROM howdah.commands WHERE id = $1", command)
    assert result == '{"messages": 3}'
    await drained(other)
    assert house.vhost.queue("q").counts().ready == 0
