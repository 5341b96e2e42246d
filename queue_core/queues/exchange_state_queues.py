"""Exchanges remember by a queue of the gateway's own, which is at the end of each of their routes.

A memory is taken like any queue, in the same unit as the queues that the message goes to: what the
exchange remembers is committed with the message, in transactions, dead letters and the outbox, too,
and is not remembered where the message is refused. No client sees or consumes it. The memory of a
durable exchange is a classic queue of few or small messages, and is read back at a start; that of
another is in memory only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from queue_core.counters import QueueCounts
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Entry, Sink
from queue_core.delivery.cursor import Cursor
from queue_core.errors import CoreError, NotSupported
from queue_core.message.message import CANONICAL, Message, Properties
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.context import QueueContext
from queue_core.queues.deduplication_by_header import Seen, SeenKeys
from queue_core.queues.exchange_history import RecentMessages
from queue_core.queues.queue import Appends, Queue
from queue_core.queues.reserved_names import HISTORY_PREFIX, SEEN_PREFIX
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchange_arguments import cache_ttl
from queue_core.routing.stateful_exchanges import DeduplicationExchange

if TYPE_CHECKING:
    from queue_core.commit.queue_log import Log
    from queue_core.delivery.cursor_spec import SavedProgress
    from queue_core.delivery.ready import Source
    from queue_core.routing.exchanges import Exchange

NO_STORE: Final = "x-recent-history-no-store"
_NO_STORE_OCTETS: Final = NO_STORE.encode()


class ExchangeStateQueue(Queue):
    """A memory is a queue that nobody consumes from."""

    is_memory = True

    @property
    def takes_runs(self) -> bool:
        return False

    def take_run(self, messages: list[Message], options: tuple[object, ...]) -> Appends | None:
        return None

    def attach(self, exchange: Exchange[Any]) -> None:
        """Makes the exchange decide by this memory, where its kind does."""


class LiveMemory(ExchangeStateQueue):
    """An exchange's memory in this process, which is the record of its messages and no more."""

    def consume(self, sink: Sink, spec: ConsumerSpec, start: int = 0) -> Consumer:
        raise NotSupported(f"'{self.name}' is an exchange's memory, which nobody consumes from")

    def consume_one(self, sink: Sink, spec: ConsumerSpec) -> Consumer:
        return self.consume(sink, spec)

    def on_consumer_gone(self) -> None:
        """Never called: nobody consumes from a memory."""

    def counts(self) -> QueueCounts:
        return QueueCounts(0, 0, 0, 0)

    def peek(self, start: int, limit: int) -> list[Entry]:
        return []

    def purge(self) -> int:
        return 0

    def end(self, reason: CoreError) -> None:
        if self.window is not None:
            self.window.clear()


class StoredStateQueue(ExchangeStateQueue, ClassicQueue):
    """An exchange's memory that outlives the gateway. Messages that leave it are not lost."""

    def lose(self, cursor: Cursor, entry: Entry, reason: str) -> None:
        cursor.drop(entry)

    @abstractmethod
    def recall(self, entries: list[Entry]) -> None:
        """Restores the memory from the entries that a restart found, the oldest first."""


class LiveHistory(LiveMemory):
    """A live history keeps the last messages of an exchange that is not durable."""

    def __init__(self, spec: QueueSpec, context: QueueContext) -> None:
        super().__init__(spec, context)
        self.recent = self.window = RecentMessages(spec.max_length or 1, context.histories)

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        if _is_kept(message):
            self.recent.remember(message, self.context.clock())
        return True

    def replay(self, now: float) -> list[Message]:
        return self.recent.replay(now)


class StoredHistory(StoredStateQueue):
    """A stored history keeps the last messages of a durable exchange in the database as well."""

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        log: Log,
        source: Source,
        saved: SavedProgress | None = None,
    ) -> None:
        super().__init__(spec, context, log, source, saved)
        self.recent = self.window = RecentMessages(spec.max_length or 1, context.histories)

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        if _is_kept(message):
            self.recent.remember(message, self.context.clock())
            self.log.expect(message)
            self.may_expire = self.may_expire or message.expires_at is not None
            appends.append((self.log, Entry(message, None, message.expires_at)))
        return True

    def recall(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.recent.remember(entry.message, self.context.clock())

    def replay(self, now: float) -> list[Message]:
        return self.recent.replay(now)


class LiveSeen(LiveMemory):
    """A live memory of values forgets them when the gateway ends."""

    judges_repetitions = True

    def __init__(self, spec: QueueSpec, context: QueueContext, ttl: float | None) -> None:
        super().__init__(spec, context)
        self.seen = self.window = _seen_keys(spec, context, ttl)

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        now = self.context.clock()
        if self.seen.has_seen(message, now):
            self.context.counters.duplicates += 1
        else:
            self.seen.remember(message, now)
        return True

    def is_repeated(self, message: Message, taken: set[Log]) -> bool:
        return self.seen.repeats(message)

    def attach(self, exchange: Exchange[Any]) -> None:
        _judge_by(self.seen, self.context.clock, exchange)


class StoredSeen(StoredStateQueue):
    """A stored memory of values has a slip for each value, without the message."""

    judges_repetitions = True

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        log: Log,
        source: Source,
        saved: SavedProgress | None = None,
    ) -> None:
        super().__init__(spec, context, log, source, saved)
        self.seen = self.window = _seen_keys(spec, context, None)

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        key, now = message.repetition_key, self.context.clock()
        if key is None:
            return True
        if self.seen.has_seen(message, now):
            self.context.counters.duplicates += 1
            return True
        self.seen.remember(message, now)
        until = self.seen.until(message, now)
        self.may_expire = self.may_expire or until is not None
        slip = _slip(key, until)
        self.log.expect(slip)
        appends.append((self.log, Entry(slip, None, until)))
        return True

    def recall(self, entries: list[Entry]) -> None:
        now = self.context.clock()
        for entry in entries:
            if entry.expires_at is None or entry.expires_at > now:
                self.seen.put(_key_on(entry.message), Seen(now, entry.expires_at, id(entry)))

    def _on_refused(self, entry: Entry) -> None:
        self.seen.forget_key(_key_on(entry.message))

    def attach(self, exchange: Exchange[Any]) -> None:
        _judge_by(self.seen, self.context.clock, exchange)


STORED_KINDS: Final[dict[str, type[StoredStateQueue]]] = {
    HISTORY_PREFIX: StoredHistory,
    SEEN_PREFIX: StoredSeen,
}


def stored_memory_class(queue_name: str) -> type[StoredStateQueue] | None:
    """Gives the class of the stored memory of that name; None: the queue is an ordinary one."""
    for prefix, kind in STORED_KINDS.items():
        if queue_name.startswith(prefix):
            return kind
    return None


def exchange_of(queue_name: str) -> str:
    """Gives the name of the exchange whose memory has that name."""
    return queue_name.partition("/")[2]


def _is_kept(message: Message) -> bool:
    if message.native and _NO_STORE_OCTETS not in message.native:  # as nearly always
        return True
    return message.properties.header_map().get(NO_STORE) is not True


def _seen_keys(spec: QueueSpec, context: QueueContext, ttl: float | None) -> SeenKeys:
    return SeenKeys(spec.max_length or 1, ttl, context.ids, f"exchange '{exchange_of(spec.name)}'")


def _judge_by(seen: SeenKeys, clock: Callable[[], float], exchange: Exchange[Any]) -> None:
    if isinstance(exchange, DeduplicationExchange):
        seen.ttl = cache_ttl(exchange.spec.name, exchange.spec.arguments)
        exchange.is_repeated = lambda key: seen.has_key(key, clock())


def _slip(key: str, expires_at: float | None) -> Message:
    """Makes the message that a deduplication exchange stores for a value."""
    native = CANONICAL.encode(Properties(message_id=key))
    return Message(b"", "", routing_key="", form=CANONICAL, native=native, expires_at=expires_at)


def _key_on(slip: Message) -> str:
    return str(slip.properties.message_id)
