"""What is to be done at a later time: expiry, delays, wills. Time is given, never asked for, so
that tests drive it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Appointment:
    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None] | None) -> None:
        self.when = when
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Appointment]] = []
        self._count = count()
        self.on_earlier: Callable[[], None] | None = None  # the next appointment moved forward

    def at(self, when: float, action: Callable[[], None]) -> Appointment:
        appointment = Appointment(when, action)
        is_earliest = not self._heap or when < self._heap[0][0]
        heappush(self._heap, (when, next(self._count), appointment))
        if is_earliest and self.on_earlier is not None:
            self.on_earlier()
        return appointment

    def next_time(self) -> float | None:
        while self._heap and self._heap[0][2].action is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> None:
        while (when := self.next_time()) is not None and when <= now:
            appointment = heappop(self._heap)[2]
            action, appointment.action = appointment.action, None
            if action is not None:
                action()
