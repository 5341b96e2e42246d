"""Back-pressure from a subscriber that is behind to those who publish to it.

A queue that stands for a connected subscriber may hold its publishers instead of dropping messages:
it takes what comes, and whoever finds it full stops reading its own peer until there is room. A
subscriber that takes nothing at all for the stall time-out while somebody waits for it is ended, so
that nobody waits for ever. Knows no protocol and no socket.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from queue_core.errors import ConsumerStalled

if TYPE_CHECKING:
    from queue_core.queues.competing import CompetingQueue
    from queue_core.timers import Appointment

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0  # between two looks while somebody waits
STALL_SECONDS: Final = 30.0  # below the keep alive of most clients: a publisher that waits lives on


class Backpressure:
    """The publishers that wait for room in one queue, and how long its consumers may keep them."""

    __slots__ = ("_moved_at", "_queue", "_stall_seconds", "_unsent", "_waiters", "_watch")

    def __init__(self, queue: CompetingQueue, stall_seconds: float = STALL_SECONDS) -> None:
        self._queue = queue
        self._stall_seconds = stall_seconds
        self._waiters: list[asyncio.Future[None]] = []
        self._watch: Appointment | None = None  # while somebody waits
        self._moved_at = 0.0  # when the consumers last took something
        self._unsent = 0  # bytes on their way to the consumers' peers at the last look

    def is_full(self) -> bool:
        """Tells whether whoever publishes now should wait afterwards."""
        queue, spec = self._queue, self._queue.spec
        if not queue.cursor.consumers or queue.is_deleted:
            return False
        ready = queue.cursor.ready
        if spec.max_length is not None and ready.count() >= max(1, spec.max_length):
            return True
        if spec.max_bytes is not None and ready.bytes >= spec.max_bytes:
            return True
        return queue.is_memory_full()

    def _has_room(self) -> bool:
        """Tells whether half of the queue is free: publishers that wait are let go together, not
        one by one."""
        queue, spec = self._queue, self._queue.spec
        if not queue.cursor.consumers or queue.is_deleted:
            return True
        ready = queue.cursor.ready
        if spec.max_length is not None and ready.count() > spec.max_length // 2:
            return False
        if spec.max_bytes is not None and ready.bytes > spec.max_bytes // 2:
            return False
        return not queue.is_memory_full()

    async def room(self) -> None:
        """Returns when there is room again, or nobody consumes from the queue any more."""
        if self._has_room():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._watch is None:
            self._moved_at = self._queue.context.clock()
            self._unsent = self._count_unsent()
            self._look_later()
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # it gave up
                self._waiters.remove(waiter)
                if not self._waiters:
                    self.release()

    def on_taken(self) -> None:
        """Looks whether publishers may go on, after the consumers took something or went away."""
        if not self._waiters:
            return
        self._moved_at = self._queue.context.clock()
        if self._has_room():
            self.release()

    def release(self) -> None:
        """Lets everybody go on who waits, and stops looking at the consumers."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --- subscribers that take nothing

    def _look_later(self) -> None:
        clock = self._queue.context.clock
        when = min(clock() + LOOK_SECONDS, self._moved_at + self._stall_seconds)
        self._watch = self._queue.context.agenda.at(when, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._has_room():  # what was in it has expired, or somebody purged it
            self.release()
            return
        queue = self._queue
        unsent, now = self._count_unsent(), queue.context.clock()
        if unsent < self._unsent:  # the peer reads, if slowly
            self._moved_at = now
        self._unsent = unsent
        if now >= self._moved_at + self._stall_seconds:
            self._end_consumers()
            self.release()
        else:
            self._look_later()

    def _count_unsent(self) -> int:
        return sum(
            0 if consumer.unsent is None else consumer.unsent()
            for consumer in self._queue.cursor.consumers
        )

    def _end_consumers(self) -> None:
        queue = self._queue
        error = ConsumerStalled(
            f"took nothing for {self._stall_seconds:g} s while publishers waited for room in its "
            "queue; acknowledge and read, or raise session.stall_timeout"
        )
        for consumer in list(queue.cursor.consumers):
            queue.context.counters.stalled_consumers += 1
            log.warning("a consumer of queue '%s' is disconnected: it %s", queue.name, error)
            consumer.sink.on_cancel(consumer, error)
