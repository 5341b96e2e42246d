"""A cursor without a database, at a time that the test tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from queue_core.cluster.trust import SoleTrust, Trust
from queue_core.counters import Counters
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery, Entry
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.cursor_spec import CursorSpec
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.delivery.ready import Budget, FifoReady, Ready
from queue_core.delivery.ready_by_priority import PriorityReady
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.queues.backpressure import Backpressure
from queue_core.traffic import Traffic

PRIORITIES = 3


class Basket:
    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        raise AssertionError("not the short way")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        raise AssertionError(str(reason))

    @property
    def offsets(self) -> list[int]:
        return [delivery.offset for delivery in self.deliveries]

    @property
    def open(self) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if delivery.is_open]


@dataclass
class Context:
    """The clock, bounds and counters of one cursor."""

    clock: Callable[[], float]
    budget: Budget
    counters: Counters = field(default_factory=Counters)
    delays: DelayBudget = field(default_factory=DelayBudget)
    trust: Trust = field(default_factory=SoleTrust)


class Rules:
    """A policy that only takes notes."""

    name = "q"
    may_expire = False
    backpressure: Backpressure | None = None

    def __init__(self) -> None:
        self.traffic = Traffic("/", self.name, set())
        self.due: list[float] = []
        self.unfinished = 0
        self.gone = 0

    def on_consumer_gone(self) -> None:
        self.gone += 1

    def on_expired(self, cursor: Cursor, entry: Entry) -> None:
        cursor.drop(entry)

    def on_rejected(self, cursor: Cursor, entry: Entry, reason: str | None) -> None:
        cursor.drop(entry)

    def on_exhausted(self, cursor: Cursor, entry: Entry) -> None:
        cursor.drop(entry)

    def on_delayed(self, cursor: Cursor, when: float) -> None:
        """Nobody waits here."""

    def on_returned(self, cursor: Cursor, count: int) -> None:
        """Nobody counts here."""

    def on_turn(self, cursor: Cursor) -> None:
        """Nothing expires here."""

    def on_due(self, cursor: Cursor, when: float) -> None:
        self.due.append(when)

    def on_unfinished(self, cursor: Cursor) -> None:
        self.unfinished += 1


class Shelf:
    """A source that answers when it is told to."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.asked: list[Callable[[], None]] = []

    def fetch(self, start: int, end: int, limit: int, done: Callable[[list[Entry]], None]) -> None:
        def answer() -> None:
            found = [self.entries[o] for o in range(start, end) if o in self.entries][:limit]
            done([copy(entry) for entry in found])

        self.asked.append(answer)

    def fetch_offsets(self, offsets: list[int], done: Callable[[list[Entry]], None]) -> None:
        found = [self.entries[o] for o in sorted(offsets) if o in self.entries]
        self.asked.append(lambda: done([copy(entry) for entry in found]))

    def answer_all(self) -> None:
        while self.asked:
            self.asked.pop(0)()


def copy(entry: Entry) -> Entry:
    return Entry(entry.message, offset=entry.offset)


class Scene:
    """A cursor over entries in memory or, with a shelf, over some that are read back from it."""

    def __init__(
        self,
        *,
        ack_timeout: float | None = None,
        shelf: Shelf | None = None,
        limit: int = 0,
        has_priorities: bool = False,
        requeues: bool = True,
        single_active: bool = False,
    ) -> None:
        self.now = 0.0
        self.rules = Rules()
        self.shelf = shelf
        self.budget = Budget(limit)
        self.context = Context(lambda: self.now, self.budget)

        def ready(cursor: Cursor) -> Ready:
            if has_priorities:
                return PriorityReady(PRIORITIES - 1, 0, self.budget, shelf, cursor.pump)
            return FifoReady(0, 0, self.budget, shelf, cursor.pump)

        self.cursor = Cursor(
            self.rules,
            self.context,
            CursorSpec(
                queue_id=0 if shelf is None else 1,
                single_active=single_active,
                ack_timeout_seconds=ack_timeout,
                requeues=requeues,
            ),
            ready,
        )
        self.tail = 0

    def arrive(self, count: int) -> None:
        entries = [self._entry(self.tail + i) for i in range(count)]
        self.tail += count
        if self.shelf is not None:
            self.shelf.entries |= {entry.offset: copy(entry) for entry in entries}
        self.cursor.arrive(entries)

    @staticmethod
    def _entry(offset: int) -> Entry:
        """Makes an entry whose body is its offset."""
        body = str(offset).encode()
        return Entry(Message(body, "", "q", priority=offset % PRIORITIES), offset=offset)

    def consume(self, **spec: object) -> tuple[Basket, Consumer]:
        basket = Basket()
        consumer = self.cursor.add_consumer(basket, ConsumerSpec(**spec))  # type: ignore[arg-type]
        consumer.wake()
        return basket, consumer

    def settle_down(self) -> None:
        """Until nothing is being read, and filters have looked at all there is."""
        while True:
            turns = self.rules.unfinished
            if self.shelf is not None:
                self.shelf.answer_all()
            self.cursor.pump()
            if self.rules.unfinished == turns and (self.shelf is None or not self.shelf.asked):
                return
