"""The bound on what all queues in memory hold together.

Each has limits of its own, but there may be many. What they hold is counted anew at most once a
second, and only when what came in since might have filled it; until then the count is what was
there, and all that was kept since. A queue with little in it always has room: live traffic goes on
however much the others hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from queue_core.delivery.consumer import ENTRY_OVERHEAD_BYTES

log = logging.getLogger(__name__)

MOST_BYTES: Final = 512 * 1024 * 1024
ALWAYS: Final = 64 * 1024  # bytes that every queue may hold
PAUSE: Final = 1.0  # seconds between two counts


class Held(Protocol):
    def memory(self) -> int:
        """Gives the bytes that the queue's messages take, ready or waiting for their time."""


class EphemeralMemory:
    __slots__ = ("_clock", "_count_again_at", "_counted", "_is_told", "_queues", "_used", "limit")

    def __init__(
        self,
        limit: int = MOST_BYTES,
        clock: Callable[[], float] = float,
        queues: Callable[[], Iterable[Held]] = tuple,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._queues = queues
        self._used = 0  # at most so much
        self._counted = 0  # and that much was really there, when they were counted last
        self._count_again_at = 0.0
        self._is_told = False

    def keep(self, size: int, count: int = 1) -> None:
        """Counts bytes that came into one of the queues."""
        self._used += size + count * ENTRY_OVERHEAD_BYTES

    def is_full(self) -> bool:
        if self._used < self.limit:
            return False
        self._count()
        return self._used >= self.limit

    def used(self, *, exactly: bool = False) -> int:
        """Gives the bytes that all queues hold; at most so much, where it need not be exact. They
        are counted when enough came in since the last time to make a difference. Never more than
        the limit: a message in many queues counts in each of them, and is there once."""
        if exactly or self._used - self._counted > self.limit // 8:
            self._count()
        return min(self._used, self.limit)

    def _count(self) -> None:
        now = self._clock()
        if now >= self._count_again_at:
            self._count_again_at = now + PAUSE
            self._used = self._counted = sum(queue.memory() for queue in self._queues())
            self._tell()

    def _tell(self) -> None:
        is_full = self._used >= self.limit
        if is_full and not self._is_told:
            log.warning(
                "queues in memory hold %d MiB together, and may hold %d: each refuses more, or "
                "drops its oldest if it is set to, until there is room; find out who does not "
                "consume, or raise storage.ephemeral_bytes",
                self._used >> 20,
                self.limit >> 20,
            )
        self._is_told = is_full
