"""Queues that are tables: made, found again after a restart, ended, and looked into."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor_spec import SavedProgress
from queue_core.delivery.delayed import Delay
from queue_core.delivery.intervals import Intervals
from queue_core.delivery.ready_by_priority import PriorityReady
from queue_core.delivery.settled_offsets import Settled
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.deduplication_by_header import Present, PresentKeys
from queue_core.queues.deduplication_by_message_id import Window
from queue_core.queues.exchange_state_queues import stored_memory_class
from queue_core.queues.spec import QueueKind, QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.store.lost_commits.losses import TORN, Loss, note_losses
from queue_core.store.read.reader import Reader
from queue_core.store.read.recovery import PAGE_ROWS, Recovered
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.write.fence import Fence, fenced_on_pool

if TYPE_CHECKING:
    from queue_core.queues.context import QueueContext
    from queue_core.queues.queue import Queue
    from queue_core.vhost import Vhost

Reading = asyncpg.Connection | PoolConnectionProxy


COUNT_TRIES: Final = 5  # to count the bytes of a queue while its segments come and go

# One probe for each queue and segment: LIMIT keeps the planner from joining whole tables.
HEADS: Final = """
    SELECT t.queue_id, head.expires_at
    FROM unnest($1::int8[], $2::int8[]) AS t (queue_id, floor)
    CROSS JOIN LATERAL (
        SELECT m.expires_at FROM howdah.message m
        WHERE m.queue_id = t.queue_id AND m."offset" = t.floor LIMIT 1
    ) AS head
    WHERE head.expires_at IS NOT NULL
"""


class QueueStore:
    """Implements the core's `StoredQueues`. `logs` are all that exist, for segments and journal."""

    def __init__(self, definitions: DefinitionStore, reader: Reader, fence: Fence) -> None:
        self._definitions = definitions
        self._reader = reader
        self._fence = fence
        self.queues: dict[int, ClassicQueue | StreamQueue] = {}

    async def create(
        self, context: QueueContext, spec: QueueSpec, created_by: str | None
    ) -> ClassicQueue | StreamQueue:
        queue_id = await self._definitions.add_queue(context.vhost_name, spec, created_by)
        queue = self._make(context, spec, _log(queue_id, spec, 0), None)
        self.queues[queue_id] = queue
        return queue

    async def delete(self, queue: Queue) -> None:
        if isinstance(queue, ClassicQueue | StreamQueue):
            await self._definitions.remove_queue(queue.context.vhost_name, queue.name)
            self.queues.pop(queue.log.queue_id, None)

    def lies_in(self, segments: Set[int]) -> bool:
        """Tells whether some queue holds messages in one of those segments."""
        return any(segments & queue.log.spans.keys() for queue in self.queues.values())

    async def count_bytes(self, queue: Queue) -> None:
        for _ in range(COUNT_TRIES):
            if isinstance(queue, ClassicQueue) and queue.lacks_bytes and not queue.is_deleted:
                # A segment may be dropped while it is counted: then everything in it is settled.
                with suppress(asyncpg.UndefinedTableError):
                    async with self._reader.pool.acquire() as connection:
                        await self._count_bytes(connection, queue)

    async def _count_bytes(self, connection: Reading, queue: ClassicQueue) -> None:
        """Counts what is unsettled at this moment in the database, and takes off what is not
        ready. What comes and goes until the answer is here the queue counts itself."""
        cursor = queue.cursor
        counted, held = cursor.ready.bytes, cursor.delayed.bytes
        for consumer in cursor.consumer_set.holders():
            held += sum(each.entry.message.size() for each in consumer.unsettled.values())
        unsettled = await self._sum_bytes(connection, queue)
        if not queue.knows_bytes:
            queue.knows_bytes = True
            cursor.ready.bytes += unsettled - held - counted
            queue.enforce_limits()

    async def browse(self, queue: Queue, start: int, limit: int) -> list[Entry]:
        if not isinstance(queue, ClassicQueue | StreamQueue):
            return []
        settled = Settled() if isinstance(queue, StreamQueue) else queue.cursor.settled
        found: list[Entry] = []
        at = max(start, settled.floor)
        while len(found) < limit and at < queue.log.tail:
            end = queue.log.tail
            chunk = await self._reader.read_range(queue.log, at, end, max(limit, 100))
            if not chunk:
                break
            if isinstance(queue, ClassicQueue) and queue.cursor.history.amendments:
                for entry in chunk:
                    self._reader.amend(entry, queue.cursor.history.amendments)
            found += [entry for entry in chunk if entry.offset not in settled]
            at = chunk[-1].offset + 1
        return found[:limit]

    async def restore(
        self,
        vhost: Vhost,
        spec: QueueSpec,
        queue_id: int,
        found: Recovered,
        connection: PoolConnectionProxy,
    ) -> ClassicQueue | StreamQueue:
        """A queue as it was when the last gateway ended."""
        is_stream = spec.kind is QueueKind.STREAM
        torn = found.torn_off(queue_id, is_stream=is_stream)
        if torn is not None:
            await self._note_torn(connection, vhost, spec, queue_id, torn)
            found.gaps.setdefault(queue_id, Intervals()).add_range(*torn)
        log = _log(queue_id, spec, found.end_of(queue_id, is_stream=is_stream))
        log.spans = found.spans.get(queue_id, {})
        queue = self._make(vhost.context, spec, log, found)
        self.queues[queue_id] = queue
        if isinstance(queue, ClassicQueue):
            if isinstance(queue.window, Window):
                queue.window.restore(found.seen_ids.get(queue_id, {}))
            if isinstance(queue.window, PresentKeys):
                await self._restore_keys(connection, queue, queue.window)
            if isinstance(queue.cursor.ready, PriorityReady):
                await self._restore_priorities(connection, queue, queue.cursor.ready)
            if spec.max_bytes is not None:
                await self._restore_bytes(connection, queue)
            await self._restore_delays(connection, queue, found)
        else:
            for offset, until in found.due.get(queue_id, {}).items():
                queue.due_times.add(until, offset)
        return queue

    async def _note_torn(
        self,
        connection: PoolConnectionProxy,
        vhost: Vhost,
        spec: QueueSpec,
        queue_id: int,
        torn: tuple[int, int],
    ) -> None:
        first, end = torn
        what = (
            f"messages of queue '{spec.name}' in virtual host '{vhost.name}', offsets {first} to "
            f"at most {end - 1}: a table of theirs was taken away; numbers go on at {end}"
        )
        loss = Loss(TORN, what, vhost.name, spec.name, queue_id, first, end)
        async with fenced_on_pool(connection, self._fence.begin()):
            await note_losses(connection, [loss])

    async def watch_expiry(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        """A message expires at the head of its queue: those that stand there now are watched, so
        that they go in time with nobody consuming or publishing."""
        waiting = {
            queue_id: queue
            for queue_id, queue in self.queues.items()
            if isinstance(queue, ClassicQueue) and queue.cursor.settled.floor < queue.log.tail
        }
        heads = [_head_offset(queue) for queue in waiting.values()]
        for row in await connection.fetch(HEADS, list(waiting), heads):
            waiting[row["queue_id"]].expect_expiry(row["expires_at"].timestamp())

    def _make(
        self, context: QueueContext, spec: QueueSpec, log: Log, found: Recovered | None
    ) -> ClassicQueue | StreamQueue:
        source = self._reader.source(log)
        groups = {} if found is None else found.groups.get(log.queue_id, {})
        gaps = Intervals() if found is None else found.gaps.get(log.queue_id, Intervals())
        if spec.kind is QueueKind.STREAM:
            return StreamQueue(
                spec,
                context,
                log,
                source,
                {name: state.settled for name, state in groups.items()},
                {name: state.handed_out for name, state in groups.items()},
                gaps,
            )
        state = groups.get("")
        settled = Settled() if state is None else state.settled
        for start, end in gaps:  # nobody waits for what is not there
            settled.mark_range(start, end)
        log.remembers_ids = spec.dedup_window is not None
        kind = stored_memory_class(spec.name) or ClassicQueue
        saved = SavedProgress(
            settled,
            0 if state is None else state.handed_out,
            {} if found is None else found.failures.get(log.queue_id, {}),
        )
        queue = kind(spec, context, log, source, saved)
        history = queue.cursor.history
        if found is not None:
            history.amendments.update(found.amendments.get(log.queue_id, {}))
            history.delays.update(found.delays.get(log.queue_id, {}))
        source.amendments, source.delays = history.amendments, history.delays
        return queue

    async def _restore_priorities(
        self, connection: Reading, queue: ClassicQueue, ready: PriorityReady
    ) -> None:
        settled = queue.cursor.settled
        for segment in queue.log.segments_of(settled.floor, queue.log.tail):
            statement = (
                f'SELECT "offset", priority FROM howdah.message_{segment} '
                'WHERE queue_id = $1 AND "offset" >= $2 ORDER BY "offset"'
            )
            async with connection.transaction():  # in pages: it may be millions
                rows = connection.cursor(
                    statement, queue.log.queue_id, settled.floor, prefetch=PAGE_ROWS
                )
                async for row in rows:
                    if row["offset"] not in settled:
                        ready.give_back_offset(row["offset"], row["priority"] or 0)

    async def _restore_keys(
        self, connection: Reading, queue: ClassicQueue, present: PresentKeys
    ) -> None:
        """Restores the record that tells repetitions of messages that are in the queue."""
        settled, now = queue.cursor.settled, queue.context.clock()
        for segment in queue.log.segments_of(settled.floor, queue.log.tail):
            statement = (
                f'SELECT "offset", form, native, deaths IS NOT NULL, expires_at '
                f'FROM howdah.message_{segment} WHERE queue_id = $1 AND "offset" >= $2 '
                'AND headers IS NOT NULL ORDER BY "offset"'
            )
            async with connection.transaction():
                rows = connection.cursor(
                    statement, queue.log.queue_id, settled.floor, prefetch=PAGE_ROWS
                )
                async for offset, form, native, has_died, expires_at in rows:
                    if offset in settled or has_died:
                        continue
                    message = self._reader.message_without_body(form, native)
                    if (key := message.repetition_key) is not None:
                        until = None if expires_at is None else expires_at.timestamp()
                        present.put(key, Present(now, 0, offset, until))

    async def _restore_bytes(self, connection: Reading, queue: ClassicQueue) -> None:
        queue.cursor.ready.bytes += await self._sum_bytes(connection, queue)
        queue.knows_bytes = True

    async def _sum_bytes(self, connection: Reading, queue: ClassicQueue) -> int:
        """Sums the sizes of the messages that are not settled at the moment of the call."""
        settled, queue_id, end = queue.cursor.settled, queue.log.queue_id, queue.log.tail
        floor, above, total = settled.floor, settled.above.text(), 0
        for segment in queue.log.segments_of(floor, end):
            statement = f"""
                SELECT sum({_size_in(segment)})::int8 FROM howdah.message_{segment}
                WHERE queue_id = $1 AND "offset" >= $2 AND "offset" < $3
                  AND NOT "offset" <@ $4::text::int8multirange
            """
            found = await connection.fetchval(statement, queue_id, floor, end, above)
            total += found or 0
        return total

    async def _restore_delays(
        self, connection: Reading, queue: ClassicQueue, found: Recovered
    ) -> None:
        """Sets aside what is not due: what a publisher delayed, or a consumer put off later."""
        cursor, queue_id = queue.cursor, queue.log.queue_id
        now = queue.context.clock()
        times = found.due.pop(queue_id, {}) | found.delays.get(queue_id, {})
        times = {o: t for o, t in times.items() if t > now and o not in cursor.settled}
        if not times:
            return
        # Their sizes too: a policy may set a limit of bytes at any time.
        known = await self._order_facts(connection, queue.log, sorted(times))
        if queue.spec.max_bytes is not None:
            cursor.ready.bytes -= sum(size for _, size in known.values())
        cursor.delayed.restore({o: Delay(t, *known.get(o, (0, 0))) for o, t in times.items()})

    async def _order_facts(
        self, connection: Reading, log: Log, offsets: list[int]
    ) -> dict[int, tuple[int, int]]:
        """Priority and size of single messages, by offset."""
        known: dict[int, tuple[int, int]] = {}
        for segment in log.segments_of(offsets[0], offsets[-1] + 1):
            statement = (
                f'SELECT "offset", coalesce(priority, 0), {_size_in(segment)} '
                f"FROM howdah.message_{segment} "
                'WHERE queue_id = $1 AND "offset" = ANY($2::int8[])'
            )
            for row in await connection.fetch(statement, log.queue_id, offsets):
                known[row[0]] = (row[1], row[2])
        return known


def _size_in(segment: int) -> str:
    """The size of a message's body and properties, in the terms of its row."""
    return f"""coalesce(octet_length(body), (
        SELECT octet_length(b.body) FROM howdah.message_body_{segment} b
        WHERE b.id = body_id), 0) + coalesce(octet_length(native), 0)"""


def _head_offset(queue: ClassicQueue) -> int:
    head = queue.cursor.ready.head_offset()
    return queue.cursor.settled.floor if head is None else head


def _log(queue_id: int, spec: QueueSpec, tail: int) -> Log:
    return Log(queue_id, tail, is_stream=spec.kind is QueueKind.STREAM)
