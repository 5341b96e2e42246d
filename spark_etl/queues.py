"""Reads facts about queues and their logs from the tables: which there are, how far they go, which
segments.

Answers for facts that a job plans with. It must not read any message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_etl.database import Database
from spark_etl.errors import EtlError
from spark_etl.ranges import Range

_QUEUES: Final = "SELECT id, vhost, name, kind FROM howdah.queue WHERE vhost = ? ORDER BY name"
_EDGES: Final = """
    SELECT
        (SELECT m."offset" FROM howdah.message m WHERE m.queue_id = ? ORDER BY 1 LIMIT 1) AS head,
        (SELECT m."offset" FROM howdah.message m WHERE m.queue_id = ? ORDER BY 1 DESC LIMIT 1)
            AS newest
"""
# A limit, so that each segment is asked by one probe of its index.
_SEGMENTS: Final = """
    SELECT s.id, s.retired_at IS NOT NULL AS is_retired
    FROM howdah.segment s CROSS JOIN LATERAL (
        SELECT FROM howdah.message m WHERE m.segment_id = s.id
        AND m.queue_id = ? AND m."offset" > ? AND m."offset" <= ? LIMIT 1) m
    WHERE coalesce(s.queue_id, 0) = ? ORDER BY s.id
"""
_AT: Final = """
    SELECT m."offset" AS first FROM howdah.message m
    WHERE m.queue_id = ? AND m.enqueued_at >= ?::timestamptz ORDER BY m."offset" LIMIT 1
"""
_SAMPLE: Final = """
    SELECT avg(coalesce(octet_length(m.body), 65536) + coalesce(octet_length(m.native), 0))::int8
    FROM (
        (SELECT body, native FROM howdah.message WHERE queue_id = ? AND "offset" > ?
         ORDER BY "offset" LIMIT 50)
        UNION ALL
        (SELECT body, native FROM howdah.message WHERE queue_id = ? AND "offset" <= ?
         ORDER BY "offset" DESC LIMIT 50)
    ) m
"""
# Offsets of messages that the database has lost; several notes may tell of the same ones.
_LOST: Final = """
    SELECT coalesce(sum(upper(r.span) - lower(r.span)), 0)::int8 AS lost
    FROM unnest((
        SELECT range_agg(int8range(l.first_offset, l.end_offset)) FROM howdah.loss l
        WHERE l.queue_id = ? AND l.first_offset < l.end_offset
    ) * int8multirange(int8range(?, ?))) AS r (span)
"""
_LOST_UPTO: Final = "SELECT max(end_offset) - 1 AS upto FROM howdah.loss WHERE queue_id = ?"
_NAMED_AT_MOST: Final = 10


@dataclass(frozen=True, slots=True)
class Queue:
    id: int
    vhost: str
    name: str
    kind: str

    @property
    def is_stream(self) -> bool:
        return self.kind == "stream"


@dataclass(frozen=True, slots=True)
class Edges:
    """The oldest and the newest offset that are stored."""

    head: int
    newest: int


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments that messages of a range lie in, at one moment."""

    ids: list[int]
    has_retired: bool  # some of the messages may be in a newer segment, too


def find_queues(database: Database, vhost: str, names: list[str] | None = None) -> list[Queue]:
    """Finds the named queues of the virtual host, or all of them; an unknown one is an error."""
    known = {row["name"]: Queue(**row) for row in database.fetch(_QUEUES, vhost)}
    if names is None:
        return list(known.values())
    for name in names:
        if name not in known:
            shown = ", ".join(list(known)[:_NAMED_AT_MOST]) or "none"
            more = ", ..." if len(known) > _NAMED_AT_MOST else ""
            raise EtlError(
                f"there is no durable queue '{name}' in virtual host '{vhost}': "
                f"known there: {shown}{more}"
            )
    return [known[name] for name in dict.fromkeys(names)]


def find_queue(database: Database, vhost: str, name: str) -> Queue:
    return find_queues(database, vhost, [name])[0]


def all_queues(database: Database) -> list[tuple[str, str]]:
    """Lists virtual host and name of every durable queue."""
    rows = database.fetch("SELECT vhost, name FROM howdah.queue ORDER BY vhost, name")
    return [(row["vhost"], row["name"]) for row in rows]


def edges(database: Database, queue: Queue) -> Edges | None:
    """Finds the oldest and the newest stored offset; None if nothing is stored."""
    row = database.fetch(_EDGES, queue.id, queue.id)[0]
    return None if row["head"] is None else Edges(row["head"], row["newest"])


def lost(database: Database, queue: Queue, wanted: Range) -> int:
    """Counts the offsets of the range whose messages the database has lost."""
    return int(database.value(_LOST, queue.id, wanted.after + 1, wanted.upto + 1) or 0)


def lost_upto(database: Database, queue: Queue) -> int:
    """Returns the last offset that was given to a message and lost; the next message comes behind
    it."""
    found = database.value(_LOST_UPTO, queue.id)
    return -1 if found is None else int(found)


def segments(database: Database, queue: Queue, wanted: Range) -> Segments:
    """Finds the segments with messages of that range, as of the database's snapshot."""
    series = queue.id if queue.is_stream else 0
    rows = database.fetch(_SEGMENTS, queue.id, wanted.after, wanted.upto, series)
    return Segments([row["id"] for row in rows], any(row["is_retired"] for row in rows))


def offset_at(database: Database, queue: Queue, moment: str) -> int | None:
    """Finds the first offset that entered the queue at that moment or later."""
    rows = database.fetch(_AT, queue.id, moment)
    return rows[0]["first"] if rows else None


def message_bytes(database: Database, queue: Queue, after: int, upto: int) -> int:
    """Estimates the size of a message in that range by those at its ends."""
    return int(database.value(_SAMPLE, queue.id, after, queue.id, upto) or 0)
