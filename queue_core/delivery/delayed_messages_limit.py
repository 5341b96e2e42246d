"""A bound for the messages that wait for their time, of all queues together.

Each message takes memory until it is due, however small it is and however long that takes. Above
the bound, publishers are refused, and what consumers return for later comes back at once. Messages
that a gateway finds delayed when it starts count, too, and may be more than the bound.
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
    """The number of delayed messages in all queues, those of a stream counted once for all groups,
    and the bound for it."""

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
        self.streams: WeakSet[DueTimes] = WeakSet()  # asked to forget what is due
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
        """Makes the error that a publisher gets above the bound."""
        return QueueFull(REMEDY % self.limit)

    def memory(self) -> int:
        """Gives the bytes that delayed messages take; those above the limit, which only a start may
        find, are left out."""
        return min(self.used, self.limit) * DELAY_BYTES

    def _tell(self) -> None:
        """Logs that the bound was met, now and then."""
        now = self._clock()
        if now >= self._log_again_at:
            self._log_again_at = now + LOG_PAUSE_SECONDS
            log.warning("delays are refused, and returned messages come at once: %s", self.error())
