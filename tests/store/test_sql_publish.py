"""Publishing from SQL: in the caller's transaction, complete, and refused with a reason."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.message.topic_forms import dotted, slashed
from tests.support.postgres import execute
from tests.support.seed import make_queue


@pytest.fixture(autouse=True)
async def queues(db: asyncpg.Connection) -> None:
    """The queues that these tests publish to."""
    for name in ("orders", "a/b", "q", "k"):
        await make_queue(db, name)


async def _published(db: asyncpg.Connection, call: str, *arguments: Any) -> asyncpg.Record:
    number = await db.fetchval(f"SELECT howdah.{call}", *arguments)
    row = await db.fetchrow("SELECT * FROM howdah.outbox WHERE id = $1", number)
    assert row is not None
    return row


async def test_a_message_is_in_the_outbox_with_everything_that_was_said_about_it(
    db: asyncpg.Connection,
) -> None:
    row = await _published(
        db,
        """publish('orders', '\\x00ff'::bytea, headers => '{"region": "eu"}',
                   content_type => 'application/x-order', content_encoding => 'gzip',
                   message_id => 'm-1', correlation_id => 'c-1', reply_to => 'answers',
                   subject => 'new', app_id => 'shop', group_id => 'g', priority => 7,
                   expires_in => '1 hour', delay => '1 minute', durable => false)""",
    )
    expected = {
        "vhost": "/",
        "exchange": "",
        "routing_key": "orders",
        "content_type": "application/x-order",
        "content_encoding": "gzip",
        "message_id": "m-1",
        "correlation_id": "c-1",
        "reply_to": "answers",
        "subject": "new",
        "app_id": "shop",
        "group_id": "g",
        "priority": 7,
        "durable": False,
        "retain": False,
        "body": b"\x00\xff",
        "form": 0,
        "native": None,
        "user_id": None,
    }
    assert {name: row[name] for name in expected} == expected
    assert json.loads(row["headers"]) == {"region": "eu"}
    assert row["expires_at"] - row["inserted_at"] == timedelta(hours=1)
    assert row["not_before"] - row["inserted_at"] == timedelta(minutes=1)
    assert row["created_at"] == row["inserted_at"]


async def test_only_routing_key_and_body_are_needed(db: asyncpg.Connection) -> None:
    row = await _published(db, "publish('orders', 'hello')")
    assert (row["routing_key"], row["body"], row["exchange"]) == ("orders", b"hello", "")
    assert row["durable"]
    assert (row["expires_at"], row["not_before"], row["priority"], row["headers"]) == (None,) * 4


@pytest.mark.parametrize(
    ("body", "stored", "content_type"),
    [
        pytest.param("'grün'", "grün".encode(), "text/plain; charset=utf-8", id="literal"),
        pytest.param("'grün'::text", "grün".encode(), "text/plain; charset=utf-8", id="text"),
        pytest.param("'{\"a\": 1}'::jsonb", b'{"a": 1}', "application/json", id="json"),
        pytest.param("'\\x01'::bytea", b"\x01", None, id="bytes"),
        pytest.param("''", b"", "text/plain; charset=utf-8", id="empty"),
    ],
)
@pytest.mark.parametrize("function", ["publish", "publish_topic"])
async def test_the_type_of_the_body_decides_its_content_type(
    db: asyncpg.Connection, function: str, body: str, stored: bytes, content_type: str | None
) -> None:
    row = await _published(db, f"{function}('a/b', {body})")
    assert (row["body"], row["content_type"]) == (stored, content_type)


async def test_a_message_exists_if_and_only_if_the_transaction_commits(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    other = await asyncpg.connect(migrated_url)
    try:
        count = "SELECT count(*) FROM howdah.outbox"
        transaction = db.transaction()
        await transaction.start()
        await db.execute("SELECT howdah.publish('orders', 'no')")
        assert await other.fetchval(count) == 0
        await transaction.rollback()
        async with db.transaction():
            await db.execute("SELECT howdah.publish('orders', 'yes')")
        assert await other.fetchval(count) == 1
    finally:
        await other.close()


async def test_a_message_in_a_long_transaction_expires_by_the_clock_not_by_its_start(
    db: asyncpg.Connection,
) -> None:
    async with db.transaction():
        await db.execute("SELECT pg_sleep(0.05)")  # a rule about time
        row = await _published(db, "publish('orders', 'x', expires_in => '0.04 s')")
        assert row["expires_at"] > await db.fetchval("SELECT now() + interval '0.05 s'")


@pytest.fixture
def shop_url(postgres_server: EmbeddedPostgres, migrated_url: str) -> Iterator[str]:
    """The URL of an application's login."""
    name = f"shop_{os.getpid()}"
    execute(
        postgres_server.url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE howdah_publisher"
    )
    parts = urlsplit(migrated_url)
    yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    execute(postgres_server.url, f"DROP ROLE {name}")


async def test_who_published_is_the_login_whatever_role_it_has_put_on(
    db: asyncpg.Connection, shop_url: str
) -> None:
    shop = await asyncpg.connect(shop_url)
    try:
        await shop.execute("SELECT howdah.publish('orders', 'x')")
        await shop.execute("SET ROLE howdah_publisher")
        await shop.execute("SELECT howdah.publish('orders', 'x')")
    finally:
        await shop.close()
    login = urlsplit(shop_url).username
    rows = await db.fetch("SELECT requested_by, publisher FROM howdah.outbox")
    assert [tuple(row) for row in rows] == [(login, login)] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param("publish('q', 'x', vhost => 'v')", "no virtual host 'v'", id="vhost"),
        pytest.param(
            "publish('q', 'x', exchange => 'e')", "no durable exchange 'e'", id="exchange"
        ),
        pytest.param("publish(NULL, 'x')", "must not be null", id="null key"),
        pytest.param("publish('q', NULL::text)", "must not be null", id="null body"),
        pytest.param("publish('q', 'x', headers => '[1]')", "JSON object, not array", id="headers"),
        pytest.param("publish('q', 'x', priority => 256)", "from 0 to 255", id="priority"),
        pytest.param("publish('q', 'x', priority => -1)", "from 0 to 255", id="below zero"),
        pytest.param("publish('q', 'x', expires_in => '-1 s')", "expires_in is", id="expired"),
        pytest.param("publish('q', 'x', delay => '-1 s')", "delay is", id="delay before now"),
        pytest.param("publish('q', 'x', delay => '9000 years')", "delay is", id="delay too far"),
        pytest.param(
            "publish('q', 'x', retain => true)", "only a message to amq.topic", id="retain"
        ),
        pytest.param(
            "publish('q', 'x', subject => repeat('s', 65536))", "subject is longer", id="too long"
        ),
        pytest.param(
            "publish(repeat('k', 65536), 'x')", "routing_key is longer", id="key too long"
        ),
        pytest.param("publish_topic('', 'x')", "topic is empty", id="empty topic"),
        pytest.param("publish_topic('a/+', 'x')", "has a wildcard", id="plus"),
        pytest.param("publish_topic('a/#', 'x')", "has a wildcard", id="hash"),
        pytest.param("publish_topic('$SYS/x', 'x')", r"begins with \$", id="dollar"),
        pytest.param("publish_topic('a/%00', 'x')", "holds %00", id="escaped NUL"),
        pytest.param(
            "publish_topic(repeat('t', 65536), 'x')", "longer than 65535", id="long topic"
        ),
    ],
)
async def test_what_the_gateway_could_not_publish_is_refused_with_the_reason(
    db: asyncpg.Connection, call: str, message: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match=message):
        await db.execute(f"SELECT howdah.{call}")
    assert await db.fetchval("SELECT count(*) FROM howdah.outbox") == 0


async def test_an_infinite_time_is_refused(db: asyncpg.Connection) -> None:
    """Servers before 17 do not know such an interval, and say so themselves."""
    for name in ("expires_in", "delay"):
        with pytest.raises(asyncpg.PostgresError, match=rf"{name} is|invalid input syntax"):
            await db.execute(f"SELECT howdah.publish('q', 'x', {name} => 'infinity')")


async def test_a_declared_exchange_and_every_built_in_one_can_be_published_to(
    db: asyncpg.Connection,
) -> None:
    await db.execute(
        "INSERT INTO howdah.exchange (vhost, name, kind, auto_delete, internal) "
        "VALUES ('/', 'mine', 'direct', false, false)"
    )
    built_in = ("", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic")
    for name in ("mine", *built_in):
        row = await _published(db, "publish('k', 'x', exchange => $1)", name)
        assert row["exchange"] == name


async def test_a_topic_becomes_the_key_that_the_gateway_would_make_of_it(
    db: asyncpg.Connection,
) -> None:
    row = await _published(db, "publish_topic('plant/7/v1.2', '21', retain => true)")
    assert (row["exchange"], row["routing_key"], row["retain"]) == (
        "amq.topic",
        dotted("plant/7/v1.2"),
        True,
    )


_PIECES = (
    "a",
    ".",
    "/",
    "+",
    "#",
    "*",
    "%",
    "25",
    "2B",
    "23",
    "00",
    "2b",
    "$",
    "empty",
    "ü",
    "\\1",
)


async def test_sql_and_python_write_the_same_topic_for_the_same_key(
    db: asyncpg.Connection,
) -> None:
    chance = random.Random(7)
    keys = ["".join(chance.choices(_PIECES, k=chance.randrange(9))) for _ in range(20_000)]
    keys += ["", "$empty", "$$empty", "%2B", "%252B", "a%2523b", "100%", "%2500"]
    topics = await db.fetchval(
        "SELECT array_agg(howdah.slashed(k) ORDER BY n) "
        "FROM unnest($1::text[]) WITH ORDINALITY AS u(k, n)",
        keys,
    )
    assert topics == [slashed(key) for key in keys]
    back = await db.fetchval(
        "SELECT array_agg(howdah.dotted(t) ORDER BY n) "
        "FROM unnest($1::text[]) WITH ORDINALITY AS u(t, n)",
        topics,
    )
    assert back == keys


async def test_sql_and_python_find_the_same_key_for_any_topic(db: asyncpg.Connection) -> None:
    chance = random.Random(8)
    made = ("".join(chance.choices(_PIECES, k=chance.randrange(9))) for _ in range(20_000))
    topics = [topic for topic in made if "\0" not in dotted(topic)]  # no text holds a NUL
    keys = await db.fetchval(
        "SELECT array_agg(howdah.dotted(t) ORDER BY n) "
        "FROM unnest($1::text[]) WITH ORDINALITY AS u(t, n)",
        topics,
    )
    assert keys == [dotted(topic) for topic in topics]


async def test_a_queue_that_there_is_not_is_refused_unless_asked_otherwise(
    db: asyncpg.Connection,
) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match="no durable queue 'ordres'"):
        await db.execute("SELECT howdah.publish('ordres', 'x')")
    with pytest.raises(asyncpg.UndefinedObjectError, match="no durable queue 'ordres'"):
        await db.execute("SELECT howdah.publish_many('ordres', ARRAY['x'])")
    with pytest.raises(asyncpg.UndefinedObjectError, match="no virtual host 'nowhere'"):
        await db.execute("SELECT howdah.publish('orders', 'x', vhost => 'nowhere')")
    row = await _published(db, "publish('ordres', 'x', mandatory => false)")
    assert row["routing_key"] == "ordres"


async def test_a_queue_declared_in_the_same_transaction_may_be_published_to(
    db: asyncpg.Connection,
) -> None:
    async with db.transaction():
        await db.execute("SELECT howdah.declare_queue('new')")
        await db.execute("SELECT howdah.bind_topic('new', 'a/#')")
        await db.execute("SELECT howdah.publish('new', 'x')")
    kinds = await db.fetch("SELECT kind, requested_at FROM howdah.commands ORDER BY id")
    assert [row["kind"] for row in kinds] == ["declare_queue", "bind"]
    inserted_at = await db.fetchval("SELECT inserted_at FROM howdah.outbox")
    assert kinds[0]["requested_at"] < kinds[1]["requested_at"] < inserted_at


@pytest.mark.parametrize(
    ("array", "bodies", "content_type"),
    [
        ("ARRAY['a', 'b']", [b"a", b"b"], "text/plain; charset=utf-8"),
        ("ARRAY['[1]', '[2]']::jsonb[]", [b"[1]", b"[2]"], "application/json"),
        (r"ARRAY['\x00', '\xff']::bytea[]", [b"\x00", b"\xff"], None),
        ("'{}'::text[]", [], None),
    ],
)
async def test_many_are_published_at_once_and_in_their_order(
    db: asyncpg.Connection, array: str, bodies: list[bytes], content_type: str | None
) -> None:
    call = f"SELECT howdah.publish_many('q', {array}, headers => '{{\"n\": 1}}')"
    assert await db.fetchval(call) == len(bodies)
    rows = await db.fetch("SELECT * FROM howdah.outbox ORDER BY id")
    assert [row["body"] for row in rows] == bodies
    assert {row["content_type"] for row in rows} <= {content_type}
    assert {row["headers"] for row in rows} <= {'{"n": 1}'}


async def test_each_of_many_has_the_identifier_given_for_it(db: asyncpg.Connection) -> None:
    await db.execute(
        "SELECT howdah.publish_many('q', array_agg(to_jsonb(n) ORDER BY n), "
        "message_ids => array_agg('m-' || n ORDER BY n)) FROM generate_series(1, 5000) n"
    )
    rows = await db.fetch("SELECT message_id, body FROM howdah.outbox ORDER BY id")
    assert [row["message_id"] for row in rows] == [f"m-{n}" for n in range(1, 5001)]
    assert [int(row["body"]) for row in rows] == list(range(1, 5001))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("'q', ARRAY['a', NULL]", "must not be null"),
        ("'q', ARRAY['a'], message_ids => ARRAY['1', '2']", "1 bodies and 2 message_ids"),
        ("'q', ARRAY['a'], priority => 256", "from 0 to 255"),
        ("'k', ARRAY['a'], exchange => 'nowhere'", "no durable exchange"),
    ],
)
async def test_one_that_cannot_be_published_refuses_all_of_many(
    db: asyncpg.Connection, call: str, error: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match=error):
        await db.execute(f"SELECT howdah.publish_many({call})")
    assert not await db.fetchval("SELECT EXISTS (SELECT FROM howdah.outbox)")


async def test_who_asked_for_what_is_told_and_what_came_of_it(db: asyncpg.Connection) -> None:
    await db.execute("SELECT howdah.purge('orders')")
    row = await db.fetchrow("SELECT * FROM howdah.commands WHERE kind = 'purge'")
    assert row is not None
    assert (row["queue"], row["state"], row["argument"]) == ("orders", "waiting", "{}")
    assert row["requested_by"] == await db.fetchval("SELECT session_user")
    assert row["requested_at"] is not None
