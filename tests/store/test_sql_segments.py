"""Segments and generations come and go while others read and write."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.store.schema import JOURNAL_TABLES, LOG_TABLES
from tests.support.seed import append, make_queue, make_segment, settle

_LEAVES = """
SELECT i.inhrelid::regclass::text FROM pg_inherits i WHERE i.inhparent = $1::text::regclass
ORDER BY i.inhrelid
"""
_LOCKS = """
SELECT DISTINCT l.mode FROM pg_locks l
WHERE l.pid = pg_backend_pid() AND l.relation = $1::text::regclass
"""


async def _leaves(db: asyncpg.Connection, parent: str) -> list[str]:
    rows = await db.fetch(_LEAVES, f"howdah.{parent}")
    return [row[0].removeprefix("howdah.") for row in rows]


async def test_a_new_segment_takes_messages_and_bodies(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "orders"), await make_segment(db)
    await append(db, segment, queue, range(2))
    await db.execute("INSERT INTO howdah.message_body VALUES ($1, 7, 'large')", segment)
    assert await _leaves(db, "message") == [f"message_{segment}"]
    assert await _leaves(db, "message_body") == [f"message_body_{segment}"]
    row = await db.fetchrow("SELECT queue_id, sealed_at, messages FROM howdah.segment")
    assert row is not None
    assert tuple(row) == (None, None, 0)


async def test_opening_a_segment_makes_neither_readers_nor_writers_wait(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    queue, segment = await make_queue(db, "orders"), await make_segment(db)
    await append(db, segment, queue, range(3))
    await other.execute("SET lock_timeout = '500ms'")
    async with db.transaction():
        await make_segment(db)
        for parent in LOG_TABLES:
            modes = {row[0] for row in await db.fetch(_LOCKS, f"howdah.{parent}")}
            assert modes <= {"AccessShareLock", "ShareUpdateExclusiveLock"}
        assert await other.fetchval("SELECT count(*) FROM howdah.message") == 3
        await append(other, segment, queue, [3])


async def test_a_segment_opens_while_a_long_reader_and_a_writer_are_in_their_transactions(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    queue, segment = await make_queue(db, "orders"), await make_segment(db)
    async with other.transaction():
        await append(other, segment, queue, [0])
        await other.fetch("SELECT * FROM howdah.message")
        await db.execute("SET lock_timeout = '500ms'")
        assert await make_segment(db) == segment + 1


async def test_rows_of_the_log_are_stored_as_they_are_and_never_vacuumed_for_inserts(
    db: asyncpg.Connection,
) -> None:
    segment = await make_segment(db)
    for leaf in (f"message_{segment}", f"message_body_{segment}", "settlement_1"):
        options = await db.fetchval(
            "SELECT reloptions FROM pg_class WHERE oid = $1::text::regclass", f"howdah.{leaf}"
        )
        assert "autovacuum_vacuum_insert_threshold=-1" in options
    for leaf in (f"message_{segment}", f"message_body_{segment}"):
        storage = await db.fetchval(
            "SELECT attstorage FROM pg_attribute "
            "WHERE attrelid = $1::text::regclass AND attname = 'body'",
            f"howdah.{leaf}",
        )
        assert storage == b"e"


async def test_a_leaf_has_no_check_that_every_row_would_pay_for(db: asyncpg.Connection) -> None:
    await make_segment(db)
    assert (
        await db.fetchval(
            "SELECT count(*) FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid "
            "WHERE x.contype = 'c' AND c.relispartition"
        )
        == 0
    )


async def test_partitions_are_granted_to_those_alone_who_write_to_their_parents(
    db: asyncpg.Connection,
) -> None:
    """Whoever reads, reads through the parent, where policies are asked."""
    await db.execute("GRANT SELECT ON howdah.message TO pg_monitor")
    segment = await make_segment(db)
    granted = "SELECT has_table_privilege($1, $2, $3)"
    leaf = f"howdah.message_{segment}"
    assert not await db.fetchval(granted, "pg_monitor", leaf, "SELECT")
    assert await db.fetchval(granted, "howdah_gateway", leaf, "INSERT")
    assert not await db.fetchval(granted, "howdah_gateway", leaf, "DELETE")
    assert not await db.fetchval(granted, "howdah_reader", leaf, "SELECT")
    assert not await db.fetchval(granted, "howdah_publisher", leaf, "SELECT")


async def test_a_stream_has_segments_of_its_own_and_a_classic_queue_has_none(
    db: asyncpg.Connection,
) -> None:
    stream, classic = await make_queue(db, "s", "stream"), await make_queue(db, "c")
    segment = await make_segment(db, stream)
    assert await db.fetchval("SELECT queue_id FROM howdah.segment WHERE id = $1", segment) == stream
    with pytest.raises(asyncpg.UndefinedObjectError, match="no stream with queue id"):
        await make_segment(db, classic)


async def test_sealing_notes_what_is_in_a_segment(db: asyncpg.Connection) -> None:
    segment = await make_segment(db)
    await db.execute("SELECT howdah.seal_segment($1, 10, 2000, now())", segment)
    row = await db.fetchrow("SELECT messages, bytes, sealed_at IS NOT NULL FROM howdah.segment")
    assert row is not None
    assert tuple(row) == (10, 2000, True)
    with pytest.raises(asyncpg.UndefinedObjectError, match="there is no segment 99"):
        await db.execute("SELECT howdah.seal_segment(99, 1, 1, now())")


@pytest.mark.parametrize("call", ["retire_segment($1)", "mark_archived($1, 's3://lake/1')"])
async def test_only_a_sealed_segment_is_retired_or_archived(
    db: asyncpg.Connection, call: str
) -> None:
    segment = await make_segment(db)
    with pytest.raises(asyncpg.UndefinedObjectError, match="no sealed segment"):
        await db.execute(f"SELECT howdah.{call}", segment)
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    await db.execute(f"SELECT howdah.{call}", segment)
    row = await db.fetchrow("SELECT retired_at, archive FROM howdah.segment")
    assert row is not None
    assert [value is not None for value in row].count(True) == 1


async def test_dropping_a_segment_takes_both_partitions_and_its_row(
    db: asyncpg.Connection,
) -> None:
    queue, first, second = (
        await make_queue(db, "orders"),
        await make_segment(db),
        await make_segment(db),
    )
    await append(db, first, queue, [0])
    await append(db, second, queue, [1])
    await db.execute("SELECT howdah.drop_segment($1)", first)
    assert await _leaves(db, "message") == [f"message_{second}"]
    assert await _leaves(db, "message_body") == [f"message_body_{second}"]
    assert [row[0] for row in await db.fetch("SELECT id FROM howdah.segment")] == [second]
    await db.execute("SELECT howdah.drop_segment($1)", first)  # again: nothing to do, no error


async def test_a_drop_that_cannot_have_its_lock_gives_up_whole(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    segment = await make_segment(db)
    async with other.transaction():
        await other.fetch("SELECT * FROM howdah.message_body")
        await db.execute("SET lock_timeout = '50ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await db.execute("SELECT howdah.drop_segment($1)", segment)
    assert await _leaves(db, "message") == [f"message_{segment}"]
    await db.execute("SELECT howdah.drop_segment($1)", segment)
    assert await _leaves(db, "message") == []


async def test_a_locked_segment_is_held_with_all_that_its_drop_needs(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    segment, open_one = await make_segment(db), await make_segment(db)
    await other.execute("SET lock_timeout = '500ms'")
    async with db.transaction():
        await db.execute("SELECT howdah.lock_segment($1, 1)", segment)
        for table in ("message", "message_body", f"message_{segment}", f"message_body_{segment}"):
            modes = {row[0] for row in await db.fetch(_LOCKS, f"howdah.{table}")}
            assert "AccessExclusiveLock" in modes
        await other.fetch(f"SELECT FROM howdah.message_{open_one}")
        await db.execute("SELECT howdah.drop_segment($1)", segment)


async def test_the_journal_moves_from_one_generation_to_the_next(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "orders")
    await settle(db, queue, 1, 10, is_full=True)
    assert await db.fetchval("SELECT howdah.open_generation(1)") == 2
    await settle(db, queue, 2, 12, is_full=True, generation=2)
    await db.execute("UPDATE howdah.shard SET generation = 2")
    await db.execute("SELECT howdah.drop_generation(1)")
    for journal in JOURNAL_TABLES:
        assert await _leaves(db, journal) == [f"{journal}_2"]
    assert await db.fetchval("SELECT floor FROM howdah.settlement_state") == 12


async def test_a_generation_that_lacks_a_partition_gets_it_again(db: asyncpg.Connection) -> None:
    assert await db.fetchval("SELECT howdah.open_generation(1)") == 2
    await db.execute("DROP TABLE howdah.packet_2")
    await db.execute("SELECT howdah.attach_generation(2)")
    assert await _leaves(db, "packet") == ["packet_1", "packet_2"]


@pytest.mark.parametrize("generation", [1, 2])
async def test_the_generation_in_use_and_those_after_it_are_not_dropped(
    db: asyncpg.Connection, generation: int
) -> None:
    with pytest.raises(asyncpg.ObjectInUseError, match="is in use"):
        await db.execute("SELECT howdah.drop_generation($1)", generation)
