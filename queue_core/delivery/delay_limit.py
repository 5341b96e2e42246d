"""A bound for the messages that wait for their time, of all queues together.

Each takes memory until it is due, however small it is and however long that takes. Above the bound
publishers are refused, and what consumers return for later comes back at once. What is on disk when
a gateway starts counts, and may be more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from queue_core.counters import Counters
from queue_core.errors import QueueFull

if TYPE_CHECKING:
    from queue_core.delivery.delayed import DueTimes

log = logging.getLogger(__name__)

DELAY_BYTES: Final = 256  # of one delayed message, without its body
MOST_DELAYS: Final = 1_000_000
LOG_PAUSE_SECONDS: Final = 60.0
SWEEP_PAUSE_SECONDS: Final = 1.0

REMEDY: Final = (
    "all queues together may have %d messages that wait for their time, and have them; publish "
    "without a delay, or wait until some are due, purge queues of delayed messages, or raise "
    "memory.high_watermark"
)


class DelayBudget:
    """The budget counts the delayed messages of all queues; of a stream, once for all groups."""

    __slots__ = (
        "_clock",
        "_log_again_at",
        "_sweep_again_at",
        "counters",
        "limit",
        "streams",
        "used",
    )

    def __init__(
        self,
        limit: int = MOST_DELAYS,
        counters: Counters | None = None,
        clock: Callable[[], float] = float,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.counters = counters or Counters()
        self.streams: WeakSet[DueTimes] = WeakSet()  # they forget what is due when they are asked
        self._clock = clock
        self._log_again_at = 0.0
        self._sweep_again_at = 0.0

    def is_full(self, coming: int = 0) -> bool:
        """Tells whether there is no room for one more, with so many on their way."""
        if self.used + coming < self.limit:
            return False
        now = self._clock()
        if now >= self._sweep_again_at:
            self._sweep_again_at = now + SWEEP_PAUSE_SECONDS
            for due_times in self.streams:
                due_times.count(now)
        return self.used + coming >= self.limit

    def refuses(self, not_before: float | None, coming: int = 0) -> bool:
        """Tells whether a message with that time has to be refused."""
        return not_before is not None and not_before > self._clock() and self.is_full(coming)

    def count_refused(self) -> None:
        """Counts a message that a publisher wanted to delay."""
        self.counters.refused_delays += 1
        self._tell()

    def count_cut(self) -> None:
        """Counts a message that came back, or was dead-lettered, without its delay."""
        self.counters.cut_delays += 1
        self._tell()

    def error(self) -> QueueFull:
        return QueueFull(REMEDY % self.limit)

    def memory(self) -> int:
        """Gives the bytes that they take; never more than the limit, as a start may find more."""
        return min(self.used, self.limit) * DELAY_BYTES

    def _tell(self) -> None:
        now = self._clock()
        if now >= self._log_again_at:
            self._log_again_at = now + LOG_PAUSE_SECONDS
            log.warning("delays are refused, and returned messages come at once: %s", self.error())
