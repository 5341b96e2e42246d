"""Slows down whoever fails too often: a bucket of attempts for each key, filled again with time.

Knows neither what is attempted nor by whom, only keys.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

MOST_KEYS: Final = 10_000


class Throttle:
    """`burst` failures at once, then one more every `seconds`. An attempt is charged before it is
    made, so that many at once count as many, and gets its charge back unless it fails."""

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        # When each key will have paid off its failures; the longest unseen is forgotten first.
        self._free_at: OrderedDict[str, float] = OrderedDict()
        self.pause = pause

    def charge(self, key: str) -> float:
        """Charges one attempt; the seconds until it may be made."""
        now = self._clock()
        free_at = max(self._free_at.pop(key, now), now) + self._seconds
        self._free_at[key] = free_at
        if len(self._free_at) > MOST_KEYS:
            self._free_at.popitem(last=False)
        return max(0.0, free_at - now - self._burst * self._seconds)

    def give_back(self, key: str) -> None:
        """Takes one charge back: the attempt was no failure, or was not made."""
        free_at = self._free_at.get(key)
        if free_at is None:
            return
        if free_at - self._seconds <= self._clock():
            del self._free_at[key]
        else:
            self._free_at[key] = free_at - self._seconds
