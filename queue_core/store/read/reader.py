"""Reads messages back that did not fit into memory: ranges of offsets from the segments that hold
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Final

import asyncpg

from queue_core.commit.queue_log import Log
from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.message.message import CANONICAL, Message, utc
from queue_core.store.log_once import Complaints
from queue_core.store.retry_rules import AWAY
from queue_core.store.write.rows import READ, Forms, entries_from_rows

log = logging.getLogger(__name__)

# By offset: how often consumers added something, and all of it, encoded.
Amendments = dict[int, tuple[int, bytes | None]]

COLUMNS: Final = ", ".join(f'"{name}"' for name in READ)
CHUNK_BYTES: Final = 8 * 1024 * 1024  # read back at once: small messages may be followed by large
SLICE_ROWS: Final = 500  # made into entries in one turn of the event loop
MOST_DROP_RETRIES: Final = 20  # of a read whose segment was dropped meanwhile
RETRY_SECONDS: Final = 0.5  # while the database is out of reach


def range_statement(segment: int) -> str:
    """Makes the statement that reads a range of offsets from a segment, limited in rows and in
    bytes."""
    which = 'm."offset" >= $2 AND m."offset" < $3 ORDER BY m."offset" LIMIT $4'
    return _bounded(segment, which, "$5")


def offsets_statement(segment: int) -> str:
    """Makes the statement that reads single offsets from a segment, limited in bytes."""
    return _bounded(segment, 'm."offset" = ANY($2::int8[])', "$3")


def _bounded(segment: int, which: str, room: str) -> str:
    """Makes a statement that stops once its rows fill the bytes asked for. PostgreSQL knows the
    size of a body without reading it."""
    return f"""
        SELECT {COLUMNS} FROM (
            SELECT s.*, sum(s.size) OVER (ORDER BY s."offset" ROWS UNBOUNDED PRECEDING) - s.size
                AS before FROM (
                SELECT {COLUMNS}, coalesce(octet_length(m.native), 0)
                    + coalesce(octet_length(m.body), (
                        SELECT octet_length(b.body) FROM howdah.message_body_{segment} b
                        WHERE b.id = m.body_id), 0) AS size
                FROM howdah.message_{segment} m
                WHERE m.queue_id = $1 AND {which}) s) f
        WHERE f.before < {room} ORDER BY f."offset"
    """


def time_statement(segment: int) -> str:
    """Makes the statement that finds a segment's first offset of a time or later. Offsets and times
    have one order, so the first match is found without reading far."""
    return (
        f'SELECT "offset" FROM howdah.message_{segment} '
        'WHERE queue_id = $1 AND "offset" >= $2 AND enqueued_at >= $3 ORDER BY "offset" LIMIT 1'
    )


class Reader:
    """Reads messages back for all queues, over a small pool of connections."""

    def __init__(self, pool: asyncpg.Pool, forms: Forms, counters: Counters) -> None:
        self.pool = pool
        self._forms = forms
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()
        self.complain = Complaints(log).warn

    def source(self, each: Log) -> LogSource:
        return LogSource(self, each)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def read_range(self, each: Log, start: int, end: int, limit: int) -> list[Entry]:
        """Reads the entries of [start, end) in offset order, `limit` at most, and about
        CHUNK_BYTES."""
        found: list[Entry] = []
        room = CHUNK_BYTES
        async with self.pool.acquire() as connection:
            for segment in each.segments_of(start, end):
                if segment not in each.spans:
                    raise asyncpg.UndefinedTableError(f"segment {segment} was dropped meanwhile")
                first = each.spans[segment][0]
                if first >= end or (len(found) >= limit and found[limit - 1].offset < first):
                    continue  # all in it comes later than what we have
                rows = await connection.fetch(
                    range_statement(segment), each.queue_id, start, end, limit, max(room, 1)
                )
                more = await self._entries(connection, segment, rows)
                found = _merged(found, more)
                room -= sum([entry.message.size() for entry in more])
                if more and room <= 0:
                    found, end = _cut(found, more)
        del found[limit:]
        self._counters.read_back += len(found)
        return found

    async def read_offsets(self, each: Log, offsets: Sequence[int]) -> list[Entry]:
        """Reads the entries of those offsets that exist, in offset order: the first ones, about
        CHUNK_BYTES of them, and none only if there are none. Offsets behind the last entry were not
        looked for."""
        found: list[Entry] = []
        if not offsets:
            return found
        start, end, room = min(offsets), max(offsets) + 1, CHUNK_BYTES
        async with self.pool.acquire() as connection:
            for segment in each.segments_of(start, end):
                rows = await connection.fetch(
                    offsets_statement(segment),
                    each.queue_id,
                    [offset for offset in offsets if offset < end],
                    max(room, 1),
                )
                more = await self._entries(connection, segment, rows)
                found = _merged(found, more)
                room -= sum([entry.message.size() for entry in more])
                if more and room <= 0:
                    found, end = _cut(found, more)
        self._counters.read_back += len(found)
        return found

    async def offset_at(self, each: Log, time: float) -> int:
        """Finds the first offset that was enqueued at that time or later."""
        async with self.pool.acquire() as connection:
            for segment, (first, _) in sorted(each.spans.items()):
                if segment not in each.spans:
                    continue  # retention was faster
                offset: int | None = await connection.fetchval(
                    time_statement(segment), each.queue_id, first, utc(time)
                )
                if offset is not None:
                    return offset
        return each.tail

    def amend(self, entry: Entry, amendments: Amendments) -> None:
        """Adds to a message read back what consumers added to it (AMQP 1.0's modified outcome); its
        row does not have that."""
        known = amendments.get(entry.offset)
        if known is not None and known[1] is not None:
            entry.message = self._forms.amended(entry.message, known[1])

    def message_without_body(self, form: int, native: bytes) -> Message:
        """Makes a message of its properties alone."""
        return Message(b"", form=self._forms.by_code.get(form, CANONICAL), native=native)

    async def _entries(self, connection: Any, segment: int, rows: list[Any]) -> list[Entry]:
        bodies: dict[int, bytes] = {}
        ids = [row[-1] for row in rows if row[-1] is not None]  # body_id
        if ids:
            statement = (
                f"SELECT id, body FROM howdah.message_body_{segment} WHERE id = ANY($1::int8[])"
            )
            bodies = {row["id"]: row["body"] for row in await connection.fetch(statement, ids)}
        entries = entries_from_rows(rows[:SLICE_ROWS], self._forms, bodies)
        for start in range(SLICE_ROWS, len(rows), SLICE_ROWS):
            await asyncio.sleep(0)
            entries += entries_from_rows(rows[start : start + SLICE_ROWS], self._forms, bodies)
        return entries


def _merged(found: list[Entry], more: list[Entry]) -> list[Entry]:
    """Merges entries of two segments in offset order. A message that was carried forward lies in a
    later segment than its neighbours, and may be seen in both for a moment."""
    if not found or not more or found[-1].offset < more[0].offset:
        return found + more
    by_offset = {entry.offset: entry for entry in found + more}
    return [by_offset[offset] for offset in sorted(by_offset)]


def _cut(found: list[Entry], more: list[Entry]) -> tuple[list[Entry], int]:
    """Cuts the entries of all segments at the last offset of the one that filled the chunk: offsets
    that were carried forward lie between those of others, so what comes behind is read the next
    time."""
    end = more[-1].offset + 1
    return [entry for entry in found if entry.offset < end], end


class LogSource:
    """Reads one queue's messages back for its `Ready`. Each fetch answers once, whatever the
    database does meanwhile: a queue whose messages are out of reach waits for them."""

    __slots__ = ("_log", "_reader", "amendments", "delays")

    def __init__(self, reader: Reader, each: Log) -> None:
        self._reader = reader
        self._log = each
        self.delays: dict[int, float] = {}  # of deliveries that failed before the gateway started
        self.amendments: Amendments = {}  # of messages that consumers added to

    def fetch(self, start: int, end: int, limit: int, done: Callable[[list[Entry]], None]) -> None:
        async def read() -> list[Entry]:
            return await self._reader.read_range(self._log, start, end, limit)

        self._reader.spawn(self._persist(read, done))

    def fetch_offsets(self, offsets: list[int], done: Callable[[list[Entry]], None]) -> None:
        async def read() -> list[Entry]:
            return await self._reader.read_offsets(self._log, offsets)

        self._reader.spawn(self._persist(read, done))

    async def offset_at(self, time: float) -> int:
        return await self._reader.offset_at(self._log, time)

    async def _persist(
        self,
        read: Callable[[], Coroutine[Any, Any, list[Entry]]],
        done: Callable[[list[Entry]], None],
    ) -> None:
        for tries in count():
            try:
                entries = await read()
                break
            except asyncpg.UndefinedTableError as error:
                if tries < MOST_DROP_RETRIES:
                    # the segment was dropped just now, and what was left in it moved on
                    await asyncio.sleep(0.01)
                    continue
                self._reader.complain(
                    "cannot read back from queue %s: %s; if somebody dropped the table, restore it",
                    self._log.queue_id,
                    error,
                )
            except AWAY as error:
                self._reader.complain(
                    "cannot read back from queue %s: %s", self._log.queue_id, error
                )
            except Exception as error:  # a bug: the queue waits, and everybody hears of it
                self._reader.complain(
                    "a bug: what is in queue %s cannot be read: %r",
                    self._log.queue_id,
                    error,
                    exc_info=True,
                )
            await asyncio.sleep(RETRY_SECONDS)
        for entry in entries if self.delays else ():
            # not popped: a consumer with a filter may read it, too, and before all others
            entry.not_before = self.delays.get(entry.offset, entry.not_before)
        for entry in entries if self.amendments else ():
            self._reader.amend(entry, self.amendments)
        for entry in entries if self._log.is_stream else ():
            entry.expires_at = None  # the message says so to its consumers; the log keeps it
        done(entries)
