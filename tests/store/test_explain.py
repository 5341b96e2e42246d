"""Views and functions read ranges of the primary key, never a whole partition.

Counted by PostgreSQL itself: scans and rows of the transaction that asked, functions included.
"""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import pytest

from tests.support.postgres import on_stock_too
from tests.support.seed import append, make_queue, make_segment, settle

pytestmark = on_stock_too

SEGMENTS = 6
PER_SEGMENT = 1000
MESSAGES = SEGMENTS * PER_SEGMENT

_READ = """
SELECT coalesce(sum(seq_scan), 0)::int, coalesce(sum(idx_tup_fetch), 0)::int
FROM pg_stat_xact_user_tables
WHERE schemaname = 'howdah' AND relname ~ ('^' || $1 || '_[0-9]+$')
"""
# A flush for each message, a full row every hundred: the newest is 4900.
_LONG_JOURNAL = """
INSERT INTO howdah.settlement (generation, seq, queue_id, group_name, floor, acked, is_full)
SELECT 1, n, $1, '', 0, int8multirange(int8range(n, n + 1)), n % 100 = 0
FROM generate_series(1, 4990) n
"""


@dataclass(frozen=True, slots=True)
class Reads:
    """The scans and rows that one statement took from the partitions of a table."""

    whole_partitions: int
    rows: int


@pytest.fixture(params=["never analyzed", "analyzed"])
async def deep(db: asyncpg.Connection, request: pytest.FixtureRequest) -> asyncpg.Connection:
    """Queues `a`, `b` and the stream `s`, thousands deep, over several segments."""
    queues = [await make_queue(db, name) for name in ("a", "b")]
    stream = await make_queue(db, "s", "stream")
    for number in range(SEGMENTS):
        segment = await make_segment(db)
        for queue in (*queues, stream):
            start = number * PER_SEGMENT
            await append(db, segment, queue, range(start, start + PER_SEGMENT))
    await db.execute(_LONG_JOURNAL, queues[0])
    await settle(db, queues[1], 1, 0, f"{{[1,{MESSAGES - 10})}}", is_full=True)
    for group in range(5):
        await settle(db, stream, 1, 100 * group, group=f"g{group}", is_full=True)
    if request.param == "analyzed":
        await db.execute("ANALYZE")
    return db


async def _reads(db: asyncpg.Connection, query: str, table: str = "message") -> Reads:
    async with db.transaction():
        before = await db.fetchrow(_READ, table)  # earlier transactions may be in it still
        await db.fetch(query)
        after = await db.fetchrow(_READ, table)
    assert before is not None
    assert after is not None
    return Reads(after[0] - before[0], after[1] - before[1])


async def test_peek_reads_no_more_rows_than_it_shows(deep: asyncpg.Connection) -> None:
    reads = await _reads(deep, "SELECT * FROM howdah.peek('a', 5)")
    assert reads.whole_partitions == 0
    assert reads.rows <= 5 + SEGMENTS


async def test_peek_goes_over_what_is_settled_without_reading_it(deep: asyncpg.Connection) -> None:
    """Offset 0 is unsettled, and then nothing until the last ten."""
    reads = await _reads(deep, "SELECT * FROM howdah.peek('b', 11)")
    assert reads.whole_partitions == 0
    assert reads.rows <= 11 + SEGMENTS


async def test_peek_into_the_middle_starts_in_the_middle(deep: asyncpg.Connection) -> None:
    reads = await _reads(deep, f"SELECT * FROM howdah.peek('s', 3, {MESSAGES // 2})")
    assert reads.whole_partitions == 0
    assert reads.rows <= 3 + SEGMENTS


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("SELECT * FROM howdah.queue_status WHERE queue = 'a'", 1),
        ("SELECT * FROM howdah.queue_status", 7),
        ("SELECT * FROM howdah.consumer_lag WHERE queue = 'a'", 1),
        ("SELECT * FROM howdah.consumer_lag", 7),
    ],
)
async def test_the_status_of_queues_counts_no_rows(
    deep: asyncpg.Connection, query: str, groups: int
) -> None:
    reads = await _reads(deep, query)
    assert reads.whole_partitions == 0
    # Both ends and the oldest unsettled, in each segment, and the sample that the size is from.
    assert reads.rows <= groups * (10 * SEGMENTS + 16)


async def test_ready_messages_reads_the_unsettled_ones_of_that_queue_alone(
    deep: asyncpg.Connection,
) -> None:
    reads = await _reads(deep, "SELECT * FROM howdah.ready_messages WHERE queue = 'b'")
    assert reads.whole_partitions == 0
    assert reads.rows <= 11 + 2 * SEGMENTS


async def test_the_state_of_a_group_is_read_from_its_newest_full_row_on(
    deep: asyncpg.Connection,
) -> None:
    reads = await _reads(
        deep, "SELECT * FROM howdah.settlement_state WHERE queue = 'a'", "settlement"
    )
    assert reads.whole_partitions == 0
    # Once to find the newest full row, and once to add up what came after it.
    assert reads.rows <= 2 * 91


async def test_the_gateway_finds_open_commands_without_reading_the_finished_ones(
    db: asyncpg.Connection,
) -> None:
    await db.execute(
        "INSERT INTO howdah.command (kind, vhost, queue, requested_by, done_at) "
        "SELECT 'purge', '/', 'q', 'me', CASE WHEN n % 1000 <> 0 THEN now() END "
        "FROM generate_series(1, 5000) n"
    )
    await db.execute("ANALYZE howdah.command")
    plan = await db.fetch("EXPLAIN SELECT * FROM howdah.command WHERE done_at IS NULL ORDER BY id")
    text = "\n".join(row[0] for row in plan)
    assert "command_open_idx" in text
    assert "Sort" not in text
