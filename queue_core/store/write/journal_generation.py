"""Generations of the journal: when it begins a new one.

The journal only grows: settlements, failed deliveries, message ids, packets and the marks of
commits. After enough rows its state is written into a new generation (`journal_snapshot`), and the
earlier ones are dropped.
"""

from __future__ import annotations

from typing import Final

GENERATION_ROWS: Final = 250_000  # journal rows after which the journal starts again


class JournalGeneration:
    """The generation that the journal is in, and the rows that it has so far."""

    __slots__ = ("_first_mark", "_retry_at_rows", "number", "rows_beside_marks")

    def __init__(self, number: int, newest_mark: int) -> None:
        self.number = number
        self.rows_beside_marks = 0
        self._first_mark = newest_mark  # number of the newest commit when this generation began
        self._retry_at_rows = 0  # before the next try, after one in vain

    def rows(self, newest_mark: int) -> int:
        """Counts the rows of this generation; each commit leaves its mark beside the rows that it
        writes."""
        return self.rows_beside_marks + newest_mark - self._first_mark

    def is_full(self, newest_mark: int) -> bool:
        """Tells if the journal starts a new generation with the next write."""
        return self.rows(newest_mark) >= max(GENERATION_ROWS, self._retry_at_rows)

    def put_off(self, newest_mark: int) -> None:
        """Puts the next generation off, as it could not begin: it is not tried again before a
        tenth more of the rows have come."""
        self._retry_at_rows = self.rows(newest_mark) + GENERATION_ROWS // 10
