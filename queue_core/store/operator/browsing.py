"""Looks into queues without side effects: pages of messages by offset, time and condition, dead
letters by their cause, the life of one message.

Every look is bounded in rows, bytes and time. It goes in slices of so many messages, and says where
the next one begins. Whether the asker may see anything of it is the caller's to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from queue_core.message.condition import (
    EVERYTHING,
    And,
    Comparison,
    Condition,
    IsNull,
    Not,
    field_named,
)
from queue_core.store.operator.inspection_pool import InspectionPool
from queue_core.store.operator.shown_sql import (
    Typed,
    bigint,
    flag,
    integer,
    parameterised,
    shown,
    text,
)

FIRST_SCAN: Final = 1_000  # messages of the first slice of a look; later ones are larger
LARGEST_SCAN: Final = 20_000
LARGEST_SHOWN_SCAN: Final = 1_000_000  # what howdah.browse takes
LOOK_SECONDS: Final = 3.0  # after which a look ends with what it has
PAGE_BYTES: Final = 8 * 1024 * 1024  # of bodies in one page
MOST_HEADER_BYTES: Final = 65_536  # of a message's headers; longer ones are left out
MOST_CAUSES: Final = 500
MOST_REDRIVEN: Final = 100_000
IS_DEAD: Final = Not(IsNull(field_named("died_in")))

_FACTS: Final = f"""
    "offset", state, enqueued_at, not_before, expires_at, delivery_count, failed_because, priority,
    durable, exchange, routing_key, topic, content_type, content_encoding, message_id,
    correlation_id, reply_to, subject, app_id, user_id, group_id, created_at,
    CASE WHEN octet_length(headers::text) <= {MOST_HEADER_BYTES} THEN headers END AS headers,
    publisher, protocol, deaths, failure, body_bytes"""
_FROM: Final = """howdah.browse({queue}, from_offset => {start}, scan => {scan},
    newest_first => {newest}, with_settled => {settled}, vhost => {vhost})"""
_SHOWN: Final = f"""
SELECT {_FACTS.strip()}, substring(body, 1, {{truncate}}) AS body
FROM {_FROM}
WHERE {{condition}}
ORDER BY "offset"{{direction}} LIMIT {{limit}}
"""
_SLICE: Final = f"""
WITH scanned AS MATERIALIZED (SELECT * FROM {_FROM}),
found AS (
    SELECT {_FACTS}, substring(body, 1, {{truncate}}) AS body FROM scanned
    WHERE {{condition}} ORDER BY "offset"{{direction}} LIMIT {{limit}}
)
SELECT s.scanned, s.last_offset, f.* FROM (
    SELECT count(*) AS scanned, CASE WHEN {{newest}} THEN min("offset") ELSE max("offset") END
        AS last_offset FROM scanned
) s LEFT JOIN found f ON true
"""
_OFFSETS: Final = f"""
WITH scanned AS MATERIALIZED (SELECT * FROM {_FROM})
SELECT (SELECT count(*) FROM scanned) AS scanned,
       (SELECT max("offset") FROM scanned) AS last_offset,
       s."offset" AS "offset", s.died_in
FROM (SELECT 1) one LEFT JOIN (
    SELECT "offset", died_in FROM scanned WHERE {{condition}} ORDER BY "offset" LIMIT {{limit}}
) s ON true
"""
_COUNTED: Final = f"""
SELECT died_in, count(*) AS messages
FROM {_FROM}
WHERE {{condition}}
GROUP BY died_in
"""
_CAUSES: Final = f"""
WITH scanned AS MATERIALIZED (SELECT * FROM {_FROM})
SELECT (SELECT count(*) FROM scanned) AS scanned,
       (SELECT max("offset") FROM scanned) AS last_offset, c.*
FROM (SELECT 1) one LEFT JOIN (
    SELECT died_in, reason, failure, count(*) AS messages, sum(body_bytes)::bigint AS bytes,
           min(died_at) AS first_died_at, max(died_at) AS last_died_at,
           min("offset") AS first_offset, max("offset") AS last_offset_of_cause
    FROM scanned WHERE {{condition}} GROUP BY died_in, reason, failure
) c ON true
"""
_SHOWN_CAUSES: Final = f"""
SELECT died_in, reason, failure, count(*) AS messages, sum(body_bytes) AS bytes,
    min(died_at) AS first_died_at, max(died_at) AS last_died_at,
    min("offset") AS first_offset, max("offset") AS last_offset
FROM {_FROM}
WHERE {{condition}}
GROUP BY died_in, reason, failure ORDER BY messages DESC
"""
_LIFE: Final = """
SELECT at, event, detail FROM howdah.message_life({queue}, {offset}, vhost => {vhost})
ORDER BY date_trunc('milliseconds', at) NULLS LAST, array_position(
    ARRAY['created', 'died', 'enqueued', 'due', 'in flight', 'delivery failed', 'amended'], event)
"""
_OFFSET_AT: Final = "SELECT howdah.offset_at({queue}, {time}, vhost => {vhost})"
_REDRIVE: Final = "SELECT howdah.redrive({queue}, {predicate}, vhost => {vhost})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Which messages of a queue a look goes over, and in which order."""

    vhost: str
    queue: str
    start: int | None = None
    newest_first: bool = False
    with_settled: bool = False

    def facts(self, start: int | None, scan: int) -> dict[str, Typed]:
        return {
            "queue": text(self.queue),
            "start": bigint(start),
            "scan": integer(scan),
            "newest": flag(self.newest_first),
            "settled": flag(self.with_settled),
            "vhost": text(self.vhost),
        }


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message as people see it; `body` is its beginning. Headers that are too long are left
    out."""

    offset: int
    state: str
    enqueued_at: datetime | None  # null: of a queue in memory, which does not note it
    not_before: datetime | None
    expires_at: datetime | None
    delivery_count: int
    failed_because: str | None
    priority: int | None
    durable: bool
    exchange: str
    routing_key: str
    topic: str | None
    content_type: str | None
    content_encoding: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    subject: str | None
    app_id: str | None
    user_id: str | None
    group_id: str | None
    created_at: datetime | None
    headers: dict[str, Any] | None
    publisher: str | None
    protocol: str | None
    deaths: list[dict[str, Any]] | None
    failure: str | None
    body_bytes: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """What a look found. `next_offset` is where the next look begins; None: there is no more."""

    messages: list[BrowsedMessage]
    looked_at: int
    next_offset: int | None
    sql: str


@dataclass(slots=True)
class Cause:
    """Dead letters of one queue that died in one place for one reason."""

    died_in: str
    reason: str
    failure: str | None
    messages: int
    bytes: int
    first_died_at: datetime
    last_died_at: datetime
    first_offset: int
    last_offset: int

    def add(self, other: Cause) -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.first_died_at = min(self.first_died_at, other.first_died_at)
        self.last_died_at = max(self.last_died_at, other.last_died_at)
        self.first_offset = min(self.first_offset, other.first_offset)
        self.last_offset = max(self.last_offset, other.last_offset)


@dataclass(frozen=True, slots=True)
class Causes:
    """Dead letters by cause, the most frequent first. `next_offset`: the look ended there, as it
    took too long."""

    causes: list[Cause]
    looked_at: int
    next_offset: int | None
    sql: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """Dead letters that a condition chooses, by the queue that each goes back to."""

    offsets: dict[str, list[int]]
    looked_at: int
    next_offset: int | None
    sql: str  # that counts them
    redrive_sql: str

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))


@dataclass(frozen=True, slots=True)
class LifeEvent:
    at: datetime | None
    event: str
    detail: dict[str, Any]


class Browser:
    """Looks into durable queues. Raises StoreUnavailable and LookTooLong."""

    def __init__(self, pool: InspectionPool) -> None:
        self._pool = pool

    async def browse(self, place: Range, condition: Condition, limit: int, truncate: int) -> Page:
        """Reads one page of the messages that a condition holds for."""
        fitting = max(1, min(limit, PAGE_BYTES // max(truncate, 1)))
        direction = " DESC" if place.newest_first else ""
        template = _SLICE.replace("{direction}", direction)
        messages: list[BrowsedMessage] = []
        looked_at, start = 0, place.start
        async with self._pool.connection() as connection:
            async for scan in _slices(1 if condition == EVERYTHING else FIRST_SCAN, fitting):
                missing = fitting - len(messages)
                facts = place.facts(start, scan)
                facts |= {"truncate": integer(truncate), "limit": integer(missing)}
                statement, values = parameterised(template, condition, **facts)
                rows = await connection.fetch(statement, *values)
                found = [_browsed(row) for row in rows if row["offset"] is not None]
                messages += found
                is_full = len(found) == missing
                last = messages[-1].offset if is_full else rows[0]["last_offset"]
                looked_at += rows[0]["scanned"]
                start = _behind(last, place)
                if is_full or start is None or rows[0]["scanned"] < scan:
                    start = start if is_full or rows[0]["scanned"] == scan else None
                    break
        facts = place.facts(place.start, min(max(looked_at, 1), LARGEST_SHOWN_SCAN))
        facts |= {"truncate": integer(truncate), "limit": integer(fitting)}
        sql = shown(_SHOWN.replace("{direction}", direction), condition, **facts)
        return Page(messages, looked_at, start, sql)

    async def offset_at(self, vhost: str, queue: str, time: datetime) -> int:
        """Finds the offset from which on messages entered the queue at that time or later."""
        statement, values = parameterised(
            _OFFSET_AT,
            queue=text(queue),
            time=Typed(time, "timestamptz"),
            vhost=text(vhost),
        )
        async with self._pool.connection() as connection:
            return int(await connection.fetchval(statement, *values))

    async def causes(self, place: Range, condition: Condition) -> Causes:
        """Groups the dead letters in a queue by where and why they died."""
        wanted = And((IS_DEAD, condition)) if condition != EVERYTHING else IS_DEAD
        merged: dict[tuple[str, str, str | None], Cause] = {}
        looked_at, start = 0, place.start
        async with self._pool.connection() as connection:
            async for scan in _slices(FIRST_SCAN, LARGEST_SCAN):
                statement, values = parameterised(_CAUSES, wanted, **place.facts(start, scan))
                rows = await connection.fetch(statement, *values)
                for cause in (_cause(row) for row in rows if row["died_in"] is not None):
                    known = merged.setdefault((cause.died_in, cause.reason, cause.failure), cause)
                    if known is not cause:
                        known.add(cause)
                looked_at += rows[0]["scanned"]
                start = _behind(rows[0]["last_offset"], place)
                if rows[0]["scanned"] < scan:
                    start = None
                    break
        found = sorted(merged.values(), key=lambda cause: (-cause.messages, cause.died_in))
        facts = place.facts(place.start, min(max(looked_at, 1), LARGEST_SHOWN_SCAN))
        return Causes(found[:MOST_CAUSES], looked_at, start, shown(_SHOWN_CAUSES, wanted, **facts))

    async def choose(self, place: Range, condition: Condition, before: int | None) -> Chosen:
        """Finds the dead letters that a condition chooses, for a redrive."""
        parts: list[Condition] = [IS_DEAD]
        if condition != EVERYTHING:
            parts.append(condition)
        if before is not None:
            parts.append(Comparison(field_named("offset"), "<", before))
        wanted = And(tuple(parts)) if len(parts) > 1 else IS_DEAD
        offsets: dict[str, list[int]] = {}
        looked_at, start, count = 0, place.start, 0
        async with self._pool.connection() as connection:
            async for scan in _slices(FIRST_SCAN, LARGEST_SCAN):
                facts = place.facts(start, scan) | {"limit": integer(MOST_REDRIVEN - count)}
                statement, values = parameterised(_OFFSETS, wanted, **facts)
                rows = await connection.fetch(statement, *values)
                for row in rows:
                    if row["offset"] is not None:
                        offsets.setdefault(row["died_in"], []).append(row["offset"])
                        count += 1
                looked_at += rows[0]["scanned"]
                start = _behind(rows[0]["last_offset"], place)
                if count >= MOST_REDRIVEN or rows[0]["scanned"] < scan:
                    start = start if count >= MOST_REDRIVEN else None
                    break
        facts = place.facts(place.start, min(max(looked_at, 1), LARGEST_SHOWN_SCAN))
        counted = shown(_COUNTED, wanted, **facts)
        return Chosen(offsets, looked_at, start, counted, _redrive_sql(place, wanted))

    async def life(self, vhost: str, queue: str, offset: int) -> tuple[list[LifeEvent], str]:
        """Reads what log and journal know of one message, and the SQL that does."""
        facts = {"queue": text(queue), "offset": bigint(offset), "vhost": text(vhost)}
        statement, values = parameterised(_LIFE, **facts)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(statement, *values)
        return [LifeEvent(**row) for row in rows], shown(_LIFE, **facts)


async def _slices(first: int, least: int) -> AsyncIterator[int]:
    """Yields the sizes of slices, larger and larger, until the look has taken long enough."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOOK_SECONDS
    scan = min(max(first, least), LARGEST_SCAN)
    while loop.time() < deadline:
        yield scan
        scan = min(scan * 4, LARGEST_SCAN)


def _behind(offset: int | None, place: Range) -> int | None:
    """Where a look goes on behind that offset; None: nowhere."""
    if offset is None:
        return None
    if not place.newest_first:
        return offset + 1
    return offset - 1 if offset > 0 else None


def _browsed(row: Any) -> BrowsedMessage:
    facts = dict(row)
    del facts["scanned"], facts["last_offset"]
    return BrowsedMessage(**facts)


def _cause(row: Any) -> Cause:
    return Cause(
        row["died_in"],
        row["reason"],
        row["failure"],
        row["messages"],
        row["bytes"],
        row["first_died_at"],
        row["last_died_at"],
        row["first_offset"],
        row["last_offset_of_cause"],
    )


def _redrive_sql(place: Range, wanted: Condition) -> str:
    predicate = shown("{condition}", wanted).removesuffix(";")
    return shown(
        _REDRIVE, queue=text(place.queue), predicate=text(predicate), vhost=text(place.vhost)
    )
