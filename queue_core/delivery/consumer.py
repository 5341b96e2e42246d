"""Consumers, their credit, and what they are handed.

A queue never hands out more than a consumer asked for. MQTT's receive maximum, AMQP 0.9.1's
prefetch and AMQP 1.0's link credit are all the same number here. An adapter implements `Sink`;
everything that reaches it is already committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import FAILED, Verdict

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor
    from queue_core.delivery.filtered_view import FilteredView
    from queue_core.message.message import Form
    from queue_core.message.message_run import Run

# Messages that a consumer without a limit of its own may have unsettled: a bound, so that one that
# never settles cannot take a whole queue into the gateway's memory.
UNLIMITED_CREDIT: Final = 65_536
ENTRY_OVERHEAD_BYTES: Final = 512  # Python objects around a message in a queue
_consumer_numbers = count(1)  # by which people tell consumers apart


# Entry and Delivery are structures of msgspec, made in half the time of a class with slots: there
# is one of each for every message in every queue.


class Entry(msgspec.Struct, eq=False, gc=False):  # in no cycle of references
    """A message at its offset in one queue."""

    message: Message
    options: object = None  # what the matching subscriptions said, for the subscriber's adapter
    expires_at: float | None = None
    not_before: float | None = None
    offset: int = -1  # given by the writer, just before the commit


class Delivery(msgspec.Struct, eq=False):
    """An entry that was handed to a consumer, until the consumer settles it."""

    entry: Entry
    message: Message  # the entry's, like the offset: adapters ask for both all the time
    offset: int
    consumer: Consumer
    redelivered: bool = False
    failures: int = 0  # deliveries before this one that failed
    is_open: bool = True

    @property
    def queue_name(self) -> str:
        return self.consumer.cursor.queue_name

    @property
    def is_stored(self) -> bool:
        """Tells whether the message is in PostgreSQL, so that settling it takes a commit."""
        return self.consumer.cursor.journal is not None

    def mark_begun(self) -> None:
        """Notes that the peer may have begun to take the message, which does not expire then."""
        self.consumer.cursor.history.begun.add(self.offset)

    def unmark_begun(self) -> None:
        """Notes that the peer never saw the message: it may expire again."""
        self.consumer.cursor.history.begun.discard(self.offset)

    def give_back(self) -> None:
        """Puts a message that was never sent back into its queue, as if it had not been handed
        out. A stream has nothing to put back."""
        cursor = self.consumer.cursor
        if self.is_open and cursor.requeues:
            cursor.detach(self)
            cursor.take_back(self.entry)


class Sink(Protocol):
    """The adapter's side of a consumer, which writes deliveries to the client."""

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Takes deliveries that the consumer's credit allowed. A sink never awaits and never fails:
        what the peer does comes back as a settlement, or as the end of the consumer."""

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        """Takes a message without a delivery, from an ephemeral queue whose only consumer settles
        on delivery."""

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Learns that the queue ended this consumer: the queue was deleted, or its owner left."""


class RunSink(Protocol):
    """A sink that takes runs in the bytes in which they came from publishers of its own form."""

    max_packet: int  # bytes of the largest packet that its peer takes

    def run_room(self, form: Form, is_durable: bool, options: tuple[object, ...]) -> int:
        """Tells how many messages of such a run the sink takes now, as they came; 0: none."""
        ...

    def deliver_run(self, consumer: Consumer, run: Run) -> None:
        """Takes an encoded run within its room. Never awaits and never fails."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The client behind a consumer, as people are told; nothing acts by it."""

    protocol: str = ""
    user: str = ""
    client: str = ""  # the client's name for itself
    address: str = ""  # of its end of the connection


NOBODY: Final = Origin()


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """How a client wants to consume.

    `replenish`: settling gives the credit back (a window: MQTT, AMQP 0.9.1); otherwise credit is
    spent, and granted anew by the consumer (AMQP 1.0).
    """

    tag: str = ""
    credit: int = UNLIMITED_CREDIT
    replenish: bool = True
    auto_settle: bool = False  # settled by being handed over: at most once
    exclusive: bool = False
    is_passing: bool = False  # takes one message and goes, beside a single active consumer, too
    priority: int = 0
    group: str | None = None  # of a stream: whose cursor to read by; None: one of its own, not kept
    start: Position | None = None  # of a stream
    shared: SharedCredit | None = None  # a window over several consumers (a channel's prefetch)
    # The filter that tells which messages the consumer wants; None: all. What the filter refuses
    # stays in its place for others, and costs no credit. It is asked once for each message, and
    # once more when that comes back; it never fails.
    accepts: Callable[[Message], bool] | None = None
    origin: Origin = NOBODY
    # as the client gave them, with effect or without
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """A place where reading of a stream starts: exactly one of the three is set."""

    name: str | None = None  # first | last | next
    offset: int | None = None
    time: float | None = None  # seconds since the epoch: the first message at or after it


class SharedCredit:
    """A window that several consumers draw from, in turn: the one that has waited longest is the
    next, whichever queue it consumes from."""

    __slots__ = ("_waiting", "free")

    def __init__(self, free: int) -> None:
        self.free = free
        self._waiting: dict[Consumer, None] = {}

    def wait(self, consumer: Consumer) -> None:
        """Puts a consumer behind those that wait for the window to open."""
        self._waiting.setdefault(consumer)

    def grant(self, count: int) -> None:
        """Opens the window by so many messages, and wakes consumers that wait for it."""
        self.free += count
        while self.free > 0 and self._waiting:
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            consumer.wake()


class Consumer:
    """One consumer of one cursor. A queue's `consume` makes it; `close` ends it."""

    __slots__ = (
        "__weakref__",
        "auto_settle",
        "credit",
        "cursor",
        "delivered",
        "is_closed",
        "is_paused",
        "is_plain",
        "is_stream",
        "is_waiting",
        "number",
        "on_drained",
        "on_overdue",
        "queue_id",
        "replenish",
        "run_sink",
        "shared",
        "since",
        "sink",
        "spec",
        "unsent",
        "unsettled",
        "view",
    )

    def __init__(self, cursor: Cursor, sink: Sink, spec: ConsumerSpec) -> None:
        self.cursor = cursor
        self.queue_id = cursor.spec.queue_id  # 0: the queue is not stored
        self.is_stream = not cursor.spec.requeues
        self.sink = sink
        self.spec = spec
        self.credit = spec.credit
        self.shared = spec.shared
        self.replenish = spec.replenish
        self.auto_settle = spec.auto_settle
        self.is_plain = not spec.auto_settle and not spec.is_passing  # it stays, and settles
        self.delivered = 0  # messages so far, without those that were passed on past the queue
        self.unsettled: dict[int, Delivery] = {}
        self.is_paused = False
        self.is_closed = False
        self.is_waiting = False  # stands in the cursor's line of consumers with credit
        self.on_drained: Callable[[], None] | None = None
        self.on_overdue: Callable[[], None] | None = None  # something was not settled in time
        self.view: FilteredView | None = None  # with a filter: what it has still to look at
        self.run_sink: RunSink | None = None  # for runs as they came; None: it takes messages only
        self.unsent: Callable[[], int] | None = None  # bytes on their way to the peer, if known
        self.since = cursor.context.clock()
        self.number = next(_consumer_numbers)

    @property
    def tag(self) -> str:
        return self.spec.tag

    @property
    def queue_name(self) -> str:
        return self.cursor.queue_name

    def backlog(self) -> int:
        """Counts the messages that are ready in the queue, and that nobody has taken yet."""
        return self.cursor.ready.count()

    def has_credit(self) -> bool:
        """Tells whether the consumer may get a message. One that finds a shared window used up
        waits for it from now on."""
        if self.credit <= 0 or self.is_paused:
            return False
        if self.shared is not None and self.shared.free <= 0:
            self.shared.wait(self)
            return False
        return True

    def grant(self, count: int) -> None:
        """Adds to the credit what the peer granted."""
        self.credit += count
        self.wake()

    def set_credit(self, credit: int) -> None:
        """Sets the credit to what the peer says it is, as AMQP 1.0's flow does."""
        self.credit = credit
        self.wake()

    def pause(self) -> None:
        """Stops deliveries until `resume`, because the peer's socket is full."""
        if not self.is_paused:
            self.is_paused = True
            self.cursor.consumer_set.line.leave(self)

    def resume(self) -> None:
        self.is_paused = False
        self.wake()

    def wake(self) -> None:
        """Hands out to the consumer what its credit allows. A new consumer gets nothing before its
        first `wake`, so that an adapter can answer its peer first."""
        if not self.is_closed:
            self.cursor.dispatch.enqueue(self)

    def drain(self, done: Callable[[], None]) -> None:
        """Calls `done` once everything that is ready now, and that the credit allows, was handed
        over. What is then left of the credit is the adapter's to take back."""
        self.on_drained = done
        self.cursor.dispatch.drain(self)

    def close(self, verdict: Verdict = FAILED) -> None:
        """Ends the consumer of a peer that is gone: what it had comes back."""
        self.cursor.close(self, verdict)

    def cancel(self) -> None:
        """Ends deliveries; those that are open may still be settled."""
        self.cursor.cancel(self)
