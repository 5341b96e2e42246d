"""Puts queues, messages and journal rows into a database, as a gateway would have left them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import asyncpg

_INSERT_MESSAGES = """
INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, durable, exchange,
                            routing_key, body)
SELECT $1, $2, o, now() - interval '1 minute', true, '', 'key', convert_to('body ' || o, 'UTF8')
FROM unnest($3::bigint[]) o
"""
_INSERT_SETTLEMENT = """
INSERT INTO howdah.settlement (generation, seq, queue_id, group_name, floor, acked, is_full)
VALUES ($1, $2, $3, $4, $5, $6::text::int8multirange, $7)
"""


async def make_queue(
    db: asyncpg.Connection, name: str, kind: str = "classic", vhost: str = "/"
) -> int:
    number: int = await db.fetchval(
        "INSERT INTO howdah.queue (vhost, name, kind, shard) "
        "VALUES ($1, $2, $3, howdah.shard_of($1, 'queue', $2)) RETURNING id",
        vhost,
        name,
        kind,
    )
    return number


async def make_segment(db: asyncpg.Connection, queue_id: int | None = None) -> int:
    number: int = await db.fetchval("SELECT howdah.create_segment($1)", queue_id)
    return number


async def append(
    db: asyncpg.Connection, segment: int, queue_id: int, offsets: Iterable[int]
) -> None:
    await db.execute(_INSERT_MESSAGES, segment, queue_id, list(offsets))


async def change(db: asyncpg.Connection, queue_id: int, offset: int, **columns: Any) -> None:
    """Gives one message other contents than `append` did."""
    written = ", ".join(f"{name} = ${n}" for n, name in enumerate(columns, 3))
    await db.execute(
        f'UPDATE howdah.message SET {written} WHERE queue_id = $1 AND "offset" = $2',
        queue_id,
        offset,
        *(json.dumps(v) if isinstance(v, list | dict) else v for v in columns.values()),
    )


async def settle(
    db: asyncpg.Connection,
    queue_id: int,
    seq: int,
    floor: int,
    acked: str = "{}",
    *,
    group: str = "",
    is_full: bool = False,
    generation: int = 1,
) -> None:
    await db.execute(_INSERT_SETTLEMENT, generation, seq, queue_id, group, floor, acked, is_full)


def death(queue: str, reason: str = "rejected", **more: Any) -> dict[str, Any]:
    """Makes a death as the gateway writes it: fields with their default value are left out."""
    return {"queue": queue, "reason": reason, **more}
