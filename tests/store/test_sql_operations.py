"""Operations on a queue from SQL: look into it, redrive, purge, delete, declare."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from queue_core.routing.topics import filter_tokens, pattern_tokens
from tests.support.postgres import on_stock_too
from tests.support.seed import append, change, death, make_queue, make_segment, settle

pytestmark = on_stock_too


async def _peek(db: asyncpg.Connection, arguments: str) -> list[int]:
    rows = await db.fetch(f'SELECT "offset" FROM howdah.peek({arguments})')
    return [row[0] for row in rows]


async def _command(db: asyncpg.Connection, number: int) -> dict[str, Any]:
    row = await db.fetchrow("SELECT * FROM howdah.command WHERE id = $1", number)
    assert row is not None
    return {**row, "argument": json.loads(row["argument"])}


async def _dead_letters(db: asyncpg.Connection, *offsets: int) -> int:
    """A queue `dead` with ten messages, of which those given were dead-lettered."""
    queue, segment = await make_queue(db, "dead"), await make_segment(db)
    await append(db, segment, queue, range(10))
    for offset in offsets:
        await change(db, queue, offset, deaths=[death("orders")], headers={"n": offset})
    return queue


# ----------------------------------------------------------------------------------------- peek


async def test_peek_shows_the_oldest_unsettled_messages_in_order(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "q")
    for start in (0, 10, 20):
        await append(db, await make_segment(db), queue, range(start, start + 10))
    await settle(db, queue, 1, 3, "{[5,8),[9,21)}", is_full=True)
    assert await _peek(db, "'q', 5") == [3, 4, 8, 21, 22]
    assert await _peek(db, "'q'") == [3, 4, 8, 21, 22, 23, 24, 25, 26, 27]
    assert await _peek(db, "'q', 2, 8") == [8, 21]
    assert await _peek(db, "'q', 2, from_offset => 29") == [29]
    assert await _peek(db, "'q', 2, 30") == []
    assert await _peek(db, "'q', 0") == []


async def test_peek_shows_what_a_stream_keeps_from_any_offset(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "s", "stream")
    await append(db, await make_segment(db, queue), queue, range(10, 20))
    await settle(db, queue, 1, 18, group="g", is_full=True)
    assert await _peek(db, "'s', 2") == [10, 11]
    assert await _peek(db, "'s', 2, 15") == [15, 16]


async def test_peek_shows_all_that_a_person_wants_to_know(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, [0])
    await db.execute("INSERT INTO howdah.message_body VALUES ($1, 9, 'large')", segment)
    await change(
        db,
        queue,
        0,
        body=None,
        body_id=9,
        headers={"a": 1},
        deaths=[death("x")],
        form=3,
        priority=4,
    )
    await db.execute(
        'INSERT INTO howdah.redelivery (generation, queue_id, "offset", count) '
        "VALUES (1, $1, 0, 2)",
        queue,
    )
    row = await db.fetchrow("SELECT * FROM howdah.peek('q')")
    assert row is not None
    assert (row["body"], row["delivery_count"], row["priority"]) == (b"large", 2, 4)
    assert (row["protocol"], row["routing_key"]) == ("AMQP 0.9.1", "key")
    assert json.loads(row["headers"]) == {"a": 1}
    assert json.loads(row["deaths"])[0]["queue"] == "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'nowhere'", "no durable queue 'nowhere' in virtual host '/'"),
        ("NULL", "no durable queue NULL"),
        ("'q', -1", "limit must be 0 or more"),
        ("'q', NULL", "limit must be 0 or more"),
        ("'q', vhost => 'v'", "no durable queue 'q' in virtual host 'v'"),
    ],
)
async def test_peek_refuses_what_is_not_there(
    db: asyncpg.Connection, arguments: str, message: str
) -> None:
    await make_queue(db, "q")
    with pytest.raises(asyncpg.PostgresError, match=message):
        await _peek(db, arguments)


# -------------------------------------------------------------------------------------- redrive


async def test_redrive_asks_for_the_dead_letters_that_match(db: asyncpg.Connection) -> None:
    queue = await _dead_letters(db, 2, 3, 4, 7)
    number = await db.fetchval(
        "SELECT howdah.redrive('dead', $1)", "(headers ->> 'n')::int <> 3 AND state = 'ready'"
    )
    command = await _command(db, number)
    assert (command["kind"], command["vhost"], command["queue"]) == ("redrive", "/", "dead")
    assert command["argument"]["offsets"] == "{[2,3),[4,5),[7,8)}"
    assert command["argument"]["queue_id"] == queue
    assert command["done_at"] is None


async def test_redrive_takes_all_dead_letters_and_no_other_message(db: asyncpg.Connection) -> None:
    queue = await _dead_letters(db, 0, 1, 2, 9)
    await settle(db, queue, 1, 1, is_full=True)
    command = await _command(db, await db.fetchval("SELECT howdah.redrive('dead')"))
    assert command["argument"]["offsets"] == "{[1,3),[9,10)}"


async def test_redrive_of_nothing_is_done_at_once(db: asyncpg.Connection) -> None:
    await _dead_letters(db)
    status = await db.fetchrow(
        "SELECT * FROM howdah.command_status(howdah.redrive('dead', 'priority = 9 -- none'))"
    )
    assert status is not None
    assert (status["state"], json.loads(status["result"])) == ("done", {"moved": 0})


async def test_the_predicate_has_the_callers_rights_and_no_others(db: asyncpg.Connection) -> None:
    await _dead_letters(db, 1)
    await db.execute("SET ROLE howdah_operator")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="user"):
        await db.execute("SELECT howdah.redrive('dead', 'EXISTS (SELECT FROM howdah.\"user\")')")
    await db.execute("SELECT howdah.redrive('dead', 'body IS NOT NULL')")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("'nowhere'", asyncpg.UndefinedObjectError),
        ("'dead', ''", asyncpg.InvalidParameterValueError),
        ("'dead', NULL", asyncpg.InvalidParameterValueError),
        ("'dead', 'no_such_column = 1'", asyncpg.UndefinedColumnError),
        ("'dead', 'true) OR (true; DROP TABLE howdah.outbox'", asyncpg.PostgresSyntaxError),
    ],
)
async def test_a_redrive_that_makes_no_sense_is_refused(
    db: asyncpg.Connection, arguments: str, error: type[asyncpg.PostgresError]
) -> None:
    await _dead_letters(db, 1)
    with pytest.raises(error):
        await db.execute(f"SELECT howdah.redrive({arguments})")
    assert await db.fetchval("SELECT count(*) FROM howdah.command") == 0


# ------------------------------------------------------------------------------- other commands


@pytest.mark.parametrize(
    ("call", "kind", "argument"),
    [
        pytest.param("purge('q')", "purge", {}, id="purge"),
        pytest.param(
            "delete_queue('q')",
            "delete_queue",
            {"if_unused": False, "if_empty": False},
            id="delete",
        ),
        pytest.param(
            "delete_queue('q', if_empty => true)",
            "delete_queue",
            {"if_unused": False, "if_empty": True},
            id="delete if empty",
        ),
        pytest.param(
            "declare_queue('q', '{\"x-queue-type\": \"stream\"}')",
            "declare_queue",
            {"arguments": {"x-queue-type": "stream"}},
            id="declare again",
        ),
        pytest.param(
            "bind('q', 'a.*')",
            "bind",
            {"exchange": "amq.topic", "routing_key": "a.*", "arguments": {}},
            id="bind",
        ),
        pytest.param(
            "unbind('q', '', 'amq.headers', '{\"x-match\": \"any\"}')",
            "unbind",
            {"exchange": "amq.headers", "routing_key": "", "arguments": {"x-match": "any"}},
            id="unbind",
        ),
        pytest.param(
            "bind_topic('q', 'a/+/#')",
            "bind",
            {"exchange": "amq.topic", "routing_key": "a.*.#", "arguments": {}},
            id="bind to a topic filter",
        ),
    ],
)
async def test_a_command_waits_for_the_gateway_with_all_that_it_must_know(
    db: asyncpg.Connection, call: str, kind: str, argument: dict[str, Any]
) -> None:
    queue = await make_queue(db, "q")
    command = await _command(db, await db.fetchval(f"SELECT howdah.{call}"))
    assert (command["kind"], command["vhost"], command["queue"]) == (kind, "/", "q")
    assert command["argument"] == {**argument, "queue_id": queue}
    assert command["requested_by"] == await db.fetchval("SELECT session_user")


async def test_a_new_queue_is_declared_with_its_arguments(db: asyncpg.Connection) -> None:
    number = await db.fetchval("SELECT howdah.declare_queue('new')")
    assert (await _command(db, number))["argument"] == {"arguments": {}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("purge('nowhere')", "no durable queue 'nowhere'"),
        ("purge('q', 'v')", "no virtual host 'v'"),
        ("delete_queue('nowhere')", "no durable queue 'nowhere'"),
        ("declare_queue('')", "1 to 255 bytes"),
        ("declare_queue(repeat('ü', 128))", "1 to 255 bytes"),
        ("declare_queue('x', '[]')", "must be a JSON object"),
        ("declare_queue('x', vhost => 'v')", "no virtual host 'v'"),
        ("bind('nowhere', 'a')", "no durable queue 'nowhere'"),
        ("bind('q', NULL)", "routing_key must be a text"),
        ("bind('q', 'a', '')", "default exchange"),
        ("bind('q', 'a', 'none')", "no durable exchange 'none'"),
        ("bind('q', 'a', arguments => '[]')", "must be a JSON object"),
        ("bind_topic('q', '')", "filter is empty"),
        ("bind_topic('q', 'a/#/b')", "goes on after #"),
        ("bind_topic('q', 'a/b+')", "mixes a wildcard"),
        ("bind_topic('q', 'a/*')", r"level '\*', which a binding would take for a wildcard"),
        ("bind_topic('q', 'a/%23')", "level '%23', which a binding would take for a wildcard"),
        ("bind_topic('q', '$queue/x')", "names a queue or a share"),
        ("unbind_topic('q', '%00')", "no text can have"),
        ("reset_group('q', '')", "queue 'q' in virtual host '/' is no stream: it has no consumer"),
        ("reset_group('nowhere', 'g')", "stream 'nowhere' in virtual host '/' has no consumer"),
        ("submit_command('shutdown', '/', 'q', '{}')", "no command 'shutdown'"),
    ],
)
async def test_a_command_that_cannot_be_met_is_refused_at_once(
    db: asyncpg.Connection, call: str, message: str
) -> None:
    await make_queue(db, "q")
    with pytest.raises(asyncpg.PostgresError, match=message):
        await db.execute(f"SELECT howdah.{call}")


async def test_who_resets_a_group_of_a_queue_is_told_what_to_do_instead(
    db: asyncpg.Connection,
) -> None:
    await make_queue(db, "q")
    with pytest.raises(asyncpg.WrongObjectTypeError, match="is no stream") as caught:
        await db.execute("SELECT howdah.reset_group('q', 'g')")
    for way in ("redrive()", "purge()", '"x-queue-type": "stream"'):
        assert way in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("position", "place"),
    [
        ("first", {"name": "first"}),
        ("17", {"offset": 17}),
        ("1970-01-01 00:00:01.5+00", {"time": 1.5}),
        ("infinity", None),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
async def test_a_group_is_sent_to_a_place_that_a_stream_can_have(
    db: asyncpg.Connection, position: str, place: dict[str, Any] | None
) -> None:
    queue = await make_queue(db, "s", "stream")
    await settle(db, queue, 1, 4, group="g")
    call = "SELECT howdah.reset_group('s', 'g', $1)"
    if place is None:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="is no place in a stream"):
            await db.fetchval(call, position)
        return
    command = await _command(db, await db.fetchval(call, position))
    assert command["argument"] == {**place, "group": "g", "queue_id": queue}


@pytest.mark.parametrize(
    ("update", "state"),
    [
        pytest.param(None, "waiting", id="waiting"),
        pytest.param("done_at = now(), result = '{\"purged\": 3}'", "done", id="done"),
        pytest.param("done_at = now(), error = 'it is a stream'", "failed", id="failed"),
    ],
)
async def test_the_status_of_a_command_tells_what_became_of_it(
    db: asyncpg.Connection, update: str | None, state: str
) -> None:
    await make_queue(db, "q")
    number = await db.fetchval("SELECT howdah.purge('q')")
    if update:
        await db.execute(f"UPDATE howdah.command SET {update}")
    row = await db.fetchrow("SELECT * FROM howdah.command_status($1)", number)
    assert row is not None
    assert (row["kind"], row["queue"], row["state"]) == ("purge", "q", state)


async def test_the_status_of_an_unknown_command_is_an_error(db: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match="no command 42"):
        await db.fetch("SELECT * FROM howdah.command_status(42)")


FILTERS = ["a/b", "a/+", "a/#", "#", "+/b", "a.b/c", "a%2Bb/+", "$SYS/#", "$empty", "$empty/#", "/"]


@pytest.mark.parametrize("topic_filter", FILTERS)
async def test_the_key_of_a_filter_matches_what_the_filter_matches(
    db: asyncpg.Connection, topic_filter: str
) -> None:
    key = await db.fetchval("SELECT howdah.filter_key($1)", topic_filter)
    assert pattern_tokens(key) == filter_tokens(topic_filter)
