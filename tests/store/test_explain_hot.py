"""The plans of the hot reads: by index, in the index's order, whatever the table's size."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from queue_core.store.queue_store import HEADS
from queue_core.store.read.reader import (
    offsets_statement,
    range_statement,
    time_statement,
)
from queue_core.store.read.recovery import spans_statement
from tests.support import seed

ROWS = 20_000
QUEUES = 5


@pytest.fixture
async def filled(db: asyncpg.Connection) -> tuple[int, int]:
    """A segment with many messages of several queues; its number and one queue's."""
    queues = [await seed.make_queue(db, f"q{i}") for i in range(QUEUES)]
    segment = await seed.make_segment(db)
    for queue_id in queues:
        await seed.append(db, segment, queue_id, range(ROWS // QUEUES))
    await db.execute(f"ANALYZE howdah.message_{segment}")
    return segment, queues[2]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


async def explain(
    db: asyncpg.Connection, statement: str, *arguments: object
) -> list[dict[str, Any]]:
    text = await db.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    return nodes(json.loads(text)[0]["Plan"])


def kinds(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in plan}


def check_by_index(plan: list[dict[str, Any]]) -> None:
    assert not kinds(plan) & {
        "Seq Scan",
        "Sort",
        "Incremental Sort",
        "Hash Join",
        "Bitmap Heap Scan",
    }
    assert kinds(plan) & {"Index Scan", "Index Only Scan"}


def rows_touched(plan: list[dict[str, Any]]) -> float:
    return max(
        float(node["Actual Rows"]) + float(node.get("Rows Removed by Filter", 0)) for node in plan
    )


async def test_a_chunk_is_read_back_along_the_index(
    db: asyncpg.Connection, filled: tuple[int, int]
) -> None:
    segment, queue_id = filled
    plan = await explain(db, range_statement(segment), queue_id, 1000, 4000, 500, 1_000_000)
    assert not kinds(plan) & {"Sort", "Incremental Sort", "Hash Join"}
    assert kinds(plan) & {"Index Scan", "Index Only Scan"}
    assert rows_touched(plan) == 500


async def test_single_offsets_are_found_by_index(
    db: asyncpg.Connection, filled: tuple[int, int]
) -> None:
    segment, queue_id = filled
    plan = await explain(db, offsets_statement(segment), queue_id, [5, 70, 1999], 1_000_000)
    assert "Seq Scan" not in kinds(plan)
    assert rows_touched(plan) == 3


async def test_a_time_is_found_along_the_index(
    db: asyncpg.Connection, filled: tuple[int, int]
) -> None:
    segment, queue_id = filled
    newest = await db.fetchval(f"SELECT max(enqueued_at) FROM howdah.message_{segment}")
    plan = await explain(db, time_statement(segment), queue_id, 0, newest)
    assert not kinds(plan) & {"Seq Scan", "Sort"}


async def test_a_start_walks_from_queue_to_queue(
    db: asyncpg.Connection, filled: tuple[int, int]
) -> None:
    segment, _ = filled
    plan = await explain(db, spans_statement(segment))
    assert not kinds(plan) & {"Seq Scan", "Sort"}
    assert rows_touched(plan) <= QUEUES + 1
    rows = await db.fetch(spans_statement(segment))
    assert [(row["first"], row["last"]) for row in rows] == [(0, ROWS // QUEUES - 1)] * QUEUES


async def test_the_heads_of_queues_are_probed_one_by_one(
    db: asyncpg.Connection, filled: tuple[int, int]
) -> None:
    _, queue_id = filled
    plan = await explain(db, HEADS, [queue_id, queue_id + 1], [7, 9])
    assert not kinds(plan) & {"Seq Scan", "Sort", "Hash Join"}
    assert rows_touched(plan) <= 2
