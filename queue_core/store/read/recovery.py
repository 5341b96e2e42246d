"""Recovery: reads the state of the log and the journal, for the queues of some shards, from the
database.

Everything is found by index: which offsets of which queue lie in which segment costs a few probes
for each queue and segment, whatever the number of messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from queue_core.delivery.intervals import Intervals
from queue_core.delivery.settled_offsets import Settled
from queue_core.errors import StoreUnavailable
from queue_core.store.write.segments import Segment

# Those that one of the shards may need, and the open ones that classic queues share: of one node,
# or with null of all.
SEGMENTS: Final = """
    SELECT id, queue_id, created_at, sealed_at, messages, bytes, newest_at, archive, needed_by
    FROM howdah.segment
    WHERE needed_by && $1::int2[] OR (needed_by IS NULL AND ($2::int4 IS NULL OR node_id = $2))
    ORDER BY id
"""
GENERATIONS: Final = """
    SELECT generation, array_agg(id ORDER BY id) AS shards
    FROM howdah.shard WHERE id = ANY($1::int2[]) GROUP BY generation ORDER BY generation
"""
QUEUES: Final = "SELECT id, shard FROM howdah.queue WHERE shard = ANY($1::int2[])"
_OF_SHARDS: Final = "queue_id IN (SELECT id FROM howdah.queue WHERE shard = ANY($2::int2[]))"
# Newest row of each group that says everything, and all after it.
SETTLEMENTS: Final = f"""
    WITH newest AS (
        SELECT queue_id, group_name, max(seq) AS seq
        FROM howdah.settlement WHERE generation = $1 AND is_full GROUP BY queue_id, group_name
    )
    SELECT s.queue_id, s.group_name, s.floor, s.handed_out, s.acked::text AS acked
    FROM howdah.settlement s LEFT JOIN newest n USING (queue_id, group_name)
    WHERE s.generation = $1 AND s.seq >= coalesce(n.seq, 0) AND s.{_OF_SHARDS}
    ORDER BY s.seq
"""
LAST_SEQ: Final = """
    SELECT greatest(
        (SELECT max(seq) FROM howdah.settlement WHERE generation = $1),
        (SELECT max(seq) FROM howdah.packet WHERE generation = $1),
        0)
"""
REDELIVERIES: Final = f"""
    SELECT queue_id, "offset", max(count) AS count,
           (array_agg(not_before ORDER BY count DESC, amended DESC))[1] AS not_before,
           max(amended) AS amended,
           (array_agg(amendment ORDER BY amended DESC)
               FILTER (WHERE amendment IS NOT NULL))[1] AS amendment
    FROM howdah.redelivery WHERE generation = $1 AND {_OF_SHARDS} GROUP BY queue_id, "offset"
"""
# By the index of those that have a time; without statistics the planner expects a third to be due
# later, and would read everything.
DELAYED: Final = 'SELECT queue_id, "offset", not_before FROM howdah.message WHERE not_before > $1'
BY_INDEX: Final = "SET LOCAL enable_seqscan = off"
PAGE_ROWS: Final = 10_000
DUPLICATES: Final = f"""
    SELECT queue_id, message_id, max(seen_at) AS seen_at
    FROM howdah.deduplication WHERE generation = $1 AND {_OF_SHARDS}
    GROUP BY queue_id, message_id ORDER BY max(seen_at)
"""


def spans_statement(segment: int) -> str:
    """Makes the statement that finds the first and last offset of each queue in a segment, going
    from queue to queue along the index."""
    return f"""
        WITH RECURSIVE held AS (
            (SELECT queue_id FROM howdah.message_{segment} ORDER BY queue_id LIMIT 1)
            UNION ALL
            SELECT (SELECT m.queue_id FROM howdah.message_{segment} m
                    WHERE m.queue_id > held.queue_id ORDER BY m.queue_id LIMIT 1)
            FROM held WHERE held.queue_id IS NOT NULL
        )
        SELECT queue_id,
            (SELECT "offset" FROM howdah.message_{segment} m WHERE m.queue_id = held.queue_id
             ORDER BY "offset" LIMIT 1) AS first,
            (SELECT "offset" FROM howdah.message_{segment} m WHERE m.queue_id = held.queue_id
             ORDER BY "offset" DESC LIMIT 1) AS last
        FROM held WHERE queue_id IS NOT NULL
    """


GAPS: Final = """
    SELECT queue_id, first_offset, end_offset FROM howdah.loss
    WHERE queue_id IS NOT NULL AND first_offset < end_offset
"""
LOG_ENDS: Final = "SELECT queue_id, noted, reserved FROM howdah.log_end"
TORN: Final = "SELECT missing, number, stands_in FROM howdah.torn_tables() LIMIT 1"


class TornTables(StoreUnavailable):
    """A partition is missing: somebody dropped, detached or renamed it."""


@dataclass(slots=True)
class GroupState:
    """The settled offsets of one queue or consumer group, and how far its offsets were handed
    out."""

    settled: Settled
    handed_out: int = 0


@dataclass(slots=True)
class Recovered:
    """The state of queues as the database has it, by queue id."""

    next_seq: int  # of journal rows
    segments: list[Segment]
    spans: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)  # queue -> segment
    groups: dict[int, dict[str, GroupState]] = field(default_factory=dict)
    failures: dict[int, dict[int, int]] = field(default_factory=dict)
    delays: dict[int, dict[int, float]] = field(default_factory=dict)
    amendments: dict[int, dict[int, tuple[int, bytes | None]]] = field(default_factory=dict)
    due: dict[int, dict[int, float]] = field(default_factory=dict)  # what publishers delayed
    seen_ids: dict[int, dict[str, float]] = field(default_factory=dict)
    gaps: dict[int, Intervals] = field(default_factory=dict)  # offsets whose messages were lost
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)  # noted and reserved, by queue

    def end_of(self, queue_id: int, *, is_stream: bool) -> int:
        """Returns the offset that the queue's next message gets. A stream always keeps its newest
        messages, and its groups tell nothing about its end: one may wait for an offset to come."""
        ends = [end for _, end in self.gaps.get(queue_id, ())]
        if is_stream:
            ends += [last + 1 for _, last in self.spans.get(queue_id, {}).values()]
        else:
            ends.append(self.tail(queue_id))
        return max(ends, default=0)

    def torn_off(self, queue_id: int, *, is_stream: bool) -> tuple[int, int] | None:
        """Returns the offsets that a queue gave to messages of which nothing is left, not even that
        they were settled: somebody took a partition away by hand. The end is an upper bound."""
        noted, reserved = self.ends.get(queue_id, (0, 0))
        end = self.end_of(queue_id, is_stream=is_stream)
        return (end, reserved) if end < noted else None

    def tail(self, queue_id: int) -> int:
        """Returns the end of a queue: behind its last message, or behind what was settled when the
        last ones were dropped."""
        ends = [last + 1 for _, last in self.spans.get(queue_id, {}).values()]
        for group in self.groups.get(queue_id, {}).values():
            ends.append(group.settled.floor)
            ends += [end for _, end in group.settled.above]
        return max(ends, default=0)


async def recover(
    connection: asyncpg.Connection, shards: Sequence[int], node: int | None = None
) -> Recovered:
    """Reads the state of the queues of some shards, with the segments that they lie in; the open
    one of `node`, or of all nodes."""
    await require_tables(connection)
    found = Recovered(1, [])
    for row in await connection.fetch(GAPS):
        gaps = found.gaps.setdefault(row["queue_id"], Intervals())
        gaps.add_range(row["first_offset"], row["end_offset"])
    for row in await connection.fetch(LOG_ENDS):
        found.ends[row["queue_id"]] = (row["noted"], row["reserved"])
    shard_of = {row["id"]: row["shard"] for row in await connection.fetch(QUEUES, shards)}
    for row in await connection.fetch(SEGMENTS, shards, node):
        await _recover_segment(connection, found, row, shard_of)
    for row in await connection.fetch(GENERATIONS, shards):
        await _recover_journal(connection, found, row["generation"], row["shards"])
    return found


async def _recover_segment(
    connection: asyncpg.Connection,
    found: Recovered,
    row: asyncpg.Record,
    shard_of: Mapping[int, int],
) -> None:
    """Reads which offsets of which queue lie in a segment. A queue whose shard needs the segment no
    more has its messages elsewhere, whatever still lies here."""
    segment, needed_by = _segment(row), row["needed_by"]
    spans = await _spans(connection, segment.id)
    for queue_id, first, last in spans:
        shard = shard_of.get(queue_id)
        if shard is not None and (needed_by is None or shard in needed_by):
            found.spans.setdefault(queue_id, {})[segment.id] = (first, last)
    if not segment.messages and spans:
        segment.messages = sum(last + 1 - first for _, first, last in spans)
        await _measure(connection, segment)
    found.segments.append(segment)


async def _recover_journal(
    connection: asyncpg.Connection, found: Recovered, generation: int, shards: list[int]
) -> None:
    """Reads what one generation says of the shards that name it."""
    last_seq = await connection.fetchval(LAST_SEQ, generation)
    found.next_seq = max(found.next_seq, 1 + last_seq)
    await _recover_groups(connection, found, generation, shards)
    await _recover_failures(connection, found, generation, shards)
    for row in await connection.fetch(DUPLICATES, generation, shards):
        seen = found.seen_ids.setdefault(row["queue_id"], {})
        seen[row["message_id"]] = row["seen_at"].timestamp()


async def recover_delays(
    connection: asyncpg.Connection, found: Recovered, now: datetime | None
) -> None:
    """Reads when messages are due that their publishers delayed, of those that are not due yet."""
    async with connection.transaction():  # in pages: it may be millions
        await connection.execute(BY_INDEX)
        async for row in connection.cursor(DELAYED, now, prefetch=PAGE_ROWS):
            times = found.due.setdefault(row["queue_id"], {})
            times[row["offset"]] = row["not_before"].timestamp()


async def require_tables(connection: asyncpg.Connection) -> None:
    """Raises TornTables unless every partition is there that should be."""
    torn = await connection.fetchrow(TORN)
    if torn is not None:
        raise TornTables(torn_text(torn["missing"], torn["stands_in"]))


def torn_text(missing: str, stands_in: str | None) -> str:
    """Explains that a partition is missing or renamed, and what helps."""
    repair = "stop the gateway, run SELECT * FROM howdah.repair(), and start it again"
    if stands_in is not None:
        return f"the table howdah.{missing} is called howdah.{stands_in} now: {repair}"
    return (
        f"the table howdah.{missing} is missing: somebody dropped or detached it. Restore it from "
        f"a backup, or give up what was in it: {repair}; it says what is lost"
    )


async def _spans(connection: asyncpg.Connection, segment: int) -> list[asyncpg.Record]:
    try:
        return await connection.fetch(spans_statement(segment))
    except asyncpg.UndefinedTableError:
        raise TornTables(torn_text(f"message_{segment}", None)) from None


def _segment(row: asyncpg.Record) -> Segment:
    newest = row["newest_at"]
    return Segment(
        row["id"],
        row["queue_id"],
        row["created_at"].timestamp(),
        row["messages"],
        row["bytes"],
        0.0 if newest is None else newest.timestamp(),
        row["sealed_at"] is not None,
        row["archive"],
    )


async def _measure(connection: asyncpg.Connection, segment: Segment) -> None:
    """Takes the size on disk for the bytes of the segment that was open when the gateway
    stopped."""
    segment.bytes = await connection.fetchval(
        "SELECT pg_total_relation_size($1::regclass)", f"howdah.message_{segment.id}"
    )


async def _recover_groups(
    connection: asyncpg.Connection, found: Recovered, generation: int, shards: list[int]
) -> None:
    for row in await connection.fetch(SETTLEMENTS, generation, shards):
        groups = found.groups.setdefault(row["queue_id"], {})
        state = groups.get(row["group_name"])
        if state is None:
            state = groups[row["group_name"]] = GroupState(Settled())
        above = state.settled.above
        for start, end in parse_multirange(row["acked"]):
            above.add_range(start, end)
        floor = max(state.settled.floor, row["floor"])
        state.settled = Settled(above.end_of(floor), above)
        above.discard_below(state.settled.floor)
        state.handed_out = max(state.handed_out, row["handed_out"])


async def _recover_failures(
    connection: asyncpg.Connection, found: Recovered, generation: int, shards: list[int]
) -> None:
    for row in await connection.fetch(REDELIVERIES, generation, shards):
        queue_id, offset = row["queue_id"], row["offset"]
        group = found.groups.get(queue_id, {}).get("")
        if group is not None and offset in group.settled:
            continue
        if offset in found.gaps.get(queue_id, ()):
            continue
        found.failures.setdefault(queue_id, {})[offset] = row["count"]
        if row["not_before"] is not None:
            found.delays.setdefault(queue_id, {})[offset] = row["not_before"].timestamp()
        if row["amended"]:
            known = row["amended"], row["amendment"]
            found.amendments.setdefault(queue_id, {})[offset] = known


def parse_multirange(text: str) -> list[tuple[int, int]]:
    """Parses '{[1,5),[7,9)}' as PostgreSQL writes a multirange: canonical, closed below and open
    above."""
    inner = text.strip("{}")
    if not inner:
        return []
    pairs = (piece.strip("[)").split(",") for piece in inner.split("),"))
    return [(int(start.strip("[")), int(end)) for start, end in pairs]
