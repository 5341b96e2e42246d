"""Slows down whoever fails too often: a bucket of attempts per place, filled again with time.

Knows neither what is attempted nor by whom, only names of places.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MOST_PLACES: Final = 10_000


class Throttle:
    """`burst` failures at once, then one more every `seconds`."""

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        # When each place will have paid off its failures; the longest unseen is forgotten first.
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def seconds_to_wait(self, place: str) -> float:
        owed = self._free_at.get(place, 0.0) - self._clock()
        return max(0.0, owed - (self._burst - 1) * self._seconds)

    def count(self, place: str) -> None:
        """A failure from there."""
        free_at = max(self._free_at.pop(place, 0.0), self._clock()) + self._seconds
        self._free_at[place] = free_at
        if len(self._free_at) > MOST_PLACES:
            self._free_at.popitem(last=False)


class Throttles:
    """Two at once: one for a place as a whole, a stricter one for each name that it tries."""

    def __init__(self, place: Throttle | None = None, name: Throttle | None = None) -> None:
        self._throttles = (place or Throttle(200, 0.05), name or Throttle())

    def seconds(self, place: str, name: str) -> float:
        """How long to wait before the next attempt; 0: go ahead."""
        pairs = zip(self._throttles, (place, name), strict=True)
        return max(throttle.seconds_to_wait(key) for throttle, key in pairs)

    def count(self, place: str, name: str) -> None:
        """A failure."""
        for throttle, key in zip(self._throttles, (place, name), strict=True):
            throttle.count(key)
