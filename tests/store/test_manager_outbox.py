"""What SQL brings: messages published in other people's transactions, and commands."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Entry
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, REJECTED
from queue_core.queues.spec import QueueSpec
from queue_core.store.operator import diagnosis
from tests.support.managers import BRISK, House, bodies, drained
from tests.support.until import PATIENCE_SECONDS, until


@pytest.fixture
async def other(migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


async def publish(db: asyncpg.Connection, queue: str, body: str, exchange: str = "") -> None:
    statement = "SELECT howdah.publish($1, $2::text, exchange => $3, mandatory => false)"
    await db.fetchval(statement, queue, body, exchange)


async def outcome(db: asyncpg.Connection, statement: str, *arguments: object) -> dict[str, object]:
    """Runs a function that asks for something, and waits for what came of it."""
    command = await db.fetchval(statement, *arguments)

    async def is_done() -> bool:
        state = await db.fetchval("SELECT state FROM howdah.command_status($1)", command)
        return bool(state != "waiting")

    await until(is_done)
    row = await db.fetchrow("SELECT result, error FROM howdah.command_status($1)", command)
    assert row is not None
    if row["error"] is not None:
        return {"error": row["error"]}
    found: dict[str, object] = json.loads(row["result"])
    return found


# --- the outbox


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
    """It took its numbers early: later ones were published and taken away before it shows."""
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
        await asyncio.sleep(0.005 * round_number)
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
    outbox = house.manager._database._outbox
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
    found = [str(finding) for finding in await diagnosis.waiting_work(db)]
    assert any("2 messages that SQL published wait for room in queue 'q'" in each for each in found)


async def test_a_row_that_cannot_be_read_keeps_no_other_from_its_queue(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = house.manager._database._outbox
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


# --- commands


async def test_a_purge_takes_what_sql_published_before_it(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.close()
    for body in "abc":
        await publish(db, "q", body)
    command = await db.fetchval("SELECT howdah.purge('q')")
    await house.open()

    async def is_done() -> bool:
        state = await db.fetchval("SELECT state FROM howdah.command_status($1)", command)
        return bool(state != "waiting")

    await until(is_done)
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
    await db.execute("INSERT INTO howdah.queue (vhost, name, kind) VALUES ('/', 'q', 'classic')")
    await house.open()

    async def is_done() -> bool:
        state = await db.fetchval("SELECT state FROM howdah.command_status($1)", command)
        return bool(state == "failed")

    await until(is_done)
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


async def dead_letters(house: House, *numbers: bytes) -> None:
    await house.queue("dead")
    await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.vhost.bind("amq.direct", house.vhost.queue("q"), "orders")
    for body in numbers:
        house.vhost.publish(Message(body, "amq.direct", routing_key="orders"))
    await house.flushed()
    while (delivery := await house.vhost.get("q")) is not None:
        house.vhost.settle([delivery], REJECTED)
    await house.flushed()


async def test_dead_letters_are_driven_back_to_where_they_died(
    house: House, db: asyncpg.Connection
) -> None:
    await dead_letters(house, b"1", b"2", b"3")
    answer = await outcome(db, "SELECT howdah.redrive('dead', $$ howdah.body_text(body) <> '2' $$)")
    assert answer["moved"] == 2
    await house.crash_and_reopen()
    found = await house.drain("q")
    assert bodies(found) == [b"1", b"3"]
    assert {(d.message.exchange, d.message.routing_key) for d in found} == {
        ("amq.direct", "orders")
    }
    assert bodies(await house.drain("dead")) == [b"2"]


async def test_dead_letters_whose_queue_is_gone_stay_in_their_place(
    house: House, db: asyncpg.Connection
) -> None:
    await dead_letters(house, b"1", b"2")
    await house.store("dead", b"3")
    await house.vhost.delete_queue("q")
    answer = await outcome(db, "SELECT howdah.redrive('dead')")
    assert answer["moved"] == 0
    assert bodies(await house.drain("dead")) == [b"1", b"2", b"3"]


async def test_dead_letters_in_somebodys_hands_are_not_driven_back(
    house: House, db: asyncpg.Connection
) -> None:
    await dead_letters(house, b"1", b"2")
    taken = await house.vhost.get("dead")
    assert taken is not None
    answer = await outcome(db, "SELECT howdah.redrive('dead')")
    assert answer["moved"] == 1
    house.vhost.settle([taken], ACCEPTED)
    assert bodies(await house.drain("q")) == [b"2"]
    assert bodies(await house.drain("dead")) == []


@pytest.mark.parametrize("is_read", [False, True])
async def test_dead_letters_are_driven_back_once_though_the_connections_are_cut(
    house: House,
    db: asyncpg.Connection,
    other: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_read: bool,
) -> None:
    """While they are being read, or when they are, and the answer is to be written down."""
    await dead_letters(house, b"1", b"2", b"3")
    reader = house.manager._database._reader
    read, cut = reader.read_offsets, 0

    async def read_cut_off(log: Log, offsets: Sequence[int]) -> list[Entry]:
        nonlocal cut
        if cut:
            return await read(log, offsets)
        cut = await other.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
            "application_name LIKE 'howdah gateway%' AND datname = current_database()"
        )
        if not is_read:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed while reading")
        return await read(log, offsets)

    monkeypatch.setattr(reader, "read_offsets", read_cut_off)
    assert await outcome(db, "SELECT howdah.redrive('dead')") == {"moved": 3, "left": 0}
    assert cut
    assert bodies(await house.drain("q")) == [b"1", b"2", b"3"]
    assert bodies(await house.drain("dead")) == []


# --- the views agree with the manager


async def test_the_views_say_what_the_manager_knows(house: House, db: asyncpg.Connection) -> None:
    await dead_letters(house, b"1", b"2")
    await house.queue("w")
    await house.stream("s")
    await house.store("w", *[b"%d" % i for i in range(20)])
    await house.store("s", *[b"%d" % i for i in range(5)])
    inbox, _ = await house.consume("w", credit=7)
    await inbox.has(7)
    house.vhost.settle([inbox.deliveries[i] for i in (0, 1, 4)], ACCEPTED)
    stream = house.vhost.queue("s")
    stream.commit_cursor("g", 1)  # type: ignore[union-attr]
    await house.flushed()
    await house.upkeep()
    for name in ("dead", "w", "q"):
        row = await db.fetchrow("SELECT * FROM howdah.queue_status WHERE queue = $1", name)
        assert row is not None
        counts = house.vhost.queue(name).counts()
        assert (row["ready"], row["in_flight"], row["consumers"]) == (
            counts.ready,
            counts.in_flight,
            counts.consumers,
        )
    ready = await db.fetch(
        "SELECT \"offset\" FROM howdah.ready_messages WHERE queue = 'w' ORDER BY 1"
    )
    settled = house.vhost.queue("w").cursor.settled  # type: ignore[union-attr]
    assert [row["offset"] for row in ready] == [o for o in range(20) if o not in settled]
    dead = await db.fetch("SELECT * FROM howdah.dead_letters")
    assert len(dead) == 2
    lag = await db.fetchrow("SELECT * FROM howdah.consumer_lag WHERE queue = 's'")
    assert lag is not None
    assert (lag["group_name"], lag["floor"], lag["tail"], lag["lag"]) == ("g", 2, 5, 3)


async def test_a_queue_is_declared_bound_and_published_to_in_one_transaction(
    house: House, other: asyncpg.Connection
) -> None:
    """What a transaction said is done in its order."""
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

    async def is_done() -> bool:
        state = await other.fetchval("SELECT state FROM howdah.command_status($1)", command)
        return bool(state == "done")

    await until(is_done)
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
    commands = house.manager._database._commands
    look, is_committed = commands.open, asyncio.Event()

    async def commit_first(connection: asyncpg.pool.PoolConnectionProxy) -> list[asyncpg.Record]:
        monkeypatch.undo()
        await transaction.commit()
        is_committed.set()
        return await look(connection)

    monkeypatch.setattr(commands, "open", commit_first)
    await asyncio.wait_for(is_committed.wait(), 60)  # a connection does one thing at a time

    async def is_done() -> bool:
        state = await other.fetchval("SELECT state FROM howdah.command_status($1)", command)
        return bool(state == "done")

    await until(is_done)
    result = await other.fetchval("SELECT result FROM howdah.commands WHERE id = $1", command)
    assert result == '{"messages": 3}'
    await drained(other)
    assert house.vhost.queue("q").counts().ready == 0


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
