"""The consumers of one cursor: who is there, and whose turn it is."""

from __future__ import annotations

from collections import deque
from typing import Final
from weakref import WeakSet

from queue_core.delivery.consumer import Consumer
from queue_core.delivery.filtered_view import FilteredView

MOST_LINES: Final = 16  # one for each priority, before empty ones are cleared away


class Line:
    """Consumers that have credit, by priority, and in turn among those of the same priority."""

    __slots__ = ("_by_priority", "_priorities")

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[Consumer]] = {}
        self._priorities: list[int] = []

    def join(self, consumer: Consumer) -> None:
        """Puts a consumer at the end of the line of its priority, unless it stands there."""
        if consumer.is_waiting:
            return
        consumer.is_waiting = True
        priority = consumer.spec.priority
        line = self._by_priority.get(priority)
        if line is None:
            line = self._open(priority)
        line.append(consumer)

    def _open(self, priority: int) -> deque[Consumer]:
        """Opens the line of a priority. Empty lines are cleared away before they are many, because
        consumers choose their priorities freely."""
        if len(self._by_priority) >= MOST_LINES:
            self._by_priority = {each: line for each, line in self._by_priority.items() if line}
        line = self._by_priority[priority] = deque()
        self._priorities = sorted(self._by_priority, reverse=True)
        return line

    def leave(self, consumer: Consumer) -> None:
        """Takes a consumer out of the line, if it stands there."""
        if consumer.is_waiting:
            consumer.is_waiting = False
            self._by_priority[consumer.spec.priority].remove(consumer)

    def next(self) -> Consumer | None:
        """Gives the consumer whose turn it is, and sends it to the end of its line. Consumers that
        are met without credit drop out."""
        for priority in self._priorities:
            line = self._by_priority[priority]
            while line:
                consumer = line[0]
                if consumer.has_credit():
                    if len(line) > 1:
                        line.rotate(-1)
                    return consumer
                line.popleft()
                consumer.is_waiting = False
        return None

    def keep_turn(self, consumer: Consumer) -> None:
        """Makes a consumer the next again, because there was nothing for it."""
        line = self._by_priority[consumer.spec.priority]
        if line and line[-1] is consumer:
            line.rotate(1)


class ConsumerSet:
    """All consumers of a cursor in the order they came, those with credit, and the views of those
    with a filter."""

    __slots__ = ("_cancelled", "all", "is_paused", "is_single_active", "line", "views")

    def __init__(self, *, is_single_active: bool) -> None:
        self.all: list[Consumer] = []
        self.line = Line()
        self.views: list[FilteredView] = []
        self.is_paused = False  # nobody gets anything, until an operator resumes the queue
        self.is_single_active = is_single_active  # one consumer at a time, the others wait
        self._cancelled: WeakSet[Consumer] | None = None  # those that may still settle something

    @property
    def active(self) -> Consumer | None:
        """The consumer that has been here longest, the only one to get messages where the queue
        has a single active consumer."""
        return next((each for each in self.all if not each.spec.is_passing), None)

    def may_take(self, consumer: Consumer) -> bool:
        """Tells whether a consumer may get messages now. A single active consumer excludes those
        that stay, not one that comes for one message and goes."""
        if self.is_paused:
            return False
        return not self.is_single_active or consumer.spec.is_passing or consumer is self.active

    def pause(self) -> None:
        """Stops deliveries to all consumers: only who stands in the line gets something, and nobody
        may join it."""
        self.is_paused = True
        for consumer in self.all:
            self.line.leave(consumer)

    def resume(self) -> None:
        """Lets deliveries go on."""
        self.is_paused = False
        for consumer in list(self.all):
            consumer.wake()

    def add_view(self, consumer: Consumer, view: FilteredView) -> None:
        """Lets a consumer look through the queue by a view of its own from now on."""
        consumer.view = view
        self.views.append(view)

    def remove(self, consumer: Consumer) -> None:
        """Takes out a consumer that ends, with its place in the line and its view."""
        consumer.is_closed = True
        self.line.leave(consumer)
        self.all.remove(consumer)
        if consumer.view is not None:
            self.views.remove(consumer.view)

    def keep_cancelled(self, consumer: Consumer) -> None:
        """Remembers a consumer that gets nothing more, as long as it has something to settle."""
        if consumer.unsettled:
            self._cancelled = self._cancelled or WeakSet()
            self._cancelled.add(consumer)

    def holders(self) -> list[Consumer]:
        """Lists all consumers, and those that were cancelled and have not settled everything."""
        left = [each for each in self._cancelled or () if each.unsettled]
        return [*self.all, *left]
