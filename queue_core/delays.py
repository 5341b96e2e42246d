"""What waits for its time, the first one first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from queue_core.consumers import Entry

# An entry, or, where memory has no room for it, what the order needs to know: priority and size.
Kept = Entry | tuple[int, int]


class Delays:
    __slots__ = ("_heap", "_kept", "bytes", "next_time")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._kept: dict[int, Kept] = {}
        self.next_time = inf
        self.bytes = 0  # of the bodies and properties of all that waits, in memory or not

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, when: float, offset: int, kept: Kept) -> None:
        heappush(self._heap, (when, offset))
        self._kept[offset] = kept
        self.bytes += _size(kept)
        self.next_time = self._heap[0][0]

    def take_due(self, now: float) -> Iterator[tuple[int, Kept]]:
        """Those whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, offset = heappop(self._heap)
            self.next_time = self._heap[0][0] if self._heap else inf
            kept = self._kept.pop(offset, None)
            if kept is not None:
                self.bytes -= _size(kept)
                yield offset, kept

    def times(self) -> dict[int, float]:
        """Until when each waits."""
        return {offset: when for when, offset in self._heap}

    def offsets(self) -> list[int]:
        return list(self._kept)

    def clear(self) -> list[Entry]:
        """Nothing waits any more; the entries that were in memory."""
        entries = [kept for kept in self._kept.values() if isinstance(kept, Entry)]
        self._heap.clear()
        self._kept.clear()
        self.next_time = inf
        self.bytes = 0
        return entries


def _size(kept: Kept) -> int:
    return kept.message.size() if isinstance(kept, Entry) else kept[1]
