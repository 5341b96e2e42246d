"""Drops segments of the log that nobody needs any more, and old generations of the journal.

Dropping a partition needs a lock on its parent that waits behind every reader, and everybody else
would wait behind us. So we ask for it briefly, and try again later. Messages that outlive their
segment (a slow queue, a poison message) are carried forward with their offsets, in one transaction
with the drop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import asyncpg

from queue_core.commit.queue_log import Log
from queue_core.counters import Counters
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.stream import StreamQueue
from queue_core.store.log_once import Complaints
from queue_core.store.queue_store import QueueStore
from queue_core.store.upkeep.consumer_status import ConsumerNotes
from queue_core.store.write import statements
from queue_core.store.write.fence import fenced, fenced_on_pool
from queue_core.store.write.rows import NARROW, RICH
from queue_core.store.write.segments import Segment, SegmentBook
from queue_core.store.write.writer import Writer

log = logging.getLogger(__name__)

LOCK_TIMEOUT: Final = "50ms"
LONGEST_PAUSE_ROUNDS: Final = 30  # of upkeep without a try to drop a segment that is being read
CARRY_SHARE: Final = 0.05  # of a segment's messages may still be needed for it to be given up
CARRY_ROWS: Final = 20_000

# Marked by keep_for_archive(): the copy comes first.
WAITING_FOR_ARCHIVE: Final = """
    SELECT s.id FROM howdah.segment s
    JOIN howdah.archive_mark m ON m.queue_id = coalesce(s.queue_id, 0)
    WHERE s.archive IS NULL
"""
ACTIVITY: Final = """
    INSERT INTO howdah.queue_activity
        (queue_id, in_flight, consumers, noted_at)
    SELECT q, f, c, now() FROM unnest($1::int8[], $2::int8[], $3::int4[]) AS t (q, f, c)
    WHERE EXISTS (SELECT FROM howdah.queue WHERE id = q)
    ON CONFLICT (queue_id) DO UPDATE
    SET in_flight = EXCLUDED.in_flight, consumers = EXCLUDED.consumers, noted_at = now()
"""
# Of a gateway that is not there any more.
FORGET_ACTIVITY: Final = """
    UPDATE howdah.queue_activity SET in_flight = 0, consumers = 0, noted_at = now()
    WHERE in_flight <> 0 OR consumers <> 0
"""
LOG_ENDS: Final = """
    INSERT INTO howdah.log_end (queue_id, noted, reserved, noted_at)
    SELECT q, n, r, now() FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS t (q, n, r)
    WHERE EXISTS (SELECT FROM howdah.queue WHERE id = q)
    ON CONFLICT (queue_id) DO UPDATE
    SET noted = EXCLUDED.noted, reserved = EXCLUDED.reserved, noted_at = now()
"""
FORGET_LOG_ENDS: Final = """
    DELETE FROM howdah.log_end e
    WHERE NOT EXISTS (SELECT FROM howdah.queue q WHERE q.id = e.queue_id)
"""
RESERVED_OFFSETS: Final = 1_000_000  # ahead of the end that is noted
# Who is in the way of a drop, told by its transaction: everybody may see that, of everybody.
HOLDERS: Final = """
    SELECT l.pid, l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.relation = ANY (ARRAY[
          'howdah.message', 'howdah.message_body',
          'howdah.message_' || $1::text, 'howdah.message_body_' || $1::text]::regclass[])
"""
_COLUMNS: Final = ", ".join(
    f'"{name}"' for name in NARROW[1:] + RICH if name not in ("body_id", "body")
)


class Maintenance:
    """Runs the upkeep of one gateway's tables, a round at a time."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        writer: Writer,
        book: SegmentBook,
        queues: QueueStore,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._writer = writer
        self._book = book
        self._queues = queues
        self._counters = counters
        self._clock = clock
        self._complain = Complaints(log).warn
        self._activity: dict[int, tuple[int, int]] | None = None  # as noted; None: by another
        self.consumers = ConsumerNotes(queues.queues, lambda: writer.fence, clock)
        self._ends: dict[int, tuple[int, int]] = {}  # newest segment and reserved offset, by queue
        self._pause = 0  # rounds without a try, after the last one was in vain
        self._rounds_left = 0
        self._in_the_way: tuple[int, set[tuple[int, str]]] = (0, set())  # of a segment, by whom
        self.blocked: set[int] = set()  # segments that nobody needs, and that a reader holds

    async def run_once(self) -> None:
        async with self._pool.acquire() as connection:
            await self._note_activity(connection)
            await self._note_ends(connection)
            if self._writer.is_generation_full:  # of commits beside the writer's own
                await self._writer.flushed()
            await self._drop_generations(connection)
            await self._close_abandoned()
            # Both of one moment: what is sealed by then takes no more messages, also none that are
            # carried forward, so that no queue is missed.
            logs_in = self._logs_by_segment()
            sealed = [each for each in self._book.segments.values() if each.is_sealed]
            waiting = {row["id"] for row in await connection.fetch(WAITING_FOR_ARCHIVE)}
            self._rounds_left = max(0, self._rounds_left - 1)
            if self._rounds_left and await self._is_free(connection):
                self._rounds_left = 0
            for segment in sealed:
                if not self._rounds_left and segment.id not in waiting:
                    await self._try(connection, segment, logs_in.get(segment.id, []))
            await self._note_consumers(connection)

    async def end(self) -> None:
        """Clears what the tables say of consumers and messages in flight: the gateway ends in
        order."""
        async with self._pool.acquire() as connection:
            await self.consumers.clear(connection)
            async with fenced(connection, self._writer.fence.unmarked()):
                await connection.execute(FORGET_ACTIVITY)

    async def _try(
        self,
        connection: asyncpg.pool.PoolConnectionProxy,
        segment: Segment,
        queues: list[ClassicQueue | StreamQueue],
    ) -> None:
        """Drops a segment if it may go. A failure is logged and does not keep the other segments,
        or the disk would fill up."""
        try:
            await self._consider(connection, segment, queues)
        except asyncpg.PostgresError as error:
            if connection.is_closed():
                raise
            self._complain("segment %d stays: %s; it is tried again", segment.id, error)

    async def _close_abandoned(self) -> None:
        """Seals the open segments of streams that were deleted, once what was on its way to them is
        written."""
        abandoned = [
            segment
            for segment in self._book.segments.values()
            if segment.queue_id is not None
            and segment.queue_id not in self._queues.queues
            and not segment.is_sealed
        ]
        for segment in abandoned:
            segment.is_sealed = True
        if abandoned:
            await self._writer.flushed()

    def _logs_by_segment(self) -> dict[int, list[ClassicQueue | StreamQueue]]:
        found: dict[int, list[ClassicQueue | StreamQueue]] = {}
        for queue in self._queues.queues.values():
            for segment in queue.log.spans:
                found.setdefault(segment, []).append(queue)
        return found

    # --- segments

    async def _consider(
        self,
        connection: asyncpg.pool.PoolConnectionProxy,
        segment: Segment,
        queues: list[ClassicQueue | StreamQueue],
    ) -> None:
        if segment.queue_id is not None:
            # of a classic queue there is nothing here: who finds something must not drop it
            if not all(isinstance(q, StreamQueue) and self._is_over(q, segment) for q in queues):
                return
            await self._drop(connection, segment, queues, {})
            return
        live: dict[Log, list[tuple[int, int]]] = {}
        for queue in queues:
            if isinstance(queue, ClassicQueue):
                first, last = queue.log.spans[segment.id]
                settled = queue.cursor.settled
                if last >= settled.floor:
                    gaps = list(settled.above.gaps(max(first, settled.floor), last + 1))
                    if gaps:
                        live[queue.log] = gaps
        count = sum(end - start for gaps in live.values() for start, end in gaps)
        if count <= min(CARRY_ROWS, CARRY_SHARE * segment.messages):
            await self._drop(connection, segment, queues, live)

    def _is_over(self, queue: StreamQueue, segment: Segment) -> bool:
        """Tells if the stream's retention lets the segment go."""
        spec = queue.spec
        series = self._book.series(queue.log.queue_id)
        newer = [s for s in series if s.id > segment.id]
        if not any(s.messages for s in newer):
            return False  # the newest one stays: it says how far the numbers have come
        if spec.max_age is not None and segment.newest_at < self._clock() - spec.max_age:
            return True
        if spec.max_bytes is not None and sum(s.bytes for s in newer) >= spec.max_bytes:
            return True
        return spec.max_length is not None and sum(s.messages for s in newer) >= spec.max_length

    async def _drop(
        self,
        connection: asyncpg.pool.PoolConnectionProxy,
        segment: Segment,
        queues: list[ClassicQueue | StreamQueue],
        live: dict[Log, list[tuple[int, int]]],
    ) -> None:
        # What was settled in memory must be so in the journal before its rows go: after a crash the
        # journal alone tells where the queue's numbers had come to.
        await self._writer.flushed()
        target = self._book.open_segment(None)
        if live and (target is None or target.is_sealed):
            return  # the next message opens one
        node = self._writer.fence.node.id
        try:
            async with fenced_on_pool(connection, self._writer.fence.begin()):
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                await connection.execute(statements.LOCK_SEGMENT, segment.id, node)
                moved = 0
                if live and target is not None:
                    moved = await self._carry(connection, segment.id, target.id, live)
                is_gone = await connection.fetchval(statements.RELEASE_SEGMENT, segment.id, node)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await self._put_off(connection, segment, is_needed=bool(live))
            return
        except asyncpg.ObjectInUseError:
            return  # marked for archive in this very moment: after its copy
        self.blocked.discard(segment.id)
        self._pause = 0
        self._book.remove(segment.id)
        for queue in queues:
            queue.log.spans.pop(segment.id, None)
            if isinstance(queue, StreamQueue):
                queue.on_retention()
        if target is not None:
            for each, gaps in live.items():
                each.grow_span(target.id, gaps[0][0], gaps[-1][1] - 1)
        self._counters.segments_dropped += is_gone
        self._counters.carried_forward += moved
        done = "dropped" if is_gone else "left to the other nodes that need it"
        log.info("segment %d %s, %d messages carried forward", segment.id, done, moved)

    async def _put_off(
        self,
        connection: asyncpg.pool.PoolConnectionProxy,
        segment: Segment,
        *,
        is_needed: bool,
    ) -> None:
        """Puts off dropping a segment that somebody reads. Each try makes others wait behind us for
        a moment, so the next one comes later and later; `howdah doctor` tells since when the
        segment could have gone."""
        self._pause = min(max(1, self._pause * 2), LONGEST_PAUSE_ROUNDS)
        self._rounds_left = self._pause
        self._in_the_way = (segment.id, await self._holders(connection, segment.id))
        if segment.id not in self.blocked and not is_needed:
            self.blocked.add(segment.id)
            # Full, and sealed in the table only when the next message needs another one.
            async with fenced(connection, self._writer.fence.unmarked()):
                await statements.seal(connection, segment)
                await connection.execute(statements.RETIRE_SEGMENT, segment.id)

    async def _is_free(self, connection: asyncpg.pool.PoolConnectionProxy) -> bool:
        """Tells if every session has ended that was in the way of the last try. Looking makes
        nobody wait, so the end of a long reader is noticed at the next round."""
        segment, holders = self._in_the_way
        if segment not in self._book.segments or not holders:
            return False
        return not holders & await self._holders(connection, segment)

    async def _holders(
        self, connection: asyncpg.pool.PoolConnectionProxy, segment: int
    ) -> set[tuple[int, str]]:
        rows = await connection.fetch(HOLDERS, str(segment))
        return {(row["pid"], row["virtualtransaction"]) for row in rows}

    async def _carry(
        self,
        connection: asyncpg.pool.PoolConnectionProxy,
        source: int,
        target: int,
        live: dict[Log, list[tuple[int, int]]],
    ) -> int:
        moved = 0
        for each, gaps in live.items():
            ranges = "{" + ",".join(f"[{start},{end})" for start, end in gaps) + "}"
            tag = await connection.execute(
                f"INSERT INTO howdah.message_{target} (segment_id, {_COLUMNS}, body) "
                f"SELECT $1, {_COLUMNS}, coalesce(m.body, (SELECT b.body FROM "
                f"howdah.message_body_{source} b WHERE b.id = m.body_id)) "
                f'FROM howdah.message_{source} m WHERE queue_id = $2 AND "offset" <@ '
                "$3::text::int8multirange",
                target,
                each.queue_id,
                ranges,
            )
            moved += int(tag.rsplit(" ", 1)[1])
        return moved

    # --- journal

    async def _drop_generations(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        for (generation,) in await connection.fetch(statements.UNUSED_GENERATIONS):
            try:
                async with fenced_on_pool(connection, self._writer.fence.begin()):
                    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                    await connection.execute(statements.DROP_GENERATION, generation)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                return
            except asyncpg.ObjectInUseError:
                continue  # another node has dropped it meanwhile

    # --- for the DBA's views

    async def _note_activity(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        if self._activity is None:
            async with fenced(connection, self._writer.fence.unmarked()):
                await connection.execute(FORGET_ACTIVITY)
            self._activity = {}
        changed: dict[int, tuple[int, int]] = {}
        for queue_id, queue in self._queues.queues.items():
            counts = queue.counts()
            now = (counts.in_flight, counts.consumers)
            if self._activity.get(queue_id, (0, 0)) != now:
                changed[queue_id] = now
        if not changed:
            return
        async with fenced(connection, self._writer.fence.unmarked()):
            await connection.execute(
                ACTIVITY,
                list(changed),
                [in_flight for in_flight, _ in changed.values()],
                [consumers for _, consumers in changed.values()],
            )
        self._activity |= changed

    async def _note_consumers(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        """Updates the table of consumers. It is for people alone, so a failure is logged and stops
        nothing else."""
        try:
            await self.consumers.note(connection)
        except asyncpg.PostgresError as error:
            if connection.is_closed():
                raise
            self._complain("who consumes is not noted: %s; it is tried again", error)

    async def _note_ends(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        """Notes where each queue's log ends, beside its partitions: once for each segment that it
        has messages in, and with numbers in reserve. So the end is known when a partition is taken
        away by hand, and its numbers are not given again."""
        changed: dict[int, tuple[int, int]] = {}
        noted: dict[int, tuple[int, int]] = {}
        for queue_id, queue in self._queues.queues.items():
            tail = queue.log.tail
            newest = max(queue.log.spans, default=0)
            known, reserved = self._ends.get(queue_id, (0, 0))
            if tail and (newest > known or tail > reserved - RESERVED_OFFSETS // 2):
                changed[queue_id] = (tail, max(tail + RESERVED_OFFSETS, reserved))
                noted[queue_id] = (newest, changed[queue_id][1])
        gone = self._ends.keys() - self._queues.queues.keys()
        if not gone and not changed:
            return
        async with fenced(connection, self._writer.fence.unmarked()):
            if gone:
                await connection.execute(FORGET_LOG_ENDS)
            if changed:
                await connection.execute(
                    LOG_ENDS,
                    list(changed),
                    [end for end, _ in changed.values()],
                    [reserved for _, reserved in changed.values()],
                )
        for queue_id in gone:
            del self._ends[queue_id]
        self._ends |= noted  # once it is written: else it is tried again
