"""Rings: totals at equal distances of time, the newest in the place of the oldest.

A ring is told only when a total has changed: times of which it was not told have the totals before
them. So a queue that rests costs nothing, and neither does reading a ring change it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TICK_SECONDS: Final = 5  # between two samples, as in RabbitMQ


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time that a ring covers, and the distance of its samples, in seconds."""

    seconds: int
    step: int

    @property
    def slots(self) -> int:
        return self.seconds // self.step + 1


SHORT: Final = Span(60, TICK_SECONDS)
LONG: Final = (Span(600, 30), Span(3600, 60), Span(28_800, 300))


class Ring:
    """The totals of several counters over one span. A slot has the last totals of its step."""

    __slots__ = ("_last", "_slots", "_values", "_width", "step")

    def __init__(self, span: Span, before: Sequence[int], now: int) -> None:
        """`before`: the totals until now, a time in seconds since the epoch."""
        self.step = span.step
        self._slots = span.slots
        self._width = len(before)
        self._values = array("q", before) * span.slots
        self._last = now // span.step - 1

    @property
    def last_time(self) -> int:
        return self._last * self.step

    def put(self, now: int, totals: Sequence[int]) -> None:
        """Keeps the totals of this time. Slots that were left out get the totals before."""
        at = now // self.step
        if at > self._last:
            kept = self._slot(self._last)
            for missed in range(max(self._last + 1, at - self._slots + 1), at):
                self._write(missed, kept)
            self._last = at
        self._write(at, array("q", totals))

    def growth(self, index: int, now: int) -> int:
        """Tells how much a counter grew between the last two slots."""
        last = self._last
        if now // self.step > last:
            return 0  # nothing happened since
        width, values = self._width, self._values
        newest, before = last % self._slots, (last - 1) % self._slots
        return values[newest * width + index] - values[before * width + index]

    def column(self, index: int, now: int, count: int) -> list[int]:
        """Returns a counter's totals, the newest first, at most as many as the ring covers."""
        at = now // self.step
        oldest = max(0, self._last - self._slots + 1)
        found = []
        for slot in range(at, at - min(count, self._slots), -1):
            place = min(max(slot, oldest), self._last) % self._slots
            found.append(self._values[place * self._width + index])
        return found

    def _slot(self, at: int) -> array[int]:
        start = at % self._slots * self._width
        return self._values[start : start + self._width]

    def _write(self, at: int, totals: array[int]) -> None:
        start = at % self._slots * self._width
        self._values[start : start + self._width] = totals


class History:
    """The rings of one subject. The long ones are made when somebody asks for them, or for what is
    watched from the start."""

    __slots__ = ("_long", "_short", "totals")

    def __init__(self, before: Sequence[int], now: int, *, is_long: bool = False) -> None:
        self.totals: Sequence[int] = before  # the last that were put
        self._short = Ring(SHORT, before, now)
        self._long: tuple[Ring, ...] = ()
        if is_long:
            self.lengthen(now)

    @property
    def is_long(self) -> bool:
        return bool(self._long)

    def lengthen(self, now: int) -> None:
        """Keeps hours of it from now on."""
        self._long = tuple(Ring(span, self.totals, now) for span in LONG)

    def shorten(self) -> None:
        """Keeps the last minute alone from now on."""
        self._long = ()

    def put(self, now: int, totals: Sequence[int]) -> None:
        self.totals = totals
        self._short.put(now, totals)
        for ring in self._long:
            ring.put(now, totals)

    @property
    def changed_at(self) -> int:
        """The time of the last sample in which something had changed, in seconds."""
        return self._short.last_time

    def rate(self, index: int, now: int) -> float:
        """Tells how much a counter grew by the second, between the last two samples."""
        return self._short.growth(index, now) / TICK_SECONDS

    def samples(self, index: int, now: int, age: int, step: int) -> list[tuple[int, int]]:
        """Returns totals with their times in seconds, the newest first, `step` seconds apart and
        `age` seconds back, from the finest ring that goes back so far."""
        ring = self._ring(age)
        stride = max(1, step // ring.step)
        found = ring.column(index, now, age // ring.step + 1)
        at = now // ring.step
        return [((at - i) * ring.step, found[i]) for i in range(0, len(found), stride)]

    def _ring(self, age: int) -> Ring:
        rings = (self._short, *self._long)
        spans = (SHORT, *LONG)
        for ring, span in zip(rings, spans, strict=False):
            if age <= span.seconds:
                return ring
        return rings[-1]
