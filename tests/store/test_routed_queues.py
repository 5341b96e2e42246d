"""routed_queues() finds in the tables what the router finds in memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import asyncpg
import msgspec
import pytest

from queue_core.message.message import CANONICAL, Message, Properties
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.router import Router
from tests.support.managers import House

WORDS = ["a", "b", "*", "#", ""]
KEY_WORDS = ["a", "b", "c", ""]


async def _found(db: asyncpg.Connection, exchange: str, key: str, headers: Any = None) -> set[str]:
    rows = await db.fetch(
        "SELECT queue FROM howdah.routed_queues($1, $2, headers => $3::text::jsonb)",
        exchange,
        key,
        msgspec.json.encode(headers or {}).decode(),
    )
    return {row["queue"] for row in rows}


def _routed(
    house: House, exchange: str, key: str, headers: dict[str, Any] | None = None
) -> set[str]:
    properties = Properties(headers=tuple((headers or {}).items()))
    message = Message(
        b"", exchange, routing_key=key, form=CANONICAL, native=CANONICAL.encode(properties)
    )
    route = house.vhost.router.route(exchange, key, message.properties.header_map)
    return {match.queue.name for match in route}


async def test_patterns_match_as_in_memory(db: asyncpg.Connection) -> None:
    """All patterns of up to three words, with all keys of up to three."""
    patterns = {".".join(words) for n in (1, 2, 3) for words in product(WORDS, repeat=n)}
    keys = sorted({".".join(words) for n in (1, 2, 3) for words in product(KEY_WORDS, repeat=n)})
    router: Router[str] = Router()
    router.declare_exchange(ExchangeSpec.parse("t", "topic"))
    for pattern in patterns:
        router.bind("t", pattern, pattern)
    rows = await db.fetch(
        "SELECT k.key, p.pattern FROM unnest($1::text[]) AS k (key) "
        "CROSS JOIN unnest($2::text[]) AS p (pattern) WHERE howdah.key_matches(k.key, p.pattern)",
        keys,
        sorted(patterns),
    )
    expected = {(key, match.queue) for key in keys for match in router.route("t", key)}
    assert {(row["key"], row["pattern"]) for row in rows} == expected


async def test_routes_lead_through_exchanges_and_to_the_alternate_one(
    house: House, db: asyncpg.Connection
) -> None:
    vhost = house.vhost
    for name in ("q1", "q2", "q3", "rest"):
        await house.queue(name)
    await vhost.declare_exchange(ExchangeSpec.parse("fan", "fanout"))
    await vhost.declare_exchange(ExchangeSpec.parse("spare", "fanout"))
    alternate = {"alternate-exchange": "spare"}
    await vhost.declare_exchange(ExchangeSpec.parse("direct", "direct", alternate))
    await vhost.bind("direct", vhost.queue("q1"), "one")
    await vhost.bind("direct", ExchangeRef("fan"), "many")
    await vhost.bind("fan", vhost.queue("q2"))
    await vhost.bind("fan", vhost.queue("q3"))
    await vhost.bind("fan", ExchangeRef("direct"))
    await vhost.bind("spare", vhost.queue("rest"))
    for exchange, key in product(("direct", "fan", ""), ("one", "many", "other", "q1")):
        assert await _found(db, exchange, key) == _routed(house, exchange, key), (exchange, key)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-match": "all", "a": 1, "b": "x"},
        {"x-match": "any", "a": 1, "b": "x"},
        {"a": None},
        {"x-match": "any"},
        {"x-match": "all-with-x", "x-a": True},
        {"x-a": True, "b": "x"},
        {"a": 1.5},
    ],
)
async def test_headers_match_as_in_memory(
    house: House, db: asyncpg.Connection, arguments: dict[str, Any]
) -> None:
    await house.queue("q")
    await house.vhost.bind("amq.headers", house.vhost.queue("q"), "", arguments)
    for headers in (
        {},
        {"a": 1},
        {"a": 1, "b": "x"},
        {"a": "1", "b": "x"},
        {"x-a": True},
        {"b": "x"},
        {"a": 1.5},
        {"a": True},
    ):
        found = await _found(db, "amq.headers", "", headers)
        assert found == _routed(house, "amq.headers", "", headers), headers


async def test_topics_of_the_system_are_hidden_from_wildcards(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    for key in ("#", "*.load"):
        await house.vhost.bind("amq.topic", house.vhost.queue("q"), key)
    for key in ("$SYS.load", "a.load", "a"):
        assert await _found(db, "amq.topic", key) == _routed(house, "amq.topic", key), key


async def test_a_choosing_exchange_names_all_that_it_chooses_among(
    house: House, db: asyncpg.Connection
) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("chance", "x-random"))
    for name in ("q1", "q2"):
        await house.queue(name)
        await house.vhost.bind("chance", house.vhost.queue(name))
    rows = await db.fetch("SELECT * FROM howdah.routed_queues('chance', '')")
    assert {(row["queue"], row["is_one_of_several"]) for row in rows} == {
        ("q1", True),
        ("q2", True),
    }


async def test_an_exchange_that_is_not_there_is_an_error(db: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match="no durable exchange 'nowhere'"):
        await db.fetch("SELECT * FROM howdah.routed_queues('nowhere', '')")
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await db.fetch("SELECT * FROM howdah.routed_queues('amq.topic', '', headers => '[]')")
