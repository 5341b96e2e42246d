"""A clock in the test's hand: time passes when the test says so."""

from __future__ import annotations

from typing import Final

START: Final = 1_800_000_000.0


class Clock:
    """Stands still until its `now` is set; to be called like time.time."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
