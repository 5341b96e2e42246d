"""Timers for what is to be done later: expiry, delays, wills. Time is given, never asked for, so
that tests drive it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

# Timers that were cancelled, and may always wait to be cleared away.
MAX_CANCELLED_TIMERS: Final = 1024


class Appointment:
    __slots__ = ("_agenda", "action", "when")

    def __init__(self, agenda: Agenda, when: float, action: Callable[[], None] | None) -> None:
        self._agenda = agenda
        self.when = when
        self.action = action

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._agenda.on_cancelled()


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Appointment]] = []
        self._count = count()
        self._cancelled = 0  # of those in the heap
        self.on_earlier: Callable[[], None] | None = None  # the next appointment moved forward

    def at(self, when: float, action: Callable[[], None]) -> Appointment:
        appointment = Appointment(self, when, action)
        is_earliest = not self._heap or when < self._heap[0][0]
        heappush(self._heap, (when, next(self._count), appointment))
        if is_earliest and self.on_earlier is not None:
            self.on_earlier()
        return appointment

    def on_cancelled(self) -> None:
        """Drops timers that were cancelled, so that they take no more memory than those that are
        on."""
        self._cancelled += 1
        if self._cancelled > MAX_CANCELLED_TIMERS and self._cancelled > len(self._heap) // 2:
            self._heap = [each for each in self._heap if each[2].action is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next_time(self) -> float | None:
        while self._heap and self._heap[0][2].action is None:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> None:
        while (when := self.next_time()) is not None and when <= now:
            appointment = heappop(self._heap)[2]
            action, appointment.action = appointment.action, None
            if action is not None:
                action()
