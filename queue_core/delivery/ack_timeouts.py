"""Deadlines by which consumers must settle their deliveries, where a queue sets an ack timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Delivery


class SettlementDeadlines:
    """The deadline of each open delivery of a cursor, the earliest first."""

    __slots__ = ("_clock", "_due_at", "_is_watched", "_seconds", "_watch")

    def __init__(
        self, seconds: float, clock: Callable[[], float], watch: Callable[[float], None]
    ) -> None:
        self._seconds = seconds  # that a consumer has to settle a delivery
        self._clock = clock
        self._watch = watch  # plans a look at the deadlines at a time
        self._is_watched = False  # a look is planned
        self._due_at: dict[Delivery, float] = {}

    def __len__(self) -> int:
        return len(self._due_at)

    def start(self, delivery: Delivery) -> None:
        """Starts the time that the consumer has to settle the delivery."""
        self._due_at[delivery] = self._clock() + self._seconds
        if not self._is_watched:
            self.watch()

    def end(self, delivery: Delivery) -> None:
        """Forgets the deadline of a delivery that was settled."""
        self._due_at.pop(delivery, None)

    def watch(self) -> None:
        """Plans a look at the earliest deadline, unless one is planned."""
        if self._due_at and not self._is_watched:
            self._is_watched = True
            self._watch(next(iter(self._due_at.values())))

    def overdue(self) -> list[Delivery]:
        """Lists the deliveries whose deadline has passed; the look that was planned is over."""
        self._is_watched = False
        now, found = self._clock(), []
        for delivery, when in self._due_at.items():
            if when > now:
                break
            found.append(delivery)
        return found

    def clear(self) -> None:
        """Forgets all deadlines: the queue is gone."""
        self._due_at.clear()
