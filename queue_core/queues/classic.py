"""Classic queues: competing consumers on a log in PostgreSQL, with one cursor."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.cursor_spec import SavedProgress
from queue_core.delivery.ready import FifoReady, Ready, Source
from queue_core.delivery.ready_by_priority import PriorityReady
from queue_core.message.message import Message
from queue_core.queues.competing import CompetingQueue, cursor_spec
from queue_core.queues.context import QueueContext
from queue_core.queues.deduplication_by_message_id import Window
from queue_core.queues.queue import Appends, Queue
from queue_core.queues.spec import Overflow, QueueSpec


class ClassicQueue(CompetingQueue):
    """A queue whose messages are a log in PostgreSQL, read by one cursor."""

    is_stored = True

    def __init__(
        self,
        spec: QueueSpec,
        context: QueueContext,
        log: Log,
        source: Source,
        saved: SavedProgress | None = None,
    ) -> None:
        saved = saved or SavedProgress()
        settled = saved.settled

        def ready(_: Cursor) -> Ready:
            if spec.max_priority:
                return PriorityReady(
                    spec.max_priority, log.tail, context.budget, source, self.on_more
                )
            return FifoReady(
                settled.floor, log.tail, context.budget, source, self.on_more, settled.above
            )

        def make_cursor(queue: CompetingQueue) -> Cursor:
            return Cursor(
                queue,
                context,
                cursor_spec(spec, log.queue_id),
                ready,
                journal=context.journal,
                saved=saved,
            )

        super().__init__(spec, context, make_cursor)
        self.log = log
        # Of a session's queue: which messages are worth storing for somebody who may be away.
        self.wants: Callable[[Message, tuple[object, ...]], bool] | None = None
        if spec.deduplicates:
            self.window = self.present_keys()
        elif spec.dedup_window:
            self.window = Window(spec.dedup_window, context.ids, spec.name)
        self.may_expire = self.may_expire or log.tail > settled.floor
        log.cursors.append(self.cursor)
        # A log that was read back has messages whose bytes nobody has counted yet.
        self.knows_bytes = log.tail <= settled.floor
        self._count_pending(spec)
        log.on_arrival = self.on_arrival
        log.on_refused = self._on_refused

    def apply(self, spec: QueueSpec) -> None:
        self._count_pending(spec)
        super().apply(spec)

    def _count_pending(self, spec: QueueSpec) -> None:
        """Has the log count the bytes on their way to the disk, where a limit asks for them."""
        counts = spec.max_bytes is not None and spec.overflow is not Overflow.DROP_HEAD
        self.log.count_pending_bytes(counts=counts)

    @property
    def lacks_bytes(self) -> bool:
        return self.spec.max_bytes is not None and not self.knows_bytes

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

    def purge(self) -> int:
        count = super().purge()
        self.knows_bytes = True  # nothing is ready that was not counted
        return count

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
        return self.log.expect_run(messages, options)

    @property
    def pending(self) -> int:
        return self.log.pending

    @property
    def next_offset(self) -> int:
        return self.log.next_offset + self.log.pending

    def is_repeated(self, message: Message, taken: set[Log]) -> bool:
        return self.window is not None and self.log not in taken

    def on_arrival(self, entries: list[Entry]) -> None:
        self.traffic.count_published(len(entries))
        if self.window is not None:
            for entry in entries:
                self.window.arrived(entry)
        super().on_arrival(entries)

    def _on_refused(self, entry: Entry) -> None:
        if self.window is not None and not entry.message.deaths:
            self.window.forget(entry.message)


def classic(queue: Queue | None) -> ClassicQueue | None:
    """Gives the queue if it is a classic one. Sessions and shared groups keep their messages in
    queues of exactly this kind, and ask by kind because queues are found by name."""
    return queue if isinstance(queue, ClassicQueue) else None
