"""The writer's promises, whatever it is given: neighbours of a bad message are stored, nothing
is lost or doubled when the connection dies, and a second gateway is kept out."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import asyncpg
import pytest

from queue_core.commit.unit import RetainedRecord
from queue_core.errors import InvalidArgument
from queue_core.message.message import NO_PROPERTIES, Message, Properties
from queue_core.message.message_run import MessageRun
from queue_core.outcomes import FAILED, Outcome, Published, Verdict
from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.operator import doctor_checks, queue_operations
from queue_core.store.operator.finding import Level
from queue_core.store.ownership import DatabaseInUse
from queue_core.store.tcp_keepalive import socket_of
from queue_core.store.write import writer
from queue_core.store.write.writer import MOST_UNITS
from tests.support.managers import House, Told, bodies
from tests.support.until import PATIENCE_SECONDS, turns, until


def odd(**values: object) -> Message:
    return Message(b"odd", "", **{"routing_key": "q", **values})  # type: ignore[arg-type]


class Broken:
    """A form whose properties cannot be read."""

    code = 3

    def properties(self, native: bytes) -> Properties:
        raise ValueError("cut short")


class Strange:
    """A form that says what PostgreSQL's text and JSON cannot hold."""

    code = 3

    def properties(self, native: bytes) -> Properties:
        headers = (("half", "\ud800"), ("nul", "a\0b"), ("nan", float("nan")), ("raw", b"\xff"))
        return Properties(subject="s\0t", message_id="m\ud800", headers=headers)


async def test_a_bad_message_is_refused_alone(house: House) -> None:
    await house.queue()
    await house.vhost.declare_queue((await house.queue("other")).spec)
    await house.vhost.bind("amq.fanout", house.vhost.queue("q"))
    told = Told()
    house.put("q", *[b"%d" % i for i in range(40)], told=told)
    bad = Message(b"odd", "amq.fanout", routing_key="with\0nul")
    assert house.vhost.publish(bad, told, 100) is Published.PENDING
    house.put("q", *[b"%d" % i for i in range(40, 80)], told=told)
    await told.answers(81)
    assert [token for token, _ in told.refused] == [100]
    assert bodies(await house.drain()) == [b"%d" % i for i in range(80)]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(odd(expires_at=1e18), id="expires after the end of time"),
        pytest.param(odd(not_before=1e18), id="delayed beyond the end of time"),
        pytest.param(odd(priority=70_000), id="a priority that no column holds"),
        pytest.param(odd(publisher="a\0b"), id="a publisher with a NUL"),
        pytest.param(odd(publisher="\ud800"), id="a publisher with half a character"),
        pytest.param(odd(form=Broken(), native=b"x"), id="properties that cannot be read"),
    ],
)
async def test_what_cannot_be_stored_is_refused_and_the_writer_goes_on(
    house: House, message: Message
) -> None:
    await house.queue()
    told = Told()
    house.put("q", b"before", told=told)
    house.vhost.publish(message, told, 7)
    house.put("q", b"after", told=told)
    await told.answers(3)
    assert [token for token, _ in told.refused] == [7]
    assert bodies(await house.drain()) == [b"before", b"after"]


async def test_headers_that_json_cannot_hold_are_stored_as_near_as_it_can(house: House) -> None:
    await house.queue()
    told = Told()
    house.vhost.publish(odd(form=Strange(), native=b"as sent \0"), told, 1)
    await told.answers(1)
    assert not told.refused
    (delivery,) = await house.drain()
    assert delivery.message.native == b"as sent \0"


async def test_a_reason_with_a_nul_does_not_stop_the_writer(house: House) -> None:
    await house.queue()
    await house.store("q", b"1")
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], Verdict(Outcome.MODIFIED, reason="no\0good \ud800"))
    await house.flushed()
    await house.crash_and_reopen()
    (again,) = await house.drain()
    assert again.failures == 1


async def test_a_second_manager_is_told_who_has_the_database(house: House) -> None:
    with pytest.raises(DatabaseInUse, match=r"another gateway .* owns this database; stop it"):
        await House(house.url).open()


async def test_the_next_manager_may_have_it_when_the_first_is_closed(house: House) -> None:
    await house.close()
    second = await House(house.url).open()
    await second.close()


async def test_a_killed_connection_loses_nothing_and_doubles_nothing(house: House) -> None:
    await house.queue()
    told = Told()
    killer = await asyncpg.connect(house.url)
    sent = 0
    for _ in range(6):
        for _ in range(300):
            house.vhost.publish(Message(b"%d" % sent, "", routing_key="q"), told, sent)
            sent += 1
        await turns()  # the writer takes them up
        await killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'howdah gateway (writer)' AND datname = current_database()"
        )
    await killer.close()
    await told.answers(sent)
    assert told.committed == list(range(sent))
    inbox, consumer = await house.consume("q")
    await inbox.has(sent)
    assert inbox.bodies == [b"%d" % i for i in range(sent)]
    house.vhost.settle(inbox.deliveries)
    house.vhost.end_consumer(consumer, FAILED)
    await house.flushed()
    await house.crash_and_reopen()
    assert house.vhost.queue("q").counts().ready == 0


async def test_settlements_survive_a_killed_connection(house: House) -> None:
    await house.queue()
    await house.store("q", *[b"%d" % i for i in range(10)])
    inbox, _ = await house.consume("q")
    await inbox.has(10)
    killer = await asyncpg.connect(house.url)
    await killer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'howdah gateway (writer)' AND datname = current_database()"
    )
    await killer.close()
    house.vhost.settle(inbox.deliveries[3:])
    await house.flushed()
    await house.crash_and_reopen()
    again = await house.drain()
    assert bodies(again) == [b"0", b"1", b"2"]
    assert all(delivery.redelivered for delivery in again)


async def test_a_publish_to_a_stream_that_is_just_deleted_stalls_nobody(house: House) -> None:
    await house.queue()
    await house.stream()
    told = Told()
    deleting = asyncio.create_task(house.vhost.delete_queue("s"))
    while "s" in house.vhost.queues:
        house.vhost.publish(Message(b"late", "", routing_key="s"), told, 1)
        await turns()  # publishes go on beside the deletion, turn by turn
    await deleting
    await house.store("q", b"1")
    assert bodies(await house.drain()) == [b"1"]


async def test_a_group_name_that_cannot_be_written_is_refused_to_its_consumer_only(
    house: House,
) -> None:
    await house.queue()
    await house.stream()
    for name in ("a\0b", "\ud800"):
        with pytest.raises(InvalidArgument, match="group"):
            await house.consume("s", group=name)
    await house.store("q", b"1")
    assert bodies(await house.drain()) == [b"1"]


async def test_a_delay_outlives_the_journal_that_it_was_written_in(house: House) -> None:
    await house.queue()
    await house.store("q", b"1")
    taken = await house.vhost.get("q")
    assert taken is not None
    house.vhost.settle([taken], Verdict(Outcome.MODIFIED, delay=100))
    await house.flushed()
    await house.crash_and_reopen()  # and nobody has read it back
    writer = house.manager.writer
    await writer._persist(writer._rotate)
    await house.crash_and_reopen()
    assert await house.vhost.get("q") is None
    await house.later(101)
    assert bodies(await house.drain()) == [b"1"]


async def test_what_breaks_a_rule_of_the_schema_is_refused_and_holds_up_nobody(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    vhost = await house.manager.add_vhost("gone")
    await db.execute("DELETE FROM howdah.vhost WHERE name = 'gone'")  # behind our back
    message, told = Message(b"x", "amq.topic", routing_key="a"), Told()
    vhost.publish(message, told, 7, (RetainedRecord("gone", "a", message),))
    house.put("q", b"1", told=told)
    await told.answers(2)
    assert ([token for token, _ in told.refused], told.committed) == ([7], [0])


class Silent:
    """A form whose bytes say nothing that has a column."""

    code = 3

    def properties(self, native: bytes) -> Properties:
        return NO_PROPERTIES


@pytest.mark.parametrize("count", [1, 30, 300])
async def test_what_one_publisher_sends_in_a_row_is_stored_as_rows_of_their_own(
    migrated_url: str, db: asyncpg.Connection, count: int
) -> None:
    """The short way (all in one statement) and the long one leave the same in the table."""
    form, told = Silent(), Told()
    house = await House(migrated_url, forms=(form,)).open()
    await house.queue()
    for turn in range(3):  # alike, then with another key in the middle
        for i in range(count):
            where = "amq.direct" if turn == 2 and i % 2 else ""
            message = Message(
                b"%d" % i, where, routing_key="q", form=form, native=b"n", publisher="p"
            )
            if turn == 2 and i == 0:
                await house.vhost.bind("amq.direct", house.vhost.queue("q"), "q")
            assert house.vhost.publish(message, told, turn * count + i) is Published.PENDING
        await told.answers((turn + 1) * count)
    rows = await db.fetch(
        'SELECT "offset", exchange, routing_key, publisher, form, native, durable, body '
        'FROM howdah.message ORDER BY "offset"'
    )
    places = [(turn, i) for turn in range(3) for i in range(count)]
    sources = ["amq.direct" if turn == 2 and i % 2 else "" for turn, i in places]
    assert [tuple(row) for row in rows] == [
        (offset, source, "q", "p", 3, b"n", True, b"%d" % i)
        for offset, (source, (_, i)) in enumerate(zip(sources, places, strict=True))
    ]
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"%d" % i for _ in range(3) for i in range(count)]
    await house.close()


class Talkative:
    """A form whose bytes say something that has columns."""

    code = 3

    def properties(self, native: bytes) -> Properties:
        headers = (("unit", "K"), ("n", 1))
        return Properties(content_type="text/csv", message_id=native.decode(), headers=headers)


@pytest.mark.parametrize("count", [2, 300])
async def test_what_all_of_a_row_say_stands_in_the_columns_of_each(
    migrated_url: str, db: asyncpg.Connection, count: int
) -> None:
    """Once with properties alike, which are written once, and once with others in between."""
    form, told = Talkative(), Told()
    house = await House(migrated_url, forms=(form,)).open()
    await house.queue()
    for turn in range(2):
        for i in range(count):
            native = b"other" if turn and i % 2 else b"alike"
            message = Message(
                b"%d" % i, "", routing_key="q", form=form, native=native, priority=4, publisher="p"
            )
            house.vhost.publish(message, told, turn * count + i)
        await told.answers((turn + 1) * count)
    rows = await db.fetch(
        "SELECT \"offset\", body, content_type, message_id, priority, native, headers ->> 'unit', "
        "headers ->> 'n', reply_to, expires_at, deaths "
        'FROM howdah.message ORDER BY "offset"'
    )
    places = [(turn, i) for turn in range(2) for i in range(count)]
    words = ["other" if turn and i % 2 else "alike" for turn, i in places]
    assert [tuple(row) for row in rows] == [
        (offset, b"%d" % i, "text/csv", word, 4, word.encode(), "K", "1", None, None, None)
        for offset, (word, (_, i)) in enumerate(zip(words, places, strict=True))
    ]
    await house.crash_and_reopen()
    found = await house.drain()
    assert [delivery.message.properties.message_id for delivery in found] == words
    await house.close()


def run_of(key: str, *bodies: bytes) -> MessageRun:
    return MessageRun([Message(body, "", routing_key="q", publisher=key) for body in bodies])


async def test_a_run_is_told_of_each_message_and_in_order(house: House) -> None:
    await house.queue()
    told = Told()
    messages = run_of("p", b"0", b"1", b"2")
    assert house.vhost.publish_run(messages, told, 7) is None  # nothing was routed there yet
    house.put("q", b"first", told=told)
    assert house.vhost.publish_run(messages, told, 7) is Published.PENDING
    assert house.vhost.publish_run(run_of("p", b"3", b"4"), told, 10) is Published.PENDING
    await told.answers(6)
    assert (told.committed, told.refused) == ([0, 7, 8, 9, 10, 11], [])
    assert bodies(await house.drain()) == [b"first", b"0", b"1", b"2", b"3", b"4"]


async def test_a_run_that_cannot_be_stored_is_refused_and_its_neighbours_are_not(
    house: House,
) -> None:
    await house.queue()
    told = Told()
    house.put("q", b"before", told=told)
    bad = run_of("a\0b", b"x", b"y")
    assert house.vhost.publish_run(bad, told, 5) is Published.PENDING
    assert house.vhost.publish_run(run_of("p", b"1", b"2"), told, 7) is Published.PENDING
    await told.answers(5)
    assert [token for token, _ in told.refused] == [5, 6]
    assert told.committed == [0, 7, 8]
    assert bodies(await house.drain()) == [b"before", b"1", b"2"]
    assert house.vhost.queue("q").pending == 0


async def test_one_message_of_a_run_that_cannot_be_stored_is_refused_alone(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.store("q", b"first")
    await db.execute("ALTER TABLE howdah.message ADD CHECK (body <> 'bad') NOT VALID")
    told = Told()
    messages = run_of("p", *[b"%d" % i for i in range(20)], b"bad", b"20", b"21")
    assert house.vhost.publish_run(messages, told, 0) is Published.PENDING
    await told.answers(23)
    assert [token for token, _ in told.refused] == [20]
    assert sorted(told.committed) == [*range(20), 21, 22]
    stored = bodies(await house.drain())
    assert stored == [b"first", *[b"%d" % i for i in range(22)]]


async def test_a_transaction_is_no_larger_for_runs(house: House) -> None:
    """The messages of a run count each for what one transaction holds."""
    await house.queue()
    await house.store("q", b"first")
    told, count = Told(), 6 * MOST_UNITS // 1000
    before = house.manager.counters.commits
    for i in range(count):
        messages = run_of("p", *[b"x"] * 1000)
        assert house.vhost.publish_run(messages, told, i * 1000) is Published.PENDING
    await told.answers(count * 1000)
    assert told.committed == list(range(count * 1000))
    assert house.manager.counters.commits - before >= 3
    assert not house.manager.writer._waiting_units
    assert not house.manager.writer._waiting_bytes


async def test_the_silent_end_of_the_database_is_noticed_on_every_connection(house: House) -> None:
    """Within half a minute: nobody waits for the 15 minutes that TCP tries by default."""
    database = house.manager._database
    async with database.pool.acquire() as reader, database.engine.connect() as cold:
        raw = await cold.get_raw_connection()
        connections = [house.manager.writer._connection, reader, raw.driver_connection]
        for connection in connections:
            link = socket_of(connection)
            assert link is not None
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPCNT)
            found = [link.getsockopt(socket.IPPROTO_TCP, option) for option in options]
            assert found == [25_000, 10, 3]


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param("LOCK TABLE howdah.message IN ACCESS EXCLUSIVE MODE", id="table"),
        pytest.param(
            f"SELECT pg_advisory_xact_lock({NODE_LOCKS}, id) FROM howdah.node", id="advisory"
        ),
    ],
)
async def test_a_lock_that_holds_up_commits_is_told_by_readiness_the_log_and_the_doctor(
    house: House,
    db: asyncpg.Connection,
    lock: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_ready() -> bool:
        return house.manager.is_ready

    monkeypatch.setattr(writer, "SLOW_SECONDS", 0.01)
    monkeypatch.setattr(doctor_checks, "LONG_WAIT", timedelta())
    await house.queue()
    await house.store("q", b"first")
    await house.let_node_lock_go()
    doctor = await queue_operations.connect(house.url, "doctor")
    found = await doctor_checks.in_the_way(doctor)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with db.transaction():
            await db.execute(lock)
            house.put("q", b"second")
            await until(lambda: not is_ready())

            async def is_seen() -> bool:
                nonlocal found
                found = await doctor_checks.in_the_way(doctor)
                return found[0].level is not Level.OK

            await until(is_seen)
        assert found[0].level is Level.FAIL
        assert f"for a lock of pid {db.get_server_pid()} " in found[0].what
        assert lock in found[0].what
        assert f"pg_terminate_backend({db.get_server_pid()})" in found[0].way_out
        await house.flushed()
    assert is_ready()
    assert "a commit waits" in caplog.text
    assert {finding.level for finding in await doctor_checks.in_the_way(doctor)} == {Level.OK}
    await doctor.close()
    assert len(await house.drain()) == 2


async def test_a_command_does_not_wait_for_a_lock_for_ever(house: House) -> None:
    connection = await queue_operations.connect(house.url, "command")
    assert await connection.fetchval("SHOW lock_timeout") == f"{queue_operations.LOCK_SECONDS}s"
    await connection.close()
