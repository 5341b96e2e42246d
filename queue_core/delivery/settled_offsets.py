"""The messages of a log that a group is done with, kept small: a floor, and ranges above it."""

from __future__ import annotations

from typing import Final

from queue_core.delivery.intervals import Intervals

FULL_ROW_DUE_ROWS: Final = 1 << 30  # more rows than may ever lie between two full ones


class Settled:
    """The offsets of a log that are settled for one group: all below the floor, and ranges above
    it."""

    __slots__ = ("above", "floor", "rows_since_full", "unwritten")

    def __init__(self, floor: int = 0, above: Intervals | None = None) -> None:
        self.floor = floor
        self.above = above or Intervals()
        self.unwritten = Intervals()  # settled since the last row that was written
        self.rows_since_full = 0  # rows written since the last one that had all ranges

    def mark(self, offset: int) -> None:
        """Marks one offset as settled."""
        self.unwritten.add(offset)
        if offset != self.floor:
            if offset > self.floor:  # else a commit of the cursor was faster
                self.above.add(offset)
        elif not self.above:
            self.floor = offset + 1
        else:
            self._raise(offset + 1)

    def mark_range(self, start: int, end: int) -> None:
        """Marks the offsets from `start` up to, and without, `end` as settled."""
        self.unwritten.add_range(start, end)
        self.above.add_range(start, end)
        self._raise(self.floor)

    def demand_full_row(self) -> None:
        """Makes the next row that is written a full one: only such a row takes something back."""
        self.rows_since_full = FULL_ROW_DUE_ROWS

    def _raise(self, floor: int) -> None:
        self.floor = self.above.end_of(floor)
        self.above.discard_below(self.floor)

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self.above
