"""Streams: a log that everyone may read, each group by its own cursor.

Acknowledging moves the group's cursor over what is settled without gaps. A stream has nothing to
requeue: releasing or rejecting frees credit only, and the message comes again when the group is
joined anew. What is old goes by retention, in whole segments; see `store.segments`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from math import inf
from typing import Final, Protocol

from queue_core.commit.queue_log import Log
from queue_core.counters import QueueCounts
from queue_core.delivery.clean_shutdown import end_lease
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Entry, Position, Sink
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.cursor_spec import CursorSpec, SavedProgress
from queue_core.delivery.delayed import DueTimes
from queue_core.delivery.intervals import Intervals
from queue_core.delivery.ready import FifoReady, Ready, Source
from queue_core.delivery.settled_offsets import Settled
from queue_core.errors import (
    CoreError,
    InvalidArgument,
    LimitExceeded,
    NotSupported,
    QueueNotFound,
    ResourceLocked,
)
from queue_core.message.message import Message
from queue_core.queues.context import QueueContext
from queue_core.queues.queue import Appends, Queue
from queue_core.queues.spec import QueueSpec, is_storable
from queue_core.scheduler import scheduler
from queue_core.timers import Appointment

MOST_GROUPS: Final = 10_000  # of one stream: each is remembered for as long as the stream is

LARGEST_OFFSET: Final = 2**62  # leaves room in a bigint for what is counted on from there
EARLIEST: Final = 0.0  # nothing was enqueued before the epoch,
LATEST: Final = 253_402_300_000.0  # and nothing will be after the year 9999


class StreamSource(Source, Protocol):
    """A source of messages that also finds an offset by time."""

    def offset_at(self, time: float) -> Awaitable[int]:
        """Finds the first offset whose message was enqueued at that time or later; the tail if
        there is none."""
        ...


def segment_bytes(spec: QueueSpec) -> int | None:
    """Tells when a segment of a stream is full; None: when the gateway's own setting says so.
    Retention drops whole segments, so at least a handful of them must fit into the limit."""
    limits = [spec.segment_bytes, spec.max_bytes and max(65_536, spec.max_bytes // 8)]
    return min((limit for limit in limits if limit), default=None)


class StreamQueue(Queue):
    """A log that every group reads at its own pace. Implements the cursors' `Policy`, of which a
    stream needs little: a stream keeps what it gets, repetitions too, has room for all, and is
    never idle; old messages go by retention."""

    is_stored = True
    is_stream = True

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        log: Log,
        source: StreamSource,
        groups: dict[str, Settled] | None = None,
        leases: dict[str, int] | None = None,
        gaps: Intervals | None = None,
    ) -> None:
        super().__init__(spec, context)
        self.log = log
        log.segment_bytes = segment_bytes(spec)
        self._source = source
        self._groups = groups or {}  # of those that nobody reads by at the moment, too
        self._leases = leases or {}
        self._gaps = gaps or Intervals()  # offsets whose messages the database has lost
        for settled in self._groups.values():
            self._pass_gaps(settled)
        self._cursors: dict[str, Cursor] = {}
        # Of groups that nobody reads by: what was handed out, and may still be settled.
        self._put_away: list[Cursor] = []
        self.due_times = DueTimes(context.delays, self._on_messages_due, self._wake_at)
        self._waking: Appointment | None = None
        log.on_arrival = self._on_arrival

    def _on_arrival(self, entries: list[Entry]) -> None:
        self.traffic.count_published(len(entries))

    def apply(self, spec: QueueSpec) -> None:
        """Takes over what policies have changed: the next look at retention goes by it."""
        super().apply(spec)
        self.log.segment_bytes = segment_bytes(spec)

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        """Takes every message: a stream that is too long loses its oldest."""
        entry = Entry(message, options or None, not_before=message.not_before)
        if message.not_before is not None:
            self.log.on_commit = self._on_commit
        self.log.pending += 1
        appends.append((self.log, entry))
        return True

    @property
    def takes_runs(self) -> bool:
        return True

    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends:
        """Takes all messages of a run, as `take` does, for one unit of the writer."""
        return self.log.expect_run(messages, options)

    @property
    def pending(self) -> int:
        return self.log.pending

    @property
    def next_offset(self) -> int:
        return self.log.next_offset + self.log.pending

    def _on_commit(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.not_before is not None:
                self.due_times.add(entry.not_before, entry.offset)

    def _on_messages_due(self, offsets: list[int]) -> None:
        """Gives messages whose time has come to the groups that have passed over them. Where a
        group has not come to them yet they are ready anyway, and none of them was handed out."""
        for cursor in self.log.cursors:
            for offset in offsets:
                if offset not in cursor.settled and not cursor.ready.knows(offset, 0):
                    cursor.give_back_offset(offset)

    def _wake_at(self, when: float) -> None:
        if self._waking is not None:
            self._waking.cancel()
        self._waking = self.context.agenda.at(when, self._wake)

    def _wake(self) -> None:
        """Lets the groups hand out what is due, whoever noticed that it is."""
        self._waking = None
        self.due_times.end_due(self.context.clock())
        if self.due_times.next_time < inf:
            self._wake_at(self.due_times.next_time)
        for cursor in list(self.log.cursors):
            cursor.pump()

    @property
    def first_offset(self) -> int:
        """Gives the offset where the log begins: retention has dropped everything before it."""
        return min((first for first, _ in self.log.spans.values()), default=self.log.tail)

    @property
    def _last_offset(self) -> int:
        """Gives the offset of the newest message; the last numbers may be of messages that were
        lost."""
        last = self.log.tail - 1
        for start, end in reversed(list(self._gaps)):
            if start <= last < end:
                last = start - 1
        return last

    def _pass_gaps(self, settled: Settled) -> None:
        """Settles offsets for a group that have no message, so that it does not wait for them."""
        for start, end in self._gaps:
            if end > settled.floor:
                settled.mark_range(max(start, settled.floor), end)

    async def find_start(self, spec: ConsumerSpec) -> int:
        """Finds where the reader's cursor begins, if it is new: a committed position wins over the
        one that is asked for."""
        if spec.exclusive and spec.group is None:
            raise InvalidArgument(f"stream '{self.name}': an exclusive consumer needs a group")
        if spec.group is None:
            return await self._find(spec.start)
        self._check_group(spec.group)
        settled = self._groups.get(spec.group)
        return await self._find(spec.start) if settled is None else settled.floor

    def consume(self, sink: Sink, spec: ConsumerSpec, start: int = 0) -> Consumer:
        if self.is_deleted:  # while its start was looked for
            raise QueueNotFound(f"stream '{self.name}' was deleted")
        cursor = self._cursor(spec, start)
        if spec.exclusive and cursor.consumers:
            raise ResourceLocked(f"group '{spec.group}' of stream '{self.name}' has consumers")
        if any(consumer.spec.exclusive for consumer in cursor.consumers):
            raise ResourceLocked(
                f"group '{spec.group}' of stream '{self.name}' is in exclusive use"
            )
        return cursor.add_consumer(sink, spec)

    def consume_one(self, sink: Sink, spec: ConsumerSpec) -> Consumer:
        raise NotSupported(f"stream '{self.name}' is read by consumers, not by get")

    def _cursor(self, spec: ConsumerSpec, start: int) -> Cursor:
        if spec.group is None:
            return self._open("", Settled(start), is_kept=False)
        cursor = self._cursors.get(spec.group)
        if cursor is None:  # another may have come, and committed, while we looked for the start
            settled = self._groups.setdefault(spec.group, Settled(start))
            cursor = self._cursors[spec.group] = self._open(spec.group, settled, is_kept=True)
            self.context.journal.note(cursor)
        return cursor

    def _check_group(self, group: str) -> None:
        """Refuses a group's name that the journal cannot hold: it is written there with everybody
        else's rows, and stays."""
        if not is_storable(group) or len(group) > 255:
            raise InvalidArgument(
                f"stream '{self.name}': the name of a consumer group is text of up to 255 "
                "characters, without NUL"
            )
        if group not in self._groups and len(self._groups) >= MOST_GROUPS:
            raise LimitExceeded(
                f"stream '{self.name}' has {MOST_GROUPS} consumer groups, which is the limit; use "
                "one of them again, or read without a group"
            )

    def on_retention(self) -> None:
        """Settles for all groups what retention has dropped: no group waits for it any more."""
        first = self.first_offset
        self.due_times.forget_below(first)
        self.traffic.note()
        for cursor in self.log.cursors:
            if cursor.settled.floor < first:
                cursor.settled.mark_range(cursor.settled.floor, first)
                if cursor.journal is not None:
                    cursor.journal.note(cursor)

    def _open(self, group: str, settled: Settled, *, is_kept: bool) -> Cursor:
        settled.mark_range(settled.floor, self.first_offset)
        self._pass_gaps(settled)

        def ready(cursor: Cursor) -> Ready:
            return FifoReady(
                settled.floor,
                self.log.tail,
                self.context.budget,
                self._source,
                cursor.pump,
                settled.above if settled.above else None,
            )

        cursor = Cursor(
            self,
            self.context,
            CursorSpec(self.log.queue_id, group, requeues=False),
            ready,
            journal=self.context.journal if is_kept else None,
            saved=SavedProgress(settled, self._leases.get(group, 0)),
            due_times=self.due_times,
        )
        cursor.consumer_set.is_paused = self.is_paused
        self.log.cursors.append(cursor)
        return cursor

    async def _find(self, position: Position | None) -> int:
        if position is None or position.name == "next":
            return self.log.tail
        if position.name == "first":
            return self.first_offset
        if position.name == "last":
            return max(self.first_offset, self._last_offset)
        if position.offset is not None:
            return self._place(position.offset)
        if position.time is not None:
            return await self._at_time(position.time)
        raise InvalidArgument(
            f"stream '{self.name}': start at first, last, next, an offset or a time"
        )

    def _place(self, offset: int) -> int:
        """Checks an offset that a reader asks for. An offset to come may be waited for; it is
        written into the journal with everybody else's rows, so it must be a number that fits."""
        if offset > LARGEST_OFFSET:
            raise InvalidArgument(
                f"stream '{self.name}': offset {str(offset)[:20]}... is beyond what a stream will "
                f"ever hold; it ends at {self.log.tail}"
            )
        return max(0, offset)

    async def _at_time(self, time: float) -> int:
        """Finds the offset for a time. A time before all that PostgreSQL and Python can both write
        is before all messages."""
        if time < EARLIEST:
            return self.first_offset
        return self.log.tail if time > LATEST else await self._source.offset_at(time)

    def commit_cursor(self, group: str, offset: int) -> None:
        if offset >= self.log.tail or offset < 0:
            raise InvalidArgument(
                f"stream '{self.name}' has offsets {self.first_offset} to {self.log.tail - 1}; "
                f"cannot commit {offset}"
            )
        cursor = self._cursors.get(group)
        if cursor is None:
            self._check_group(group)
            settled = self._groups.setdefault(group, Settled())
            cursor = self._open(group, settled, is_kept=True)
            self.log.cursors.remove(cursor)
        cursor.commit(offset)

    async def reset_group(self, group: str, position: Position) -> int:
        """Sends a group that nobody reads by to another place, back or forward, and gives that
        place. Raises ResourceLocked while a consumer reads: its unsettled messages would be settled
        in the wrong place."""
        start = await self._find(position)
        if group not in self._groups:
            raise InvalidArgument(f"stream '{self.name}' has no consumer group '{group}'")
        if group in self._cursors:
            raise ResourceLocked(
                f"group '{group}' of stream '{self.name}' has consumers: stop them first"
            )
        for cursor in self._put_away:
            if cursor.spec.group == group:
                cursor.journal = None  # what it settles is where the group was
        self._groups[group] = settled = Settled(start)
        self._leases[group] = 0
        cursor = self._open(group, settled, is_kept=True)
        self.log.cursors.remove(cursor)
        settled.demand_full_row()  # only such a row can take something back
        self.context.journal.note(cursor)
        return settled.floor

    def on_consumer_gone(self) -> None:
        """Puts cursors away that nobody reads by: they need no memory."""
        self._put_away = [cursor for cursor in self._put_away if cursor.in_flight]
        for cursor in [c for c in self.log.cursors if not c.consumers]:
            self.log.cursors.remove(cursor)
            if cursor.in_flight:
                self._put_away.append(cursor)
            end_lease(cursor)
            cursor.ready.clear()
            if cursor.journal is not None:
                self._leases[cursor.spec.group] = cursor.lease.asked
                self._cursors.pop(cursor.spec.group, None)

    def groups(self) -> dict[str, Settled]:
        return self._groups

    def lease_of(self, group: str) -> int:
        cursor = self._cursors.get(group)
        return self._leases.get(group, 0) if cursor is None else cursor.lease.asked

    def _message_count(self) -> int:
        first, tail = self.first_offset, self.log.tail
        return tail - first - self._gaps.size_between(first, tail)

    def counts(self) -> QueueCounts:
        cursors = self.log.cursors
        delayed = self.due_times.count(self.context.clock())
        return QueueCounts(
            self._message_count() - delayed,
            sum(cursor.in_flight for cursor in cursors),
            delayed,
            sum(len(cursor.consumers) for cursor in cursors),
        )

    def consumers(self) -> list[Consumer]:
        return [consumer for cursor in self.log.cursors for consumer in cursor.consumers]

    def cursors(self) -> list[Cursor]:
        """Lists all cursors by which messages are, or may be, in consumers' hands."""
        return [*self.log.cursors, *self._put_away]

    def peek(self, start: int, limit: int) -> list[Entry]:
        return []  # the log is in the database

    def purge(self) -> int:
        raise NotSupported(
            f"stream '{self.name}' cannot be purged: set x-max-age or x-max-length-bytes, "
            "or delete it"
        )

    def end(self, reason: CoreError) -> None:
        self.due_times.clear()
        if self._waking is not None:
            self._waking.cancel()
        for cursor in list(self.log.cursors):
            cursor.end(reason)

    # --- the cursors' policy: nothing expires, nothing is buried

    def on_expired(self, cursor: Cursor, entry: Entry) -> None:
        cursor.drop(entry)

    def on_rejected(self, cursor: Cursor, entry: Entry, reason: str | None) -> None:
        cursor.drop(entry)

    def on_exhausted(self, cursor: Cursor, entry: Entry) -> None:
        cursor.drop(entry)

    def on_delayed(self, cursor: Cursor, when: float) -> None:
        """Does nothing: the stream itself wakes all its cursors."""

    def on_due(self, cursor: Cursor, when: float) -> None:
        """Does nothing: consumers of a stream have no time-out."""

    def on_unfinished(self, cursor: Cursor) -> None:
        scheduler().later(cursor.pump)

    def on_returned(self, cursor: Cursor, count: int) -> None:
        """Does nothing: a stream requeues nothing."""

    def on_turn(self, cursor: Cursor) -> None:
        """Does nothing: messages of a stream do not expire."""
