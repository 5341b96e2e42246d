"""Tunes Python's cyclic garbage collector for a server.

Messages and connections are freed by their reference counts; they leave no cycles. The collector's
default makes it look at everything that is alive again and again, because some hundred messages
are: with a few thousand on their way that was a sixth of the gateway's time. So its last generation
is left to a plan: what libraries leave behind is collected in quiet moments, after enough
connections have ended, and what that takes is measured.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Final

log = logging.getLogger(__name__)

# A young collection of 100,000 objects held the loop for 25 ms. Ended connections leave cycles in
# the middle generation, so that one comes often enough for memory to stay level.
THRESHOLDS: Final = (20_000, 20, 100)
LOOK_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 30.0  # between two full collections
MANY_ENDED: Final = 1000  # connections, after which a full collection is worth its time
QUIET_SHARE: Final = 0.2  # of the last second that the gateway may have been busy
# A quiet moment is awaited for this many times the wait between collections, and no longer.
LONGEST_WAIT_FACTOR: Final = 10
PAUSE_REST_FACTOR: Final = 1000  # times its pause that a collection is followed by none
LONG_SECONDS: Final = 0.1  # a pause that the log tells of


def tune_collector() -> None:
    """Freezes all objects that exist; call it once everything is set up, and they are not looked at
    again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@dataclass(slots=True)
class CollectorCounters:
    collections: int = 0
    collected_objects: int = 0
    pause_seconds: float = 0.0


class PlannedCollector:
    """Runs full collections when enough connections have ended and little else is to be done."""

    def __init__(
        self,
        ended: Callable[[], int],
        counters: CollectorCounters,
        clock: Callable[[], float] = perf_counter,
        busy_seconds: Callable[[], float] = process_time,
        collect: Callable[[], int] = gc.collect,
    ) -> None:
        self._ended = ended
        self._counters = counters
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._collect = collect
        self._collected_at = self._looked_at = clock()
        self._busy_before = busy_seconds()
        self._ended_before = 0
        self._wait = LEAST_SECONDS

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> bool:
        """Runs a full collection if it is time; returns True if it did."""
        now, busy = self._clock(), self._busy_seconds()
        share = (busy - self._busy_before) / max(now - self._looked_at, 1e-9)
        self._looked_at, self._busy_before = now, busy
        waited = now - self._collected_at
        if self._ended() - self._ended_before < MANY_ENDED or waited < self._wait:
            return False
        if share > QUIET_SHARE and waited < LONGEST_WAIT_FACTOR * self._wait:
            return False
        self._collect_now(now)
        return True

    def _collect_now(self, began: float) -> None:
        found = self._collect()
        ended_at = self._clock()
        pause = ended_at - began
        self._ended_before = self._ended()
        self._collected_at = ended_at
        self._wait = max(LEAST_SECONDS, PAUSE_REST_FACTOR * pause)
        self._counters.collections += 1
        self._counters.collected_objects += found
        self._counters.pause_seconds += pause
        level = logging.INFO if pause > LONG_SECONDS else logging.DEBUG
        log.log(level, "full collection: %d objects, %.0f ms", found, pause * 1000)
