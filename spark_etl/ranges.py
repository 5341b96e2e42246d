"""Ranges of offsets: (after, upto], as the jobs count. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets above `after`, up to and with `upto`."""

    after: int
    upto: int

    def __len__(self) -> int:
        return max(0, self.upto - self.after)

    def split(self, parts: int) -> list[Range]:
        """Splits into equal parts, as many as asked for unless there are fewer offsets; none is
        empty."""
        count = max(1, min(parts, len(self)))
        cuts = [self.after + len(self) * i // count for i in range(count + 1)]
        return [Range(low, high) for low, high in pairwise(cuts)]
