"""Classic and ephemeral queues: competing consumers, limits, expiry, dead letters.

A classic queue is a log in PostgreSQL with one cursor; an ephemeral one lives in memory, with the
same rules. What differs is where a message goes when it is published: see `take`. Streams are next
door, in `streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Protocol

from queue_core.commit.queue_log import Log
from queue_core.counters import QueueCounts
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Entry, Sink
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.cursor_spec import CursorSpec, SavedProgress
from queue_core.delivery.ready import ENTRY_OVERHEAD, FifoReady, Ready, Source
from queue_core.delivery.ready_by_priority import PriorityReady
from queue_core.delivery.settled import Settled
from queue_core.errors import InvalidArgument, QueueFull, ResourceLocked
from queue_core.message.message import Message
from queue_core.queues.backpressure import Backpressure
from queue_core.queues.context import QueueContext
from queue_core.queues.deduplication import Repetitions, Window
from queue_core.queues.deduplication_records import PresentKeys
from queue_core.queues.memory_limit import ALWAYS
from queue_core.queues.spec import Overflow, QueueSpec
from queue_core.scheduler import scheduler
from queue_core.timers import Appointment

EPHEMERAL_BYTES: Final = 64 * 1024 * 1024  # an ephemeral queue without limits of its own
EPHEMERAL_MESSAGES: Final = 500_000  # any ephemeral queue: an empty message takes memory, too
CROWD: Final = 20_000  # messages in an ephemeral queue, above which a run of RUSH more is a crowd
RUSH: Final = 100
EXPIRY_RECHECK: Final = 1.0  # seconds: the head does not expire, but something behind it may

Appends = list[tuple[Log, Entry]]


class Taker(Protocol):
    """A queue at the end of a route."""

    is_memory: ClassVar[bool]


def is_bound(route: Iterable[tuple[Taker, tuple[object, ...]]]) -> bool:
    """Tells whether a route leads to a queue that is bound, and not only to memories."""
    return any(not queue.is_memory for queue, _ in route)


def cursor_spec(spec: QueueSpec, queue_id: int = 0) -> CursorSpec:
    """Gives the rules of a queue's cursor, as the queue's arguments set them."""
    return CursorSpec(
        queue_id,
        single_active=spec.single_active_consumer,
        delivery_limit=spec.delivery_limit,
        ack_timeout_seconds=spec.ack_timeout,
        tracks_settled=spec.deduplicates,
    )


class CompetingQueue:
    """Each message to one consumer. Implements the cursor's `Policy`."""

    is_memory: ClassVar[bool] = False  # an exchange's, see `exchange_memory`

    def __init__(self, spec: QueueSpec, context: QueueContext, owner: object = None) -> None:
        self.spec = spec
        self.name = spec.name
        self.context = context
        self.owner = owner  # of an exclusive queue: the connection that declared it
        self.created_by: str | None = None  # the user who declared it
        self.is_deleted = False
        # The virtual host's: the last consumer of an auto-delete queue left, or the time that an
        # unused queue may live is over.
        self.on_idle: Callable[[CompetingQueue], None] | None = None
        self.cursor: Cursor
        self.window: Repetitions | None = None  # what it tells repetitions by
        self.has_told_overflow = False  # the log has a line of what it dropped
        self.backpressure: Backpressure | None = None  # with consumers: nothing is dropped
        self._had_consumer = False
        self.may_expire = spec.message_ttl is not None  # something in it has, or had, an end
        self._expiry: Appointment | None = None
        self._used_at = 0.0
        self._is_idle_watched = False
        self.touch()

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        """A message was routed here. False: the queue is full, and refuses it. `stays`: where it
        comes from, if it is refused; then it is no dead letter."""
        raise TypeError("a queue says where its messages go")

    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends | None:
        """The same for messages without times of their own that came in a row, and what of it goes
        through the writer. None: not here; they are to be taken one by one."""
        raise TypeError("a queue says where its messages go")

    @property
    def takes_runs(self) -> bool:
        """False: it would not, so there is no need to ask with messages."""
        raise TypeError("a queue says where its messages go")

    # --- consumers

    def consume(self, sink: Sink, spec: ConsumerSpec) -> Consumer:
        self._check_exclusive(spec)
        if spec.group is not None or spec.start is not None:
            raise InvalidArgument(
                f"queue '{self.name}' is {self.spec.kind}: groups and positions are for streams"
            )
        consumer = self.cursor.add_consumer(sink, spec)
        self._had_consumer = True
        return consumer

    def _check_exclusive(self, spec: ConsumerSpec) -> None:
        consumers = self.cursor.consumers
        if spec.exclusive and consumers:
            raise ResourceLocked(
                f"queue '{self.name}' has consumers: an exclusive one must be the only one"
            )
        if any(consumer.spec.exclusive for consumer in consumers):
            raise ResourceLocked(f"queue '{self.name}' is in exclusive use by another consumer")

    def on_consumer_gone(self) -> None:
        """Tell the queue, after a consumer of it was closed or cancelled."""
        if self.cursor.consumers or self.is_deleted:
            return
        if self.backpressure is not None:
            self.backpressure.on_taken()
        if self.spec.auto_delete and self._had_consumer:
            self._tell_idle()
        else:
            self.touch()

    def touch(self) -> None:
        """Used: the time that an unused queue has to live starts again."""
        if self.spec.expires is None:
            return
        self._used_at = self.context.clock()
        if not self._is_idle_watched:  # one appointment, however often it is used
            self._watch_idle(self._used_at + self.spec.expires)

    def _watch_idle(self, when: float) -> None:
        self._is_idle_watched = True
        self.context.agenda.at(when, self._on_idle_time)

    def _on_idle_time(self) -> None:
        self._is_idle_watched = False
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
            self.cursor.may_delay = True
        return Entry(message, options or None, expires_at, message.not_before)

    def on_arrival(self, entries: list[Entry]) -> None:
        """After a commit, when consumers had their share: limits for the rest."""
        self.enforce_limits()

    def is_full(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        """Whether it has no room, with so many on their way to it."""
        spec = self.spec
        if spec.max_length is not None and self.cursor.ready.count() + coming >= spec.max_length:
            return True
        return (
            spec.max_bytes is not None and self.cursor.ready.bytes + coming_bytes >= spec.max_bytes
        )

    def press(self) -> None:
        """Makes whoever publishes now wait, if the queue holds its publishers and is full."""
        if self.backpressure is not None and self.backpressure.is_full():
            pressed = self.context.pressed
            if self not in pressed:
                pressed.append(self)

    def is_memory_full(self) -> bool:
        """Whether all queues in memory together have no room for more in this one."""
        return False

    def enforce_limits(self) -> None:
        """Drop-head: the oldest goes, until the rest fits."""
        spec, ready = self.spec, self.cursor.ready
        if spec.max_length is None and spec.max_bytes is None:
            return
        if spec.overflow is not Overflow.DROP_HEAD:
            return  # it refuses what is new; what was in it and comes back, stays
        if self.backpressure is not None and self.cursor.consumers:
            return
        while (spec.max_length is not None and ready.count() > spec.max_length) or (
            spec.max_bytes is not None and ready.bytes > spec.max_bytes and ready.count() > 0
        ):
            entry = ready.take()
            if entry is None:
                return  # it is being read back; `on_more` brings us here again
            self.lose(self.cursor, entry, "maxlen")
            if self.may_expire:
                self._watch_expiry()

    def lose(self, cursor: Cursor, entry: Entry, reason: str) -> None:
        """An entry leaves the queue without having been consumed."""
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
        """Entries were read back."""
        self.cursor.pump()
        self.enforce_limits()

    def _watch_expiry(self) -> None:
        """As RabbitMQ does, a message expires when it reaches the head of its queue."""
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
        """The head, which is not in memory, expires then."""
        if self._expiry is None:
            self._expiry = self.context.agenda.at(when, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self.is_deleted:
            return
        now, ready = self.context.clock(), self.cursor.ready
        while (head := ready.head()) is not None:
            if not self.cursor.has_expired(head, now):
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


class EphemeralQueue(CompetingQueue):
    """In the memory of this process, and gone with it."""

    def __init__(self, spec: QueueSpec, context: QueueContext, owner: object = None) -> None:
        super().__init__(spec, context, owner)
        self._next_offset = 0
        self._is_pump_planned = False
        self._max_bytes = EPHEMERAL_BYTES if spec.max_bytes is None else spec.max_bytes
        # Only one that says how much it holds is meant to lose its oldest.
        has_limit = spec.max_length is not None or spec.max_bytes is not None
        self._drops_oldest = has_limit and spec.overflow is Overflow.DROP_HEAD

        def ready(_: Cursor) -> Ready:
            if spec.max_priority:
                return PriorityReady(spec.max_priority, 0, context.budget, None, self.on_more)
            return FifoReady(0, 0, context.budget, None, self.on_more)

        self.cursor = Cursor(self, context, cursor_spec(spec), ready)
        if spec.deduplicates:
            self.window = self.present_keys()

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        if self.window is not None and self.window.has_seen(message, self.context.clock()):
            self.context.counters.duplicates += 1
            return True
        cursor = self.cursor
        consumers = cursor.consumers
        if len(consumers) == 1 and message.not_before is None:
            # The short way: nobody to share with, nothing waiting, nothing to settle later.
            # Measured with one publisher and one subscriber: 0.5 us against 2.9 us the long way.
            consumer = consumers[0]
            if (
                consumer.auto_settle
                and consumer.replenish
                and consumer.is_waiting
                and consumer.credit > 0
                and not cursor.ready.count()
                and consumer.selection is None
                and consumer.shared is None
            ):
                self.context.counters.delivered += 1
                try:
                    consumer.sink.deliver_direct(consumer, message, options)
                except Exception as error:
                    cursor.end_broken(consumer, error)
                return True
        return self._keep(message, options, stays=stays)

    @property
    def takes_runs(self) -> bool:
        spec, consumers = self.spec, self.cursor.consumers
        return (
            spec.max_length is None
            and spec.max_bytes is None
            and not self.may_expire
            and self.window is None
            and not (len(consumers) == 1 and consumers[0].auto_settle)  # see `take`
        )

    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends | None:
        ready = self.cursor.ready
        if (
            not self.takes_runs
            or ready.bytes >= self._max_bytes
            or self.is_memory_full()
            or ready.count() + len(messages) > EPHEMERAL_MESSAGES
        ):
            return None
        if len(messages) >= RUSH and ready.count() >= CROWD:
            self.context.is_crowded = True
        kept, first, before = options or None, self._next_offset, ready.bytes
        self._next_offset = first + len(messages)
        self.cursor.put(
            [Entry(message, kept, None, None, i) for i, message in enumerate(messages, first)]
        )
        self.context.memory.keep(ready.bytes - before, len(messages))
        self._plan_pump()
        return []

    def refuses(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        """The same, with the limits that every queue in memory has."""
        if self.spec.overflow is not Overflow.DROP_HEAD and self.is_full(coming, coming_bytes):
            return True
        ready, delayed = self.cursor.ready, self.cursor.delayed
        if self.backpressure is not None and ready.bytes >= 2 * max(
            EPHEMERAL_BYTES, self._max_bytes
        ):
            return True  # of publishers that cannot be made to wait
        if delayed.bytes >= self._max_bytes:
            return True  # what waits for its time is not there to be dropped
        held = ready.bytes + delayed.bytes + coming_bytes
        if self.spec.max_bytes is None and held >= self._max_bytes:
            return True
        return ready.count() + len(delayed) + coming >= EPHEMERAL_MESSAGES or (
            not self._drops_oldest and self.is_memory_full()
        )

    def is_memory_full(self) -> bool:
        """Together with the others, and this one is not among the least of them."""
        return self.memory() > ALWAYS and self.context.memory.is_full()

    def memory(self) -> int:
        """Bytes that its messages take, ready or waiting for their time."""
        ready, delayed = self.cursor.ready, self.cursor.delayed
        return ready.bytes + delayed.bytes + (ready.count() + len(delayed)) * ENTRY_OVERHEAD

    def _keep(self, message: Message, options: tuple[object, ...], *, stays: bool) -> bool:
        spec = self.spec
        if self.refuses():
            if spec.overflow is Overflow.REJECT_PUBLISH_DLX and not stays:
                self.context.dead_letters.add_refused(self, message)
            self.context.counters.refused_full += 1
            return False
        entry = self.entry(message, options)
        entry.offset = self._next_offset
        self._next_offset += 1
        if self.window is not None:
            self.window.remember(message, self.context.clock())
            self.window.arrived(entry)
        self.context.memory.keep(message.size())
        if self.backpressure is not None:
            self.cursor.put([entry])
            self._plan_pump()
            self.press()
        elif spec.max_length is not None or spec.max_bytes is not None or self.may_expire:
            self.cursor.arrive([entry])
            self.on_arrival([entry])
            if self._drops_oldest and self.is_memory_full():
                self._drop_oldest()
        else:
            self.cursor.put([entry])
            self._plan_pump()
        return True

    def _plan_pump(self) -> None:
        if not self._is_pump_planned:
            self._is_pump_planned = True
            self.context.soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_planned = False
        self.cursor.pump()

    def _drop_oldest(self) -> None:
        """So that it holds no more than before."""
        oldest = self.cursor.ready.take()
        if oldest is not None:
            self.lose(self.cursor, oldest, "maxlen")

    def peek(self, start: int, limit: int) -> list[Entry]:
        """Those that are ready, from an offset on."""
        return self.cursor.ready.peek(start, limit)


class ClassicQueue(CompetingQueue):
    """A log in PostgreSQL with one cursor."""

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        log: Log,
        source: Source,
        *,
        settled: Settled | None = None,
        lease: int = 0,
        failures: dict[int, int] | None = None,
    ) -> None:
        super().__init__(spec, context)
        self.log = log
        # Of a session's queue: which messages are worth storing for somebody who may be away.
        self.wants: Callable[[Message, tuple[object, ...]], bool] | None = None
        if spec.deduplicates:
            self.window = self.present_keys()
        elif spec.dedup_window:
            self.window = Window(spec.dedup_window, context.ids, spec.name)
        settled = settled or Settled()
        self.may_expire = self.may_expire or log.tail > settled.floor

        def ready(_: Cursor) -> Ready:
            if spec.max_priority:
                return PriorityReady(
                    spec.max_priority, log.tail, context.budget, source, self.on_more
                )
            return FifoReady(
                settled.floor, log.tail, context.budget, source, self.on_more, settled.above
            )

        self.cursor = Cursor(
            self,
            context,
            cursor_spec(spec, log.queue_id),
            ready,
            journal=context.journal,
            saved=SavedProgress(settled, lease, failures or {}),
        )
        log.cursors.append(self.cursor)
        if spec.max_bytes is not None and spec.overflow is not Overflow.DROP_HEAD:
            log.pending_bytes = 0
        log.on_arrival = self.on_arrival
        log.on_refused = self._on_refused

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        if self.wants is not None and not self.wants(message, options):
            return True
        window = (
            None if message.deaths else self.window
        )  # a dead letter that returns is no repetition
        if window is not None and window.has_seen(message, self.context.clock()):
            self.context.counters.duplicates += 1
            return True
        overflow = self.spec.overflow
        if overflow is not Overflow.DROP_HEAD and self.is_full(self.log.pending):
            if overflow is Overflow.REJECT_PUBLISH_DLX and not stays:
                self.context.dead_letters.add_refused(self, message)
            self.context.counters.refused_full += 1
            return False
        if window is not None:
            window.remember(message, self.context.clock())
        if self.backpressure is not None:
            self.press()
        self.log.expect(message)
        appends.append((self.log, self.entry(message, options)))
        return True

    def on_consumer_gone(self) -> None:
        super().on_consumer_gone()
        if self.backpressure is not None and not self.is_deleted:
            self.enforce_limits()  # more was kept for a client that was there

    def is_full(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        return super().is_full(coming, coming_bytes + (self.log.pending_bytes or 0))

    @property
    def takes_runs(self) -> bool:
        return (
            self.wants is None
            and self.window is None
            and self.spec.overflow is Overflow.DROP_HEAD
            and self.spec.message_ttl is None
        )

    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends | None:
        if not self.takes_runs:
            return None
        log, kept = self.log, options or None
        log.pending += len(messages)
        return [(log, Entry(message, kept)) for message in messages]

    def on_arrival(self, entries: list[Entry]) -> None:
        if self.window is not None:
            for entry in entries:
                self.window.arrived(entry)
        super().on_arrival(entries)

    def _on_refused(self, entry: Entry) -> None:
        if self.window is not None and not entry.message.deaths:
            self.window.forget(entry.message)


def full(queue: CompetingQueue) -> QueueFull:
    return QueueFull(
        f"queue '{queue.name}' is full and set to {queue.spec.overflow}; "
        "consume from it, or raise its x-max-length or x-max-length-bytes"
    )
