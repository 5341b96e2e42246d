"""Who consumes, and what is in whose hands, as a DBA sees it in SQL beside a running gateway."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from queue_core.delivery.consumer import Origin
from queue_core.outcomes import ACCEPTED
from queue_core.queues.spec import QueueSpec
from queue_core.store.upkeep import consumer_status
from tests.support.clock import START
from tests.support.logins import a_login
from tests.support.managers import House

ANNA = Origin("AMQP 0.9.1", "anna", "billing", "10.0.0.7:50001")


async def consumers(db: asyncpg.Connection) -> list[dict[str, Any]]:
    rows = await db.fetch("SELECT * FROM howdah.consumer_status ORDER BY consumer_id")
    return [dict(row) for row in rows]


async def in_flight(db: asyncpg.Connection) -> list[tuple[Any, ...]]:
    """Queue, offset and tag, in the order of offsets."""
    rows = await db.fetch(
        'SELECT queue, "offset", tag FROM howdah.in_flight ORDER BY queue, "offset", tag'
    )
    return [tuple(row) for row in rows]


async def rows_written(db: asyncpg.Connection) -> list[tuple[Any, ...]]:
    """The versions of the rows: written again, a row has another."""
    rows = await db.fetch("SELECT number, xmin::text, ctid::text FROM howdah.consumer ORDER BY 1")
    return [tuple(row) for row in rows]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def test_a_consumer_is_shown_with_who_it_is_and_what_it_asked_for(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    arguments = {"x-priority": 5, "x-unheard-of": b"\x00\xff"}
    await house.consume(
        "q", tag="t", credit=20, priority=5, exclusive=True, origin=ANNA, arguments=arguments
    )
    await house.later(3)
    await house.upkeep()
    (found,) = await consumers(db)
    expected = {
        "vhost": "/",
        "queue": "q",
        "kind": "classic",
        "group_name": "",
        "tag": "t",
        "state": "active",
        "protocol": "AMQP 0.9.1",
        "user_name": "anna",
        "client": "billing",
        "address": "10.0.0.7:50001",
        "prefetch": 20,
        "credit": 20,
        "in_flight": 0,
        "listed": 0,
        "oldest_age": None,
        "priority": 5,
        "is_exclusive": True,
        "auto_settle": False,
        "since": at(START),
        "noted_at": at(START + 3),
    }
    assert {name: found[name] for name in expected} == expected
    assert '"x-priority": 5' in found["arguments"]
    assert "x-unheard-of" in found["arguments"]


async def test_what_is_in_flight_is_listed_with_whom_and_since_when(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1", b"2", b"3")
    first, _ = await house.consume("q", tag="first", credit=2)
    await first.has(2)
    await house.upkeep()
    second, _ = await house.consume("q", tag="second", credit=2)
    await second.has(2)
    await house.later(7)
    await house.upkeep()
    assert await in_flight(db) == [
        ("q", 0, "first"),
        ("q", 1, "first"),
        ("q", 2, "second"),
        ("q", 3, "second"),
    ]
    since = {
        row["offset"]: row["since"] for row in await db.fetch("SELECT * FROM howdah.in_flight")
    }
    assert since == {0: at(START), 1: at(START), 2: at(START + 7), 3: at(START + 7)}
    assert [(row["in_flight"], row["listed"]) for row in await consumers(db)] == [(2, 2), (2, 2)]
    house.vhost.settle(first.deliveries[:1], ACCEPTED)
    await house.upkeep()
    assert await in_flight(db) == [("q", 1, "first"), ("q", 2, "second"), ("q", 3, "second")]
    since = {
        row["offset"]: row["since"] for row in await db.fetch("SELECT * FROM howdah.in_flight")
    }
    assert since[1] == at(START)


async def test_a_consumer_that_left_is_not_shown_and_one_that_may_settle_is(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1")
    inbox, consumer = await house.consume("q", tag="t", credit=1)
    await inbox.has(1)
    taken = await house.vhost.get("q", origin=ANNA)
    assert taken is not None
    house.vhost.end_consumer(consumer, None)
    await house.upkeep()
    assert [(row["tag"], row["state"], row["user_name"]) for row in await consumers(db)] == [
        ("t", "cancelled", ""),
        ("", "cancelled", "anna"),
    ]
    assert await in_flight(db) == [("q", 0, "t"), ("q", 1, "")]
    house.vhost.settle([*inbox.deliveries, taken], ACCEPTED)
    await house.upkeep()
    assert await consumers(db) == []


async def test_groups_of_a_stream_and_readers_of_their_own_are_told_apart(
    house: House, db: asyncpg.Connection
) -> None:
    await house.stream("s")
    await house.store("s", b"0")
    grouped, consumer = await house.consume("s", tag="g", group="billing", credit=1)
    await house.consume("s", tag="alone")
    await house.store("s", b"1")
    await grouped.has(1)
    await house.upkeep()
    assert [(row["tag"], row["kind"], row["group_name"]) for row in await consumers(db)] == [
        ("g", "stream", "billing"),
        ("alone", "stream", None),
    ]
    assert await in_flight(db) == [("s", 1, "alone"), ("s", 1, "g")]
    house.vhost.end_consumer(consumer, None)  # the cursor of its group is put away
    await house.upkeep()
    assert await in_flight(db) == [("s", 1, "alone"), ("s", 1, "g")]


async def test_the_state_says_why_a_consumer_gets_nothing(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q", single_active_consumer=True)
    _, first = await house.consume("q", tag="first")
    await house.consume("q", tag="second")
    first.pause()
    await house.upkeep()
    assert [(row["tag"], row["state"]) for row in await consumers(db)] == [
        ("first", "paused"),
        ("second", "waiting"),
    ]
    first.close()
    await house.upkeep()
    assert [(row["tag"], row["state"]) for row in await consumers(db)] == [("second", "active")]


async def test_nothing_is_written_while_nothing_changes(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.consume("q")
    await house.upkeep()
    before = await rows_written(db)
    assert len(before) == 2
    await house.later(5)
    await house.upkeep()
    assert await rows_written(db) == before
    house.vhost.settle(inbox.deliveries, ACCEPTED)
    await house.upkeep()
    after = await rows_written(db)
    assert len([row for row in after if row not in before]) == 1


async def test_no_more_is_listed_than_the_row_says(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_status, "MOST_LISTED", 3)
    await house.queue("q")
    await house.store("q", *(b"%d" % number for number in range(10)))
    inbox, _ = await house.consume("q")
    await inbox.has(10)
    await house.upkeep()
    (row,) = await consumers(db)
    assert (row["in_flight"], row["listed"]) == (10, 3)
    assert [offset for _, offset, _ in await in_flight(db)] == [0, 1, 2]


async def test_many_consumers_are_written_in_several_looks_and_more_are_left_out(
    house: House,
    db: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(consumer_status, "MOST_WRITTEN", 2)
    monkeypatch.setattr(consumer_status, "MOST_CONSUMERS", 3)
    await house.vhost.declare_queue(QueueSpec.parse("$session/x"), inside=True)
    await house.queue("q")
    await house.consume("$session/x", tag="session")
    for number in range(3):
        await house.consume("q", tag=f"t{number}")
    await house.upkeep()
    assert [row["tag"] for row in await consumers(db)] == ["t0", "t1"]
    await house.upkeep()
    assert [row["tag"] for row in await consumers(db)] == ["t0", "t1", "t2"]
    assert "more than 3 consumers; howdah.consumer_status leaves the others out" in caplog.text


async def test_names_that_clients_choose_are_kept_short_and_storable(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    odd = Origin("p", "u\0\ud800", "c" * 100_000, "")
    await house.consume("q", tag="t\0", origin=odd, arguments={"a": "x" * 100_000})
    await house.consume("q", arguments={"\0": object()})
    await house.upkeep()
    first, second = await consumers(db)
    assert first["user_name"] == "u\ufffd?"
    assert len(first["client"]) == 259
    assert first["arguments"] == '{"howdah": "the arguments are too long to be shown"}'
    assert "object" in second["arguments"]


async def test_without_a_gateway_the_views_are_empty(house: House, db: asyncpg.Connection) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.upkeep()
    activity = "SELECT in_flight, consumers FROM howdah.queue_status"
    assert await db.fetchval("SELECT howdah.is_served()") is True
    assert tuple(await db.fetchrow(activity) or ()) == (1, 1)
    await house.crash()
    assert await db.fetchval("SELECT howdah.is_served()") is False
    assert await db.fetchval("SELECT count(*) FROM howdah.consumer") == 1
    assert await consumers(db) == []
    assert await in_flight(db) == []
    await house.open()
    assert await consumers(db) == []  # of another epoch
    await house.upkeep()
    assert await db.fetchval("SELECT count(*) FROM howdah.consumer") == 0
    assert tuple(await db.fetchrow(activity) or ()) == (0, 0)


async def test_an_orderly_end_leaves_nothing_that_looks_like_a_consumer(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.upkeep()
    await house.close()
    assert await db.fetchval("SELECT count(*) FROM howdah.consumer") == 0
    row = await db.fetchrow("SELECT in_flight, consumers FROM howdah.queue_status")
    assert tuple(row or ()) == (0, 0)


async def test_a_table_that_vacuum_cannot_keep_small_is_begun_anew(
    house: House, db: asyncpg.Connection, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup or a Spark job holds back vacuum like this for hours; a reader of the table
    itself is waited for, and the rows go on being right meanwhile."""
    monkeypatch.setattr(consumer_status, "LARGE_BYTES", 0)
    monkeypatch.setattr(consumer_status, "PATIENCE_LOOKS", 1)
    node = "SELECT pg_relation_filenode('howdah.consumer')"
    await house.queue("q")
    reader = await asyncpg.connect(migrated_url)
    async with reader.transaction():
        await reader.fetch("SELECT * FROM howdah.consumer_status")
        _, consumer = await house.consume("q", tag="t")
        await house.upkeep()
        before = await db.fetchval(node)
        assert [row["state"] for row in await consumers(db)] == ["active"]
        consumer.pause()
        await house.upkeep()
        await house.upkeep()
        assert [row["state"] for row in await consumers(db)] == ["paused"]
        assert await db.fetchval(node) == before
    await reader.close()
    consumer.resume()
    await house.upkeep()
    assert await db.fetchval(node) != before
    monkeypatch.setattr(consumer_status, "LARGE_BYTES", 1 << 20)
    await house.upkeep()
    assert [(row["tag"], row["state"]) for row in await consumers(db)] == [("t", "active")]


async def test_what_is_wrong_with_the_notes_stops_nothing_else(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue("q")
    await house.consume("q")
    await db.execute("ALTER TABLE howdah.consumer RENAME TO mislaid")
    await house.upkeep()
    assert "who consumes is not noted" in caplog.text
    await db.execute("ALTER TABLE howdah.mislaid RENAME TO consumer")
    await house.upkeep()
    assert len(await consumers(db)) == 1


@pytest.mark.parametrize("role", ["howdah_operator", "howdah_reader"])
async def test_people_see_the_views_and_not_the_table(
    house: House, db: asyncpg.Connection, migrated_url: str, role: str
) -> None:
    await house.queue("q")
    await house.store("q", b"0")
    inbox, _ = await house.consume("q", tag="t")
    await inbox.has(1)
    await house.upkeep()
    async with a_login(db, migrated_url, role) as url:
        person = await asyncpg.connect(url)
        try:
            assert [row["tag"] for row in await consumers(person)] == ["t"]
            assert await in_flight(person) == [("q", 0, "t")]
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await person.fetch("SELECT * FROM howdah.consumer")
        finally:
            await person.close()
