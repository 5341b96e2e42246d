"""A set of offsets kept as ranges, such as those that are settled above a group's floor.

A stuck message at the head may have millions of settled ones behind it: they cost one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Intervals:
    """Half-open ranges [start, end), sorted, never touching each other."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add_range(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, offset: int) -> bool:
        i = bisect_right(self._starts, offset) - 1
        return i >= 0 and offset < self._ends[i]

    def range_count(self) -> int:
        return len(self._starts)

    def size(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def size_between(self, start: int, end: int) -> int:
        """Counts the offsets of [start, end) that are in the set."""
        return max(0, end - start) - sum(after - before for before, after in self.gaps(start, end))

    def add(self, offset: int) -> None:
        ends = self._ends
        if ends and ends[-1] == offset:  # settled in order: the usual case
            ends[-1] = offset + 1
        else:
            self.add_range(offset, offset + 1)

    def add_range(self, start: int, end: int) -> None:
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        first = bisect_right(ends, start - 1)  # the first range that ends at start or later
        last = bisect_right(starts, end)  # the first range that starts after end
        if first < last:
            start = min(start, starts[first])
            end = max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    def end_of(self, offset: int) -> int:
        """Tells where the range that holds `offset` ends; gives `offset` itself where none does."""
        i = bisect_right(self._starts, offset) - 1
        return self._ends[i] if i >= 0 and offset < self._ends[i] else offset

    def discard_below(self, floor: int) -> None:
        starts, ends = self._starts, self._ends
        gone = bisect_right(ends, floor)
        del starts[:gone], ends[:gone]
        if starts and starts[0] < floor:
            starts[0] = floor

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of [start, end) that are not in the set."""
        at = start
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self._starts)):
            if self._starts[i] >= end:
                break
            if self._starts[i] > at:
                yield at, self._starts[i]
            at = max(at, self._ends[i])
        if at < end:
            yield at, end

    def text(self) -> str:
        """Writes the set as PostgreSQL writes an int8multirange."""
        return "{" + ",".join(f"[{start},{end})" for start, end in self) + "}"
