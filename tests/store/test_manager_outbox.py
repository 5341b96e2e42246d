"""Messages that SQL publishes in transactions of its own, and their way into the queues."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import asyncpg
import pytest

from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED
from queue_core.store.operator import doctor_checks
from tests.support.managers import BRISK, House, bodies, drained
from tests.support.sql_requests import publish
from tests.support.until import PATIENCE_SECONDS, until


async def test_a_message_from_sql_exists_if_and_only_if_its_transaction_commits(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    async with db.transaction():
        await publish(db, "q", "kept")
    rolled = db.transaction()
    await rolled.start()
    await publish(db, "q", "never")
    await rolled.rollback()
    await drained(db)
    assert bodies(await house.drain()) == [b"kept"]


async def test_messages_of_one_transaction_keep_their_order(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    async with db.transaction():
        for i in range(2500):
            await publish(db, "q", str(i))
    await drained(db)
    assert bodies(await house.drain()) == [b"%d" % i for i in range(2500)]


async def test_a_transaction_that_commits_late_is_not_passed_over(
    house: House, db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """The late one has early numbers: later ones were published and taken before it shows."""
    await house.queue()
    late = db.transaction()
    await late.start()
    await publish(db, "q", "late")
    for i in range(20):
        await publish(other, "q", str(i))
        await drained(other)
        house.clock.now += 0.1
    await late.commit()
    await drained(other)
    assert sorted(bodies(await house.drain())) == sorted([b"late", *[b"%d" % i for i in range(20)]])


async def test_messages_from_sql_enter_exactly_once_over_a_crash(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    for round_number in range(4):
        async with db.transaction():
            for i in range(200):
                await publish(db, "q", f"{round_number}:{i}")
        await asyncio.sleep(0.005 * round_number)  # a crash comes at any moment
        await house.crash_and_reopen()
    await drained(db)
    expected = [f"{r}:{i}".encode() for r in range(4) for i in range(200)]
    assert bodies(await house.drain()) == expected


async def test_messages_from_sql_enter_exactly_once_over_killed_connections(
    house: House, db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    await house.queue()
    for i in range(300):
        await publish(db, "q", str(i))
        if i % 60 == 0:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                "application_name LIKE 'howdah gateway%' AND datname = current_database()"
            )
    await drained(db)
    assert bodies(await house.drain()) == [b"%d" % i for i in range(300)]


async def test_what_is_published_while_no_gateway_runs_waits_for_one(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.close()
    await publish(db, "q", "patient")
    await house.open()
    await drained(db)
    assert bodies(await house.drain()) == [b"patient"]


async def test_a_message_from_sql_says_what_it_was_given(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q", max_priority=9)
    await db.fetchval(
        'SELECT howdah.publish(\'q\', \'{"a": 1}\'::jsonb, headers => \'{"h": "v", "n": 2}\', '
        "priority => 5, message_id => 'm', correlation_id => 'c')"
    )
    await drained(db)
    (found,) = await house.drain()
    properties = found.message.properties
    assert json.loads(found.message.body) == {"a": 1}
    assert (found.message.priority, properties.message_id) == (5, "m")
    assert properties.correlation_id == "c"
    assert properties.content_type == "application/json"
    assert properties.header_map() == {"h": "v", "n": 2}


async def waiting(db: asyncpg.Connection, queue: str) -> int:
    """How many messages wait for that queue, as the outbox says."""
    statement = "SELECT messages FROM howdah.outbox_status WHERE queue = $1"
    return await db.fetchval(statement, queue) or 0


async def test_what_sql_publishes_into_a_full_queue_waits_for_room(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """In order; other queues are not held up; and over a crash."""
    caplog.set_level(logging.WARNING)
    await house.queue("q", max_length=2, overflow="reject-publish")
    await house.queue("free")
    for queue in ("q", "free"):
        await house.vhost.bind("amq.fanout", house.vhost.queue(queue))
    for i in range(6):
        await publish(db, "", str(i), exchange="amq.fanout")

    async def all_wait() -> bool:
        return await waiting(db, "q") == 4

    await until(all_wait)
    assert bodies(await house.drain("free")) == [b"%d" % i for i in range(6)]
    assert house.manager.counters.outbox_deferred == 4
    told = [r for r in caplog.records if "waits in the outbox" in r.message]
    assert len(told) == 1
    first = bodies(await house.drain("q"))
    await house.crash_and_reopen()
    await publish(db, "q", "6")  # behind those that wait
    found = list(first)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < 7:
            found += bodies(await house.drain("q"))
    assert found == [b"%d" % i for i in range(7)]
    await drained(db)
    assert await house.drain("free") == []  # once each
    outbox = house.manager._background._outbox
    assert not outbox._under_way
    assert not outbox._waited_for


async def test_what_waits_for_a_queue_that_is_deleted_is_dropped_and_counted(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q", max_length=1, overflow="reject-publish")
    for i in range(3):
        await publish(db, "q", str(i))

    async def both_wait() -> bool:
        return await waiting(db, "q") == 2

    await until(both_wait)
    await house.vhost.delete_queue("q")
    await drained(db)
    assert house.manager.counters.unroutable == 2


async def test_the_doctor_tells_what_waits_for_room(house: House, db: asyncpg.Connection) -> None:
    await house.queue("q", max_length=1, overflow="reject-publish")
    for i in range(3):
        await publish(db, "q", str(i))

    async def both_wait() -> bool:
        return await waiting(db, "q") == 2

    await until(both_wait)
    found = [str(finding) for finding in await doctor_checks.waiting_work(db)]
    assert any("2 messages that SQL published wait for room in queue 'q'" in each for each in found)


async def test_a_row_that_cannot_be_read_keeps_no_other_from_its_queue(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = house.manager._background._outbox
    read = outbox._message

    def unreadable(row: asyncpg.Record) -> Message:
        if row["body"] == b"bad":
            raise ValueError("what no gateway understands")
        return read(row)

    monkeypatch.setattr(outbox, "_message", unreadable)
    await house.queue("q", max_length=1, overflow="reject-publish")
    for body in ("1", "bad", "2", "3"):
        await publish(db, "q", body)

    async def rest_waits() -> bool:
        return await waiting(db, "q") == 2

    await until(rest_waits)
    for expected in (b"1", b"2", b"3"):
        inbox, consumer = await house.consume("q", credit=1)
        await inbox.has(1)
        assert inbox.bodies == [expected]
        house.vhost.settle(inbox.deliveries, ACCEPTED)
        house.vhost.end_consumer(consumer, ACCEPTED)
    assert await db.fetchval("SELECT count(*) FROM howdah.outbox") == 1


async def test_a_message_over_the_limit_is_refused_where_it_is_published(
    house: House, db: asyncpg.Connection
) -> None:
    store = replace(house.settings.store, max_message_size=1000)
    house.settings = replace(house.settings, store=store)
    await house.reopen()
    await house.queue()
    await publish(db, "q", "x" * 1000)
    with pytest.raises(asyncpg.ProgramLimitExceededError) as refused:
        await publish(db, "q", "x" * 1001)
    assert "the message is 1001 bytes, and the gateway takes 1000 at most" in str(refused.value)
    assert "broker.max_message_size" in str(refused.value.hint)
    await drained(db)
    assert [len(body) for body in bodies(await house.drain())] == [1000]


async def test_a_word_after_the_commit_has_the_outbox_looked_at_at_once(
    migrated_url: str, other: asyncpg.Connection
) -> None:
    """By a gateway whose next look is an hour away."""
    house = await House(migrated_url, settings=replace(BRISK, poll_interval=3600.0)).open()
    try:
        await house.queue("q")
        await publish(other, "q", "x")

        async def is_drained() -> bool:
            # again and again: the gateway may not listen yet
            await other.execute("SELECT howdah.wake()")
            return not await other.fetchval("SELECT EXISTS (SELECT FROM howdah.outbox)")

        await until(is_drained)
    finally:
        await house.close()
