"""The share of the event loop that long answers may take.

A list of ten thousand queues takes a second to write. It is written in slices of a few
milliseconds, and messages have the loop for at least twice as long, however many lists are asked
for at a time. A short list does not wait: rest is owed for a while before it is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from time import perf_counter
from typing import Final, TypeVar

SLICE_SECONDS: Final = 0.004
REST_FACTOR: Final = 2.0
MOST_OWED_SECONDS: Final = 0.08  # of rest; a page of ten thousand queues, sorted, owes 40 ms
LOOKED_AT_CLOCK_EACH: Final = 8  # items; the dearest take a tenth of a millisecond

T = TypeVar("T")
R = TypeVar("R")


class LoopShare:
    """Gives one slice of long work at a time its turn on the loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._owed = 0.0  # seconds of rest
        self._worked_at = perf_counter()  # when the last slice ended

    async def slices(self, items: Iterable[T], work: Callable[[T], R]) -> AsyncIterator[list[R]]:
        """Does the work on all items, and yields the results slice by slice. Between two slices
        others have the loop at least once."""
        iterator = iter(items)
        while True:
            async with self._turn:
                began = perf_counter()
                done, is_last = _worked(iterator, work, began + SLICE_SECONDS)
                rest = self._rest(began, perf_counter())
                if not is_last:
                    await asyncio.sleep(rest)
            if done:
                yield done
            if is_last:
                return

    def _rest(self, began: float, ended: float) -> float:
        """Enters a slice, and returns for how long the next one has to wait. The time since the
        last one was rest."""
        self._owed = max(0.0, self._owed - (began - self._worked_at))
        self._owed += REST_FACTOR * (ended - began)
        self._worked_at = ended
        return max(0.0, self._owed - MOST_OWED_SECONDS)

    async def all(self, items: Iterable[T], work: Callable[[T], R]) -> list[R]:
        """Does the work on all items, and returns all results."""
        results: list[R] = []
        async for part in self.slices(items, work):
            results += part
        return results


def _worked(iterator: Iterator[T], work: Callable[[T], R], until: float) -> tuple[list[R], bool]:
    """Works on items until the time is over; True: there are no more."""
    done: list[R] = []
    for item in iterator:
        done.append(work(item))
        if len(done) % LOOKED_AT_CLOCK_EACH == 0 and perf_counter() > until:
            return done, False
    return done, True
