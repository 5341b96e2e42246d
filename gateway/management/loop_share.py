"""The share of the event loop that long answers may take.

A list of ten thousand queues takes a second to write. It is written in slices of a few
milliseconds; after each, messages have the loop for at least twice as long, however many lists are
asked for at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from time import perf_counter
from typing import Final, TypeVar

SLICE_SECONDS: Final = 0.004
REST_FACTOR: Final = 2.0
LOOKED_AT_CLOCK_EACH: Final = 8  # items; the dearest take a tenth of a millisecond

T = TypeVar("T")
R = TypeVar("R")


class LoopShare:
    """Gives one slice of long work at a time its turn on the loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def slices(self, items: Iterable[T], work: Callable[[T], R]) -> AsyncIterator[list[R]]:
        """Does the work on all items, and yields the results slice by slice. Work that fits into
        one slice does not rest."""
        iterator = iter(items)
        while True:
            async with self._turn:
                began = perf_counter()
                done, is_last = _worked(iterator, work, began + SLICE_SECONDS)
                if not is_last:
                    await asyncio.sleep(REST_FACTOR * (perf_counter() - began))
            if done:
                yield done
            if is_last:
                return

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
