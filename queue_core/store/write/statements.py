"""The hot statements. Each is one index range scan or a bulk insert; a test EXPLAINs the scans."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from queue_core.message.message import utc
from queue_core.store.write.bulk_copy import copy_rows, is_for_copy
from queue_core.store.write.fence import Passage, condition, fenced
from queue_core.store.write.rows import BODY, COLUMN_TYPES, NARROW, RICH, clean
from queue_core.store.write.segments import Segment

if TYPE_CHECKING:
    from queue_core.store.write.batch import Batch

INSERT_ROWS: Final = 4096  # of one statement; the largest have 64 KiB (what consumers add)
END_OF_TIME: Final = 253_402_300_799.0  # what waits for ever waits until the last second of 9999
OFFSET: Final = NARROW.index("offset")

CREATE_SEGMENT: Final = "SELECT howdah.create_segment($1, $2)"
SEAL_SEGMENT: Final = "SELECT howdah.seal_segment($1, $2, $3, $4)"
LOCK_SEGMENT: Final = "SELECT howdah.lock_segment($1, $2)"
RETIRE_SEGMENT: Final = "SELECT howdah.retire_segment($1)"
RELEASE_SEGMENT: Final = "SELECT howdah.release_segment($1, $2)"
OPEN_GENERATION: Final = "SELECT howdah.open_generation($1)"
DROP_GENERATION: Final = "SELECT howdah.drop_generation($1)"
UNUSED_GENERATIONS: Final = "SELECT howdah.unused_generations()"
NEWEST_GENERATION: Final = "SELECT max(number) FROM howdah.journal_generation WHERE node_id = $1"
SET_GENERATION: Final = "UPDATE howdah.shard SET generation = $1 WHERE node_id = $2"

SETTLEMENT_ARGUMENTS: Final = 8
INSERT_SETTLEMENTS: Final = """
    INSERT INTO howdah.settlement
        (generation, seq, queue_id, group_name, floor, acked, is_full, handed_out)
    SELECT $1, s, q, g, f, a::int8multirange, i, h
    FROM unnest($2::int8[], $3::int8[], $4::text[], $5::int8[], $6::text[], $7::bool[], $8::int8[])
        AS t (s, q, g, f, a, i, h)
"""
INSERT_REDELIVERIES: Final = """
    INSERT INTO howdah.redelivery
        (generation, queue_id, "offset", count, not_before, reason, amended, amendment)
    SELECT $1, q, o, c, n, r, a, b
    FROM unnest($2::int8[], $3::int8[], $4::int4[], $5::timestamptz[], $6::text[], $7::int4[],
                $8::bytea[])
        AS t (q, o, c, n, r, a, b)
    ON CONFLICT DO NOTHING
"""
INSERT_DUPLICATES: Final = """
    INSERT INTO howdah.deduplication (generation, queue_id, message_id, seen_at)
    SELECT $1, q, m, s FROM unnest($2::int8[], $3::text[], $4::timestamptz[]) AS t (q, m, s)
    ON CONFLICT DO NOTHING
"""
INSERT_PACKETS: Final = """
    INSERT INTO howdah.packet
        (generation, seq, session_id, direction, packet_id, state, queue_id, "offset")
    SELECT $1, s, i, d, p, t, q, o
    FROM unnest($2::int8[], $3::int8[], $4::int2[], $5::int4[], $6::int2[], $7::int8[], $8::int8[])
        AS r (s, i, d, p, t, q, o)
"""
INSERT_BODIES: Final = """
    INSERT INTO howdah.message_body (segment_id, id, body)
    SELECT s, i, b FROM unnest($1::int4[], $2::int8[], $3::bytea[]) AS t (s, i, b)
"""
DELETE_OUTBOX: Final = "DELETE FROM howdah.outbox WHERE id = ANY($1::int8[])"
# The names as JSON: an array of arrays would have to be a rectangle.
UPDATE_OUTBOX: Final = """
    UPDATE howdah.outbox o SET waiting_for = ARRAY(SELECT jsonb_array_elements_text(t.w::jsonb))
    FROM unnest($1::int8[], $2::text[]) AS t (i, w) WHERE o.id = t.i
"""
DELETE_WILLS: Final = """
    DELETE FROM howdah.will w USING unnest($1::text[], $2::text[]) AS t (v, c)
    WHERE w.vhost = v AND w.client_id = c
"""
DELETE_RETAINED: Final = "DELETE FROM howdah.retained WHERE vhost = $1 AND topic = $2"


FENCED_SETTLEMENTS: Final = f"{INSERT_SETTLEMENTS} WHERE {condition(1 + SETTLEMENT_ARGUMENTS)}"


@lru_cache(maxsize=256)
def _insert_messages(table: str, columns: tuple[str, ...], first: int, is_fenced: bool) -> str:
    """Makes the INSERT of messages from one array a column, with the fence's check where it is
    asked for. Arguments before number `first` belong to another part of the statement."""
    names = ", ".join(f'"{name}"' for name in columns)
    arrays = ", ".join(
        f"${i}::{COLUMN_TYPES.get(name, 'text')}[]" for i, name in enumerate(columns, first)
    )
    where = f"WHERE {condition(first + len(columns))}" if is_fenced else ""
    return f"INSERT INTO howdah.{table} ({names}) SELECT * FROM unnest({arrays}) {where}"


@lru_cache(maxsize=256)
def _insert_run(table: str, rich: bool, first: int, is_fenced: bool) -> str:
    """Makes the INSERT of a run from an array of bodies and one value for each other column, with
    the fence's check at the end where it is asked for."""
    columns = (*NARROW[:BODY], *RICH) if rich else NARROW[:BODY]
    names = ", ".join(f'"{name}"' for name in (*columns, "body"))
    values = [f"${i}::{COLUMN_TYPES.get(name, 'text')}" for i, name in enumerate(columns, first)]
    values[OFFSET] += " + r.i - 1"
    where = f"WHERE {condition(first + len(columns) + 1)}" if is_fenced else ""
    return (
        f"INSERT INTO howdah.{table} ({names}) SELECT {', '.join(values)}, r.b "
        f"FROM unnest(${first + len(columns)}::bytea[]) WITH ORDINALITY AS r (b, i) {where}"
    )


def redelivery_row(
    queue_id: int,
    offset: int,
    count: int,
    not_before: float | None,
    reason: str,
    amendment: tuple[int, bytes | None] | None = None,
) -> tuple[object, ...]:
    amended, data = amendment or (0, None)
    if not_before is not None:
        not_before = min(not_before, END_OF_TIME)
    return (queue_id, offset, count, utc(not_before), clean(reason), amended, data)


async def seal(
    connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy, segment: Segment
) -> None:
    await connection.execute(
        SEAL_SEGMENT,
        segment.id,
        segment.messages,
        segment.bytes,
        utc(segment.newest_at) if segment.newest_at else None,
    )


async def write(connection: asyncpg.Connection, batch: Batch, passage: Passage) -> None:
    """Writes a batch in one transaction behind the fence. Messages and settlements, which most
    batches are made of, are one statement, which is a transaction by itself: one round trip. Each
    one more costs twice the time that a busy machine takes to let a process run; as BEGIN, COPY,
    INSERT and COMMIT a batch of 500 waited 16 ms there for 4 ms of work."""
    has_more = (
        batch.redeliveries
        or batch.duplicates
        or batch.packets
        or batch.retained
        or batch.outbox
        or batch.wills
        or batch.bodies
    )
    if not has_more and not is_for_copy(batch.rows):
        await _write_at_once(connection, batch, passage)
        passage.committed()
    else:
        async with fenced(connection, passage):
            await _write_all(connection, batch)


async def _write_at_once(connection: asyncpg.Connection, batch: Batch, passage: Passage) -> None:
    settled = columns_of(batch.settlements) if batch.settlements else []
    if not batch.message_count:
        generation = batch.generation
        await connection.execute(FENCED_SETTLEMENTS, generation, *settled, *passage.arguments)
    elif not settled:
        statement, arguments = _messages(batch, 1, is_fenced=True)
        await connection.execute(statement, *arguments, *passage.arguments)
    else:
        statement, arguments = _messages(batch, 1 + SETTLEMENT_ARGUMENTS, is_fenced=True)
        statement = f"WITH settled AS ({INSERT_SETTLEMENTS}) {statement}"
        await connection.execute(
            statement, batch.generation, *settled, *arguments, *passage.arguments
        )


async def _write_outbox(
    connection: asyncpg.Connection, rows: list[tuple[int, tuple[str, ...]]]
) -> None:
    done = [outbox_id for outbox_id, waiting_for in rows if not waiting_for]
    if done:
        await connection.execute(DELETE_OUTBOX, done)
    left = [(outbox_id, json.dumps(waiting_for)) for outbox_id, waiting_for in rows if waiting_for]
    if left:
        await insert(connection, UPDATE_OUTBOX, left)


async def _write_all(connection: asyncpg.Connection, batch: Batch) -> None:
    """Writes everything, inside a transaction that has checked the fence."""
    generation = batch.generation
    if batch.bodies:
        await insert(connection, INSERT_BODIES, batch.bodies)
    if batch.message_count:
        await _write_messages(connection, batch)
    if batch.settlements:
        await insert(connection, INSERT_SETTLEMENTS, batch.settlements, generation)
    if batch.redeliveries:
        await insert(connection, INSERT_REDELIVERIES, batch.redeliveries, generation)
    if batch.duplicates:
        await insert(connection, INSERT_DUPLICATES, batch.duplicates, generation)
    if batch.packets:
        await insert(connection, INSERT_PACKETS, batch.packets, generation)
    if batch.outbox:
        await _write_outbox(connection, batch.outbox)
    if batch.wills:
        await insert(connection, DELETE_WILLS, batch.wills)
    for (vhost, topic), values in batch.retained.items():
        if values is None:
            await connection.execute(DELETE_RETAINED, vhost, topic)
        else:
            await connection.execute(_upsert_retained(tuple(values)), *values.values())


def _upsert_retained(names: tuple[str, ...]) -> str:
    columns = ", ".join(names)
    places = ", ".join(f"${i}" for i in range(1, len(names) + 1))
    updates = ", ".join(f"{n} = EXCLUDED.{n}" for n in names if n not in ("vhost", "topic"))
    return (
        f"INSERT INTO howdah.retained ({columns}, retained_at) VALUES ({places}, now()) "
        f"ON CONFLICT (vhost, topic) DO UPDATE SET {updates}, retained_at = now()"
    )


async def insert(
    connection: asyncpg.Connection,
    statement: str,
    rows: list[Any],
    *first: object,
) -> None:
    """Inserts rows through unnest, one array a column; in several statements where there are many
    rows. A new generation of the journal has a million message ids to copy, and PostgreSQL takes no
    statement larger than 1 GB, however often it is tried."""
    for start in range(0, len(rows), INSERT_ROWS):
        part = rows[start : start + INSERT_ROWS]
        await connection.execute(statement, *first, *columns_of(part))


def columns_of(rows: list[Any]) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True)))


async def _write_messages(connection: asyncpg.Connection, batch: Batch) -> None:
    if is_for_copy(batch.rows):
        await copy_rows(connection, _table(batch), _columns(batch), batch.rows)
    else:
        statement, arguments = _messages(batch, 1, is_fenced=False)
        await connection.execute(statement, *arguments)


def _messages(batch: Batch, first: int, *, is_fenced: bool) -> tuple[str, list[Any]]:
    """Makes the statement that inserts the batch's messages, with arguments numbered from `first`
    on, and these arguments."""
    run = batch.run
    if run is not None:
        statement = _insert_run(_table(batch), bool(run.rich), first, is_fenced)
        return statement, [*run.head, *run.rich, run.bodies]
    statement = _insert_messages(_table(batch), _columns(batch), first, is_fenced)
    return statement, columns_of(batch.rows)


def _table(batch: Batch) -> str:
    """Names the table to insert into: the partition itself when there is only one, so that nobody
    waits for a lock on the parent."""
    segments = batch.segments
    return f"message_{next(iter(segments))}" if len(segments) == 1 else "message"


def _columns(batch: Batch) -> tuple[str, ...]:
    return NARROW + RICH if batch.is_rich else NARROW
