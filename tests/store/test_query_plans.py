"""Queries that the guide gives to DBAs are planned cheaply on a server of their own.

PostgreSQL compiles a plan (JIT) whose estimated cost is above `jit_above_cost`. A plan over
hundreds of segments has thousands of nodes: compiling one took 22 s where running it takes 0.3 s. A
server without the compiler estimates the same costs, so these tests can fail on any.
"""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from tests.support.managers import House
from tests.support.postgres import on_stock_too
from tests.support.seed import make_queue, make_segment, settle

pytestmark = on_stock_too

SEGMENTS = 40
QUEUES = 60
PER_SEGMENT = 5

_FILL = """
INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, durable, exchange,
                            routing_key, body)
SELECT $1, q, o, now(), true, '', 'key', 'x'
FROM unnest($2::int8[]) q, generate_series($3::int, $4) o
"""
_VIEWS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind = 'v' ORDER BY c.relname
"""
# Functions that read the log or the journal, themselves or through a view.
_READING = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'howdah'::regnamespace
  AND p.prosrc ~ ('FROM howdah\\.(message|message_body|settlement|redelivery|settlement_state|'
                  'consumer_lag|queue_status|ready_messages|dead_letters)\\M')
"""
_COMPILED = f"{_READING} AND NOT coalesce(p.proconfig @> ARRAY['jit=off'], false)"
FROM_THE_GUIDE = [
    "SELECT * FROM howdah.queue_status WHERE oldest_age > interval '1 hour' OR consumers = 0",
    "SELECT routing_key, count(*) FROM howdah.ready_messages WHERE queue = 'q7' GROUP BY 1",
    "SELECT died_in, reason, count(*) FROM howdah.dead_letters WHERE queue = 'q7' GROUP BY 1, 2",
    "SELECT queue, group_name, floor, acked FROM howdah.settlement_state WHERE queue = 'q7'",
    "SELECT * FROM howdah.peek('q7')",
]


@pytest.fixture
async def wide(db: asyncpg.Connection) -> asyncpg.Connection:
    """Many queues with messages in each of many segments."""
    queues = [
        await make_queue(db, f"q{n}", "classic" if n % 10 else "stream") for n in range(QUEUES)
    ]
    for number in range(SEGMENTS):
        segment, start = await make_segment(db), number * PER_SEGMENT
        await db.execute(_FILL, segment, queues, start, start + PER_SEGMENT - 1)
    for queue in queues[1::10]:
        await settle(db, queue, 1, 3, "{[5,9)}", is_full=True)
    for queue in queues[::10]:
        await settle(db, queue, 1, 3, group="g", is_full=True)
    await db.execute("ANALYZE")
    return db


async def _plan(db: asyncpg.Connection, query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await db.fetchval(f"EXPLAIN (FORMAT JSON) {query}"))[0]
    return found


async def test_no_view_or_query_of_the_guide_costs_so_much_that_it_is_compiled(
    wide: asyncpg.Connection,
) -> None:
    limit = float(await wide.fetchval("SELECT current_setting('jit_above_cost')"))
    views = [f"SELECT * FROM howdah.{row[0]}" for row in await wide.fetch(_VIEWS)]
    plans = {query: await _plan(wide, query) for query in views + FROM_THE_GUIDE}
    assert len(views) >= 6
    # A tenth, so that it stays true for ten times as many queues.
    costly = {query: plan["Plan"]["Total Cost"] for query, plan in plans.items()}
    assert {query: cost for query, cost in costly.items() if cost > limit / 10} == {}
    assert [query for query, plan in plans.items() if "JIT" in plan] == []


async def test_functions_that_read_the_log_never_have_their_plans_compiled(
    db: asyncpg.Connection,
) -> None:
    """Whatever the caller's settings are, and however many segments there are."""
    assert len(await db.fetch(_READING)) >= 10
    assert [row[0] for row in await db.fetch(_COMPILED)] == []


async def test_the_first_messages_of_a_long_queue_are_shown_without_reading_all_of_it(
    wide: asyncpg.Connection,
) -> None:
    await wide.execute("UPDATE howdah.queue SET name = 'deep' WHERE name = 'q7'")
    queue = await wide.fetchval("SELECT id FROM howdah.queue WHERE name = 'deep'")
    end = SEGMENTS * PER_SEGMENT
    await wide.execute(_FILL, SEGMENTS, [queue], end, end + 20_000)
    count = (
        "SELECT coalesce(sum(idx_tup_fetch), 0)::int FROM pg_stat_xact_user_tables "
        "WHERE schemaname = 'howdah' AND relname ~ '^message_[0-9]+$'"
    )
    async with wide.transaction():
        before = await wide.fetchval(count)
        rows = await wide.fetch("SELECT * FROM howdah.ready_messages WHERE queue = 'deep' LIMIT 5")
        assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
        assert await wide.fetchval(count) - before < 2000


async def test_no_connection_of_a_gateway_has_its_plans_compiled(house: House) -> None:
    """Connections of a pool stay so when another task gets them."""
    database = house.manager._database
    for _ in range(2):
        async with database.pool.acquire() as connection:
            assert await connection.fetchval("SHOW jit") == "off"
    async with database.engine.connect() as cold:
        assert (await cold.exec_driver_sql("SHOW jit")).scalar() == "off"
    assert house.manager.writer._connection is not None
    assert await house.manager.writer._connection.fetchval("SHOW jit") == "off"
