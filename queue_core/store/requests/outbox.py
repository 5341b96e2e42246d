"""The outbox: messages that applications insert in their own transactions.

Committed rows are routed like any publish, and deleted in the transaction that appends the
messages: exactly once, and nobody waits for a lock of ours. Polled, because NOTIFY would make
every committing application wait for one global lock.

A stored queue that is full and set to reject-publish loses nothing that SQL published: the row
stays until that queue has room, and says in `waiting_for` which queues it has still to enter. The
others have it already. Each queue gets its messages in the order of the outbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from queue_core.commit.unit import OutboxRecord, Unit
from queue_core.counters import Counters
from queue_core.errors import CoreError, InvalidArgument, LimitExceeded
from queue_core.message.message import Message
from queue_core.outcomes import Published
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Appends, wait_for_room
from queue_core.queues.spec import Overflow
from queue_core.store.write.rows import Forms, message_from_row
from queue_core.store.write.writer import Writer

if TYPE_CHECKING:
    from queue_core.commit.unit import Record
    from queue_core.queues.queue import Queue
    from queue_core.routing.route import Route
    from queue_core.sessions.retained import Retained
    from queue_core.store.requests.sql_commands import Commands
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

CHUNK_ROWS: Final = 1000
CHUNK_BYTES: Final = 16 * 1024 * 1024  # that are read at once, and one message more
RESCAN_SECONDS: Final = 5.0  # after which the outbox is read from its first row again


def _first_rows(condition: str, columns: str = "") -> str:
    """Makes the statement that reads the first rows of the outbox, of which the last may go beyond
    CHUNK_BYTES. Their sizes are known without reading them: a body lies uncompressed."""
    return f"""
        SELECT o.*{columns} FROM (
            SELECT o.*, s.bytes, sum(s.bytes) OVER (ORDER BY o.id ROWS UNBOUNDED PRECEDING)
                AS bytes_so_far
            FROM howdah.outbox o CROSS JOIN LATERAL (
                SELECT coalesce(octet_length(o.body), 0) + coalesce(pg_column_size(o.headers), 0)
                    AS bytes
            ) s
            WHERE {condition}
            ORDER BY o.id LIMIT {CHUNK_ROWS}
        ) o WHERE o.bytes_so_far - o.bytes < {CHUNK_BYTES} ORDER BY o.id
    """


ROWS: Final = _first_rows(
    "o.id > $1 AND o.id <> ALL($2::int8[]) AND o.waiting_for IS NULL",
    ", pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS oldest_running, "
    "pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next_to_run",
)
WAITED_FOR: Final = """
    SELECT DISTINCT o.vhost, unnest(o.waiting_for) AS queue FROM howdah.outbox o
    WHERE o.waiting_for IS NOT NULL
"""
WAITING: Final = _first_rows(
    "o.waiting_for IS NOT NULL AND o.waiting_for @> ARRAY[$2::text] AND o.vhost = $1"
)

QueueKey = tuple[str, str]  # vhost and name


def _has_more(rows: list[asyncpg.Record]) -> bool:
    """Tells if the outbox may have more rows than were read at once."""
    return len(rows) >= CHUNK_ROWS or (bool(rows) and rows[-1]["bytes_so_far"] >= CHUNK_BYTES)


def _count_before(rows: list[asyncpg.Record], moment: datetime) -> int:
    """Counts the rows, given in their order, that were inserted before a moment."""
    for count, row in enumerate(rows):
        if row["inserted_at"] >= moment:
            return count
    return len(rows)


class Outbox:
    """Publishes the rows of howdah.outbox, and keeps those back that wait for room in a full
    queue."""

    def __init__(
        self,
        vhosts: Mapping[str, Vhost],
        writer: Writer,
        forms: Forms,
        counters: Counters,
        retained: Retained,
    ) -> None:
        self._retained = retained
        self._vhosts = vhosts
        self._writer = writer
        self._forms = forms
        self._counters = counters
        self._under_way: set[int] = set()
        self._failed: set[int] = set()  # never to be stored; a restart tries once more
        # All up to `_low` is known to be drained or rolled back: scans start behind it, and behind
        # the dead rows that a long reader keeps from being vacuumed.
        self._low = 0
        self._candidate: tuple[int, int] | None = None
        self._next_rescan = 0.0
        self._waited_for: set[QueueKey] | None = None  # None: not read yet
        self._holding: asyncio.Task[None] | None = None  # until slow subscribers have room

    def close(self) -> None:
        """Stops waiting for slow subscribers."""
        if self._holding is not None:
            self._holding.cancel()

    async def drain(
        self, connection: asyncpg.pool.PoolConnectionProxy, now: float, commands: Commands
    ) -> int:
        """Publishes committed rows and runs commands, in the order in which a transaction said
        them: a queue is declared before the messages that follow. Returns the number of both."""
        entered = await self._let_all_in(connection, now)
        rows = await self._rows(connection)
        # Read after the rows: whoever's message is seen, their commands are, too.
        open_commands = await commands.open(connection)
        if open_commands:
            # They may be of a transaction that was committed between the two looks, and whose
            # messages came before them: both are looked at again, as of one moment.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                rows = await self._rows(connection)
                open_commands = await commands.open(connection)
            await commands.forget(connection)
        published = 0
        for command in open_commands:
            before = _count_before(rows, command["requested_at"])
            if before == len(rows) and _has_more(rows):
                break  # what comes next may have been said before it
            if before > published:
                self._publish_all(rows[published:before])
                published = before
            await commands.run(connection, command)
        self._publish_all(rows[published:])
        if rows:
            self._move_low(rows)
        return len(rows) + entered + len(open_commands)

    async def _rows(self, connection: asyncpg.pool.PoolConnectionProxy) -> list[asyncpg.Record]:
        """Reads messages that nobody has looked at yet; none while slow subscribers make the outbox
        wait."""
        if self._holding is not None and not self._holding.done():
            return []
        known = [*self._under_way, *self._failed]
        rows: list[asyncpg.Record] = await connection.fetch(ROWS, self._low, known)
        return rows

    async def _let_all_in(self, connection: asyncpg.pool.PoolConnectionProxy, now: float) -> int:
        """Publishes messages that waited for room to the queues that have some now."""
        if now >= self._next_rescan:
            # a transaction may take its number from the sequence long before it shows
            self._low, self._next_rescan = 0, now + RESCAN_SECONDS
        if self._waited_for is None:
            found = await connection.fetch(WAITED_FOR)
            self._waited_for = {(row["vhost"], row["queue"]) for row in found}
        entered = 0
        # only when all is written that was said about waiting: what is not yet, cannot be seen
        for key in [k for k in self._waited_for if self._has_room(k) and not self._under_way]:
            entered += await self._let_in(connection, key)
        return entered

    def _publish_all(self, rows: list[asyncpg.Record]) -> None:
        if not rows:
            return
        self._take_pressed()  # by others, before
        for row in rows:
            try:
                self._publish(row)
            except Exception as error:  # a bug, or a row that nobody understands: the others go on
                log.exception("outbox row %d cannot be published", row["id"])
                self.on_refused([row["id"]], InvalidArgument(str(error)))
        if pressed := self._take_pressed():
            self._holding = asyncio.create_task(wait_for_room(pressed))

    def _take_pressed(self) -> list[Queue]:
        """Takes the queues of slow subscribers that were found full. All that SQL publishes comes
        from one outbox, which waits for them as any publisher does."""
        return [queue for vhost in self._vhosts.values() for queue in vhost.take_pressed()]

    def _move_low(self, rows: list[asyncpg.Record]) -> None:
        """Moves the id behind which scans start. A row that was not visible when the candidate was
        noted has shown itself by the time that every transaction of then has ended."""
        last = rows[-1]
        if self._candidate is None:
            self._candidate = (last["id"], last["next_to_run"])
        elif last["oldest_running"] >= self._candidate[1]:
            self._low = max(self._low, min(self._candidate[0], last["id"]))
            self._candidate = None

    def _publish(self, row: asyncpg.Record) -> None:
        outbox_id: int = row["id"]
        self._under_way.add(outbox_id)
        self._counters.outbox_drained += 1
        message = self._message(row)
        more: tuple[Record, ...] = ()
        if row["retain"]:
            try:
                more = (self._retained.record(row["vhost"], message, 1),)
            except LimitExceeded as error:
                log.warning("outbox row %d is published, but not retained: %s", outbox_id, error)
        self._route(row["vhost"], message, more, outbox_id)

    def _message(self, row: asyncpg.Record) -> Message:
        message = message_from_row(row, self._forms)  # type: ignore[arg-type]
        not_before = row["not_before"]
        message.not_before = None if not_before is None else not_before.timestamp()
        message.publisher = row["publisher"] or row["requested_by"]
        return message

    def _route(
        self, vhost_name: str, message: Message, more: tuple[Record, ...], outbox_id: int
    ) -> None:
        vhost = self._vhosts.get(vhost_name)
        try:
            if vhost is None:
                raise CoreError(f"vhost '{vhost_name}' does not exist")
            route = vhost.router.route(
                message.exchange,
                message.routing_key,
                message.properties.header_map,
                message.deciding_property,
            )
        except CoreError as error:
            log.warning("outbox row %d dropped: %s", outbox_id, error)
            self._counters.unroutable += 1
            self._writer.submit(Unit([], self, outbox_id, None, (OutboxRecord(outbox_id), *more)))
            return
        if not route and not more:  # a retained message has its place
            self._counters.unroutable += 1
            log.warning(
                "outbox row %d: nothing is bound for exchange '%s' with key '%s'; dropped",
                outbox_id,
                message.exchange,
                message.routing_key,
            )
        open_ones, full_ones = self._split(vhost, message, route)
        if full_ones:
            self._counters.outbox_deferred += 1
        records = (OutboxRecord(outbox_id, full_ones), *more)
        result = vhost.publish_to(message, open_ones, self, outbox_id, records)
        if result is Published.REFUSED:
            # one in memory, which is no place to wait for, or one that dead-letters what it refuses
            log.warning("outbox row %d: a queue that does not make it wait is full", outbox_id)
            self._writer.submit(Unit([], self, outbox_id))  # behind the unit that takes the row

    # --- full queues

    def _split(
        self, vhost: Vhost, message: Message, route: Route[Queue]
    ) -> tuple[Route[Queue], tuple[str, ...]]:
        """Splits a route into the queues that take the message now, and the names of the full ones
        that it waits for."""
        assert self._waited_for is not None
        full_ones = []
        if vhost.context.delays.refuses(message.not_before):
            vhost.context.delays.count_refused()
            full_ones = [
                queue.name
                for queue, _ in route
                if not queue.is_memory and not isinstance(queue, EphemeralQueue)
            ]  # those in memory have bounds of their own, and are no place to wait for
            self._waited_for.update((vhost.name, name) for name in full_ones)
        for queue, _ in route:
            if queue.name in full_ones or not isinstance(queue, ClassicQueue):
                continue
            if queue.spec.overflow is not Overflow.REJECT_PUBLISH:
                continue
            key = (vhost.name, queue.name)
            if key in self._waited_for:
                full_ones.append(queue.name)  # behind those that wait already
            elif queue.is_full(queue.log.pending):
                full_ones.append(queue.name)
                self._waited_for.add(key)
                log.warning(
                    "queue '%s' is full: what SQL publishes to it waits in the outbox; consume "
                    "from it, or raise its limit",
                    queue.name,
                )
        if not full_ones:
            return route, ()
        open_ones = tuple(match for match in route if match.queue.name not in full_ones)
        return open_ones, tuple(full_ones)

    def _queue(self, key: QueueKey) -> Queue | None:
        vhost = self._vhosts.get(key[0])
        return None if vhost is None else vhost.queues.get(key[1])

    def _has_room(self, key: QueueKey) -> bool:
        """Tells if a queue takes messages from the outbox again. A deleted queue counts as one that
        does: nothing needs to wait for it."""
        queue = self._queue(key)
        return not isinstance(queue, ClassicQueue) or not queue.is_full(queue.log.pending)

    def _may_enter(self, row: asyncpg.Record, key: QueueKey) -> bool:
        queue, not_before = self._queue(key), row["not_before"]
        until = None if not_before is None else not_before.timestamp()
        if queue is not None and queue.context.delays.refuses(until):
            return False
        return self._has_room(key)

    async def _let_in(self, connection: asyncpg.pool.PoolConnectionProxy, key: QueueKey) -> int:
        """Publishes the messages that wait for this queue, in order, until it is full again."""
        assert self._waited_for is not None
        rows = await connection.fetch(WAITING, *key)
        entered = 0
        for row in rows:
            if row["id"] in self._failed:
                continue
            if row["id"] in self._under_way or not self._may_enter(row, key):
                return entered  # the rest comes behind it
            try:
                self._enter(row, key)
            except Exception as error:
                log.exception("outbox row %d cannot enter queue '%s'", row["id"], key[1])
                self.on_refused([row["id"]], InvalidArgument(str(error)))
                continue
            entered += 1
        if not _has_more(rows):
            self._waited_for.discard(key)
            log.info("queue '%s' has room again: nothing waits for it in the outbox", key[1])
        return entered

    def _enter(self, row: asyncpg.Record, key: QueueKey) -> None:
        outbox_id: int = row["id"]
        queue = self._queue(key)
        appends: Appends = []
        if queue is None:
            self._counters.unroutable += 1
            log.warning("outbox row %d dropped: queue '%s' is gone", outbox_id, key[1])
        else:
            queue.take(self._message(row), (), appends)
        self._under_way.add(outbox_id)
        left = tuple(name for name in row["waiting_for"] if name != key[1])
        self._writer.submit(Unit(appends, self, outbox_id, None, (OutboxRecord(outbox_id, left),)))

    # --- the writer's publisher

    def on_committed(self, tokens: list[int]) -> None:
        self._under_way.difference_update(tokens)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        """Remembers rows that cannot be stored, so that they are not tried again; a restart tries
        once more."""
        self._under_way.difference_update(tokens)
        self._failed.update(tokens)
        log.error("outbox rows %s cannot be stored: %s", tokens, error)
