"""Adoption: a node takes over the shards that it owns, as their owner before has left them.

The journal of a shard's earlier owner is copied into this node's own generation, and the shard
names that one from then on, in one transaction: a node that dies half way has changed nothing, and
the next owner does it again. What is copied is the state and not its history: one full row for each
group, one row for each delivery that failed and is not settled, packets that are in flight.

The server copies by itself, so that the time does not depend on the network. `recovery` reads the
copy into memory.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from queue_core.store.read.recovery import require_tables
from queue_core.store.write.fence import Fence, fenced

# Owned shards, whose rows nobody else changes until the transaction ends.
OWNED: Final = "SELECT id, generation FROM howdah.shard WHERE node_id = $1 ORDER BY id FOR UPDATE"
ADOPTED: Final = "UPDATE howdah.shard SET generation = $1 WHERE id = ANY($2::int2[])"
ADOPT_SEGMENTS: Final = "SELECT howdah.adopt_segments($1)"

# Each copies from generation $1 into generation $2 what belongs to the shards $3.
# Of a group, its newest full row and all after it count.
COPY_SETTLEMENTS: Final = """
    WITH newest AS (
        SELECT queue_id, group_name, max(seq) AS seq
        FROM howdah.settlement WHERE generation = $1 AND is_full GROUP BY queue_id, group_name
    )
    INSERT INTO howdah.settlement
        (generation, seq, queue_id, group_name, floor, acked, is_full, handed_out, written_at)
    SELECT $2, max(j.seq), j.queue_id, j.group_name, max(j.floor),
           coalesce(range_agg(r.span), '{}') - int8multirange(int8range(NULL, max(j.floor))),
           true, max(j.handed_out), max(j.written_at)
    FROM howdah.settlement j
    JOIN howdah.queue q ON q.id = j.queue_id AND q.shard = ANY($3::int2[])
    LEFT JOIN newest n ON n.queue_id = j.queue_id AND n.group_name = j.group_name
    LEFT JOIN LATERAL unnest(j.acked) AS r(span) ON true
    WHERE j.generation = $1 AND j.seq >= coalesce(n.seq, 0)
    GROUP BY j.queue_id, j.group_name
"""
# After the settlements, which say what is settled: nobody asks for failures of that any more.
COPY_REDELIVERIES: Final = """
    INSERT INTO howdah.redelivery
        (generation, queue_id, "offset", count, not_before, reason, written_at, amended, amendment)
    SELECT $2, f.queue_id, f."offset", max(f.count),
           (array_agg(f.not_before ORDER BY f.count DESC, f.amended DESC))[1],
           (array_agg(f.reason ORDER BY f.count DESC, f.amended DESC))[1],
           max(f.written_at), max(f.amended),
           (array_agg(f.amendment ORDER BY f.amended DESC)
               FILTER (WHERE f.amendment IS NOT NULL))[1]
    FROM howdah.redelivery f
    JOIN howdah.queue q ON q.id = f.queue_id AND q.shard = ANY($3::int2[])
    LEFT JOIN howdah.settlement s
        ON s.generation = $2 AND s.queue_id = f.queue_id AND s.group_name = ''
    WHERE f.generation = $1
      AND (s.queue_id IS NULL OR (f."offset" >= s.floor AND NOT f."offset" <@ s.acked))
    GROUP BY f.queue_id, f."offset"
"""
COPY_DUPLICATES: Final = """
    INSERT INTO howdah.deduplication (generation, queue_id, message_id, seen_at)
    SELECT $2, d.queue_id, d.message_id, max(d.seen_at)
    FROM howdah.deduplication d
    JOIN howdah.queue q ON q.id = d.queue_id AND q.shard = ANY($3::int2[])
    WHERE d.generation = $1
    GROUP BY d.queue_id, d.message_id
"""
# Of a packet the newest row counts; with state 0 it is not in flight any more.
COPY_PACKETS: Final = """
    INSERT INTO howdah.packet
        (generation, seq, session_id, direction, packet_id, state, queue_id, "offset", written_at)
    SELECT $2, n.seq, n.session_id, n.direction, n.packet_id, n.state, n.queue_id, n."offset",
           n.written_at
    FROM (
        SELECT DISTINCT ON (p.session_id, p.direction, p.packet_id) p.*
        FROM howdah.packet p
        JOIN howdah.session s ON s.id = p.session_id AND s.shard = ANY($3::int2[])
        WHERE p.generation = $1
        ORDER BY p.session_id, p.direction, p.packet_id, p.seq DESC
    ) n
    WHERE n.state <> 0
"""
COPIES: Final = (COPY_SETTLEMENTS, COPY_REDELIVERIES, COPY_DUPLICATES, COPY_PACKETS)


async def adopt(connection: asyncpg.Connection, fence: Fence) -> list[int]:
    """Adopts all shards that this node owns, and returns them. The node's generation must hold
    nothing of a shard that it has yet to adopt: what an earlier time has left there would count.
    Raises TornTables before anything is taken for the whole state."""
    await require_tables(connection)
    node, generation = fence.node.id, fence.marks.generation
    async with fenced(connection, fence.begin()):
        shards_in: dict[int, list[int]] = {}
        owned = await connection.fetch(OWNED, node)
        for row in owned:
            shards_in.setdefault(row["generation"], []).append(row["id"])
        shards_in.pop(generation, None)
        # Whose the open segments are is told by the generations before.
        await connection.execute(ADOPT_SEGMENTS, node)
        for earlier, shards in shards_in.items():
            for statement in COPIES:
                await connection.execute(statement, earlier, generation, shards)
            await connection.execute(ADOPTED, generation, shards)
    return [row["id"] for row in owned]
