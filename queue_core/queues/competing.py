"""Queues with competing consumers: each message to one of them, with limits, expiry and dead
letters.

Classic and ephemeral queues share these rules and differ by where a message goes when it is
published; see `take` in `classic` and `ephemeral`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queue_core.counters import QueueCounts
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Entry, Sink
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.cursor_spec import CursorSpec
from queue_core.errors import CoreError, InvalidArgument, ResourceLocked
from queue_core.message.message import Message
from queue_core.queues.context import QueueContext
from queue_core.queues.deduplication_by_header import PresentKeys
from queue_core.queues.queue import Queue
from queue_core.queues.spec import Overflow, QueueSpec
from queue_core.scheduler import scheduler
from queue_core.timers import Appointment

EXPIRY_RECHECK: Final = 1.0  # seconds: the head does not expire, but something behind it may
DROPPED_AT_ONCE: Final = 200  # messages beyond a limit, before others get their turn


def cursor_spec(spec: QueueSpec, queue_id: int = 0) -> CursorSpec:
    """Gives the rules of a queue's cursor, as the queue's arguments set them."""
    return CursorSpec(
        queue_id,
        single_active=spec.single_active_consumer,
        delivery_limit=spec.delivery_limit,
        ack_timeout_seconds=spec.ack_timeout,
        tracks_settled=spec.deduplicates,
    )


class CompetingQueue(Queue):
    """A queue that gives each message to one consumer. Implements the cursor's `Policy`."""

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        make_cursor: Callable[[CompetingQueue], Cursor],
        owner: object = None,
    ) -> None:
        super().__init__(spec, context, owner)
        self.may_expire = spec.message_ttl is not None
        self._had_consumer = False
        self._expiry: Appointment | None = None
        self._used_at = 0.0
        self._idle_watch: Appointment | None = None
        self._is_dropping = False  # what is too much goes in pieces, and the next one is planned
        self.cursor = make_cursor(self)
        self.touch()

    def cursors(self) -> list[Cursor]:
        return [self.cursor]

    def apply(self, spec: QueueSpec) -> None:
        """Takes over what policies have changed. A time to live counts for what comes from now on,
        as in RabbitMQ; the time of an unused queue starts anew."""
        expires = self.spec.expires
        super().apply(spec)
        self.may_expire = self.may_expire or spec.message_ttl is not None
        self.cursor.change_rules(spec.delivery_limit, spec.ack_timeout)
        if spec.expires != expires:
            if self._idle_watch is not None:
                self._idle_watch.cancel()
                self._idle_watch = None
            self.touch()
        if self.backpressure is not None:
            self.backpressure.on_taken()  # there may be room now
        self.enforce_limits()

    # --- consumers

    def consume(self, sink: Sink, spec: ConsumerSpec, start: int = 0) -> Consumer:
        self._check_exclusive(spec)
        if spec.group is not None or spec.start is not None:
            raise InvalidArgument(
                f"queue '{self.name}' is {self.spec.kind}: groups and positions are for streams"
            )
        consumer = self.cursor.add_consumer(sink, spec)
        self._had_consumer = True
        return consumer

    def consume_one(self, sink: Sink, spec: ConsumerSpec) -> Consumer:
        return self.cursor.add_consumer(sink, spec)

    def consumers(self) -> list[Consumer]:
        return list(self.cursor.consumers)

    def ready_bytes(self) -> int:
        return self.cursor.ready.bytes

    def first_consumer(self) -> Consumer | None:
        consumers = self.cursor.consumers
        return consumers[0] if consumers else None

    def _check_exclusive(self, spec: ConsumerSpec) -> None:
        consumers = self.cursor.consumers
        if spec.exclusive and consumers:
            raise ResourceLocked(
                f"queue '{self.name}' has consumers: an exclusive one must be the only one"
            )
        if any(consumer.spec.exclusive for consumer in consumers):
            raise ResourceLocked(f"queue '{self.name}' is in exclusive use by another consumer")

    def on_consumer_gone(self) -> None:
        if self.cursor.consumers or self.is_deleted:
            return
        if self.backpressure is not None:
            self.backpressure.on_taken()
        if self.spec.auto_delete and self._had_consumer:
            self._tell_idle()
        else:
            self.touch()

    def touch(self) -> None:
        if self.spec.expires is None:
            return
        self._used_at = self.context.clock()
        if self._idle_watch is None:  # one appointment, however often it is used
            self._watch_idle(self._used_at + self.spec.expires)

    def _watch_idle(self, when: float) -> None:
        self._idle_watch = self.context.agenda.at(when, self._on_idle_time)

    def _on_idle_time(self) -> None:
        self._idle_watch = None
        if self.is_deleted or self.spec.expires is None:
            return
        if self.cursor.consumers:
            self.touch()
            return
        when = self._used_at + self.spec.expires
        if when > self.context.clock():
            self._watch_idle(when)
        else:
            self._tell_idle()

    def _tell_idle(self) -> None:
        if self.on_idle is not None:
            self.on_idle(self)

    # --- what arrives

    def entry(self, message: Message, options: tuple[object, ...]) -> Entry:
        expires_at, ttl = message.expires_at, self.spec.message_ttl
        if ttl is not None:
            # a message that waits for its time lives from then on
            until = max(self.context.clock(), message.not_before or 0.0) + ttl
            expires_at = until if expires_at is None else min(expires_at, until)
        if expires_at is not None:
            self.may_expire = True
        if message.not_before is not None:
            self.cursor.delayed.may_arrive = True
        return Entry(message, options or None, expires_at, message.not_before)

    def on_arrival(self, entries: list[Entry]) -> None:
        """Enforces limits after a commit, once consumers have had their share."""
        self.enforce_limits()

    def is_full(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        spec = self.spec
        if spec.max_length is not None and self.cursor.ready.count() + coming >= spec.max_length:
            return True
        return (
            spec.max_bytes is not None and self.cursor.ready.bytes + coming_bytes >= spec.max_bytes
        )

    def is_half_full(self) -> bool:
        spec, ready = self.spec, self.cursor.ready
        if spec.max_length is not None and 2 * (ready.count() + self.pending) >= spec.max_length:
            return True
        return spec.max_bytes is not None and 2 * ready.bytes >= spec.max_bytes

    def press(self) -> None:
        """Makes whoever publishes now wait, if the queue holds its publishers and is full."""
        if self.backpressure is not None and self.backpressure.is_full():
            pressed = self.context.pressed
            if self not in pressed:
                pressed.append(self)

    def is_held(self) -> bool:
        # most have nothing waiting: 0.2 us against 0.5
        return (
            self.backpressure is not None
            and self.cursor.ready.count() > 0
            and self.backpressure.is_full()
        )

    def is_memory_full(self) -> bool:
        """Tells whether all queues in memory together have no room for more in this one."""
        return False

    def enforce_limits(self) -> None:
        """Drops the oldest messages of a drop-head queue until the rest fits its limits."""
        spec, ready = self.spec, self.cursor.ready
        if spec.max_length is None and spec.max_bytes is None:
            return
        if spec.overflow is not Overflow.DROP_HEAD:
            return  # it refuses what is new; what was in it and comes back, stays
        if self._is_dropping or (self.backpressure is not None and self.cursor.consumers):
            return
        dropped = 0
        while (spec.max_length is not None and ready.count() > spec.max_length) or (
            spec.max_bytes is not None and ready.bytes > spec.max_bytes and ready.count() > 0
        ):
            if dropped == DROPPED_AT_ONCE:
                self._drop_later()
                return
            entry = ready.take()
            if entry is None:
                return  # it is being read back; `on_more` brings us here again
            self.lose(self.cursor, entry, "maxlen")
            dropped += 1
            if self.may_expire:
                self._watch_expiry()

    def _drop_later(self) -> None:
        self._is_dropping = True
        self.context.soon(self._drop_more)

    def _drop_more(self) -> None:
        self._is_dropping = False
        if not self.is_deleted:
            self.enforce_limits()

    def lose(self, cursor: Cursor, entry: Entry, reason: str) -> None:
        """Takes an entry out of the queue that nobody has consumed: it becomes a dead letter, or is
        dropped."""
        self.context.dead_letters.move(self, cursor, entry, reason)

    # --- the cursor's policy

    def on_expired(self, cursor: Cursor, entry: Entry) -> None:
        self.lose(cursor, entry, "expired")

    def on_rejected(self, cursor: Cursor, entry: Entry, reason: str | None) -> None:
        self.lose(cursor, entry, "rejected")

    def on_exhausted(self, cursor: Cursor, entry: Entry) -> None:
        self.lose(cursor, entry, "delivery_limit")

    def on_delayed(self, cursor: Cursor, when: float) -> None:
        self.context.agenda.at(when, cursor.pump)

    def on_due(self, cursor: Cursor, when: float) -> None:
        self.context.agenda.at(when, cursor.fail_overdue)

    def on_returned(self, cursor: Cursor, count: int) -> None:
        self.context.counters.returned += count
        self.enforce_limits()

    def on_turn(self, cursor: Cursor) -> None:
        self._watch_expiry()

    def on_unfinished(self, cursor: Cursor) -> None:
        scheduler().later(cursor.pump)

    def on_more(self) -> None:
        """Hands out entries that were read back, and drops those that are too many."""
        self.cursor.pump()
        self.enforce_limits()

    def _watch_expiry(self) -> None:
        """Plans a look at the head when its time to live is over. As in RabbitMQ, a message expires
        when it reaches the head of its queue."""
        head = self.cursor.ready.head()
        if head is None:
            return  # nothing ready, or it is being read back: `on_more` or an arrival comes
        when = head.expires_at
        if self._expiry is not None:
            if when is None or self._expiry.when <= when:
                return
            self._expiry.cancel()  # the head is another one now, and goes sooner
        if when is None:
            when = self.context.clock() + EXPIRY_RECHECK
        self._expiry = self.context.agenda.at(when, self._expire)

    def expect_expiry(self, when: float) -> None:
        """Plans a look at a head that is not in memory, at the time when it expires."""
        if self._expiry is None:
            self._expiry = self.context.agenda.at(when, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self.is_deleted:
            return
        now, ready = self.context.clock(), self.cursor.ready
        while (head := ready.head()) is not None:
            if not self.cursor.dispatch.has_expired(head, now):
                break
            taken = ready.take()
            if taken is not None:
                self.on_expired(self.cursor, taken)
        self._watch_expiry()

    def present_keys(self) -> PresentKeys:
        """Makes the record that tells repetitions of messages that are in this queue."""
        return PresentKeys(self.has_left, self.in_queue, self.context.ids, f"queue '{self.name}'")

    def has_left(self, offset: int) -> bool:
        return offset in self.cursor.settled

    def in_queue(self) -> int:
        """Counts the messages in the queue, whether ready, waiting or in consumers' hands."""
        cursor = self.cursor
        return cursor.ready.count() + cursor.in_flight + len(cursor.delayed)

    # --- people

    def counts(self) -> QueueCounts:
        cursor = self.cursor
        return QueueCounts(
            cursor.ready.count(), cursor.in_flight, len(cursor.delayed), len(cursor.consumers)
        )

    def peek(self, start: int, limit: int) -> list[Entry]:
        return self.cursor.ready.peek(start, limit)

    # --- its end

    def purge(self) -> int:
        return self.cursor.purge()

    def end(self, reason: CoreError) -> None:
        self.cursor.end(reason)
        if self.backpressure is not None:
            self.backpressure.release()
        if self.window is not None:
            self.window.clear()
