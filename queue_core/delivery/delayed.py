"""Messages that wait for their time, the earliest first: those of a queue, and those of a stream.

A message that is not due is not ready: it is set aside when it arrives, when a consumer returns it
for later, and when a gateway finds it again after a restart. The agenda wakes the cursor when the
earliest is due. Nothing here has a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from queue_core.delivery.consumer import Entry
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.outcomes import Outcome, Verdict

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor

# An entry or, where the message is not in memory, its priority and its size in bytes.
Kept = Entry | tuple[int, int]


class Delay(NamedTuple):
    """A delayed message as a restart finds it: when it is due, its priority and its size."""

    until: float
    priority: int
    size: int


class Delays:
    """The delayed messages of one cursor. All of them count in the budget for all queues."""

    __slots__ = ("_budget", "_cursor", "_heap", "_kept", "bytes", "may_arrive", "next_time")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._budget = cursor.context.delays
        self._heap: list[tuple[float, int]] = []
        self._kept: dict[int, Kept] = {}
        self.next_time = inf  # when the earliest is due
        self.bytes = 0  # of the bodies and properties of all that wait, in memory or not
        self.may_arrive = False  # a message came that was not due: arrivals are looked at

    def __len__(self) -> int:
        return len(self._kept)

    # --- in

    def put_off(self, entry: Entry, when: float) -> None:
        """Keeps an entry, which is neither ready nor in flight, until its time."""
        cursor = self._cursor
        cursor.traffic.note()
        if when < self.next_time:  # the others wait behind the first
            cursor.policy.on_delayed(cursor, when)
        kept: Kept = entry
        if not cursor.memory.may_keep(when - cursor.context.clock()):
            cursor.memory.release(entry)
            kept = entry.message.priority or 0, entry.message.size()
        self._add(when, entry.offset, kept)

    def _add(self, when: float, offset: int, kept: Kept) -> None:
        heappush(self._heap, (when, offset))
        self._kept[offset] = kept
        self._budget.used += 1
        self.bytes += _size(kept)
        self.next_time = self._heap[0][0]

    def set_aside(self, entries: Iterable[Entry]) -> None:
        """Takes out of what is ready the entries that have just arrived and are not due."""
        now, ready = self._cursor.context.clock(), self._cursor.ready
        for entry in entries:
            when = entry.not_before
            if when is not None and when > now and ready.set_aside(entry):
                self.put_off(entry, when)

    def restore(self, found: Mapping[int, Delay]) -> None:
        """Takes out of what is ready the messages that a restart found delayed, by offset. None of
        them is in memory."""
        for offset in self._cursor.ready.withdraw(sorted(found)):
            delay = found[offset]
            self._add(delay.until, offset, (delay.priority, delay.size))
        self._watch()

    def bounded(self, verdict: Verdict) -> Verdict:
        """Gives the verdict without its delay where no more messages may be delayed."""
        if verdict.outcome is Outcome.REJECTED or not self._budget.is_full():
            return verdict
        self._budget.count_cut()
        return replace(verdict, delay=0.0)

    # --- out

    def is_early(self, entry: Entry, now: float) -> bool:
        """Tells whether an entry is not due yet."""
        return entry.not_before is not None and entry.not_before > now

    def end_due(self, now: float) -> None:
        """Gives back to the queue all messages whose time has come."""
        cursor = self._cursor
        cursor.dispatch.note_returned(0)
        for offset, kept in self._take_due(now):
            if isinstance(kept, Entry):
                kept.not_before = None
                cursor.give_back(kept)
            else:
                cursor.give_back_offset(offset, *kept)
        self._watch()

    def _take_due(self, now: float) -> Iterator[tuple[int, Kept]]:
        while self._heap and self._heap[0][0] <= now:
            _, offset = heappop(self._heap)
            self.next_time = self._heap[0][0] if self._heap else inf
            kept = self._kept.pop(offset, None)
            if kept is not None:
                self.bytes -= _size(kept)
                self._budget.used -= 1
                yield offset, kept

    def _watch(self) -> None:
        if self._kept:
            self._cursor.policy.on_delayed(self._cursor, self.next_time)

    def clear(self) -> list[Entry]:
        """Forgets all messages; gives the entries that were in memory."""
        entries = [kept for kept in self._kept.values() if isinstance(kept, Entry)]
        self._budget.used -= len(self._kept)
        self._heap.clear()
        self._kept.clear()
        self.next_time = inf
        self.bytes = 0
        return entries

    # --- what waits

    def offsets(self) -> list[int]:
        return list(self._kept)

    def returned_until(self) -> dict[int, float]:
        """Tells until when messages wait that consumers returned for later, by offset."""
        history = self._cursor.history
        returned = history.returned()
        waiting = {offset: when for when, offset in self._heap if offset in returned}
        return history.delays | waiting


def _size(kept: Kept) -> int:
    return kept.message.size() if isinstance(kept, Entry) else kept[1]


class DueTimes:
    """The messages of a stream that are not due, kept once for all groups: a group passes over
    them, and gets each of them back when the stream says that it is due."""

    __slots__ = ("__weakref__", "_budget", "_heap", "_offsets", "_on_due", "_on_earlier")

    def __init__(
        self,
        budget: DelayBudget,
        on_due: Callable[[list[int]], None],
        on_earlier: Callable[[float], None],
    ) -> None:
        self._heap: list[tuple[float, int]] = []
        self._offsets: set[int] = set()
        self._budget = budget
        self._on_due = on_due  # called with the offsets that have become due
        self._on_earlier = on_earlier  # called with the time of a message that is the first now
        budget.streams.add(self)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    @property
    def next_time(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def add(self, when: float, offset: int) -> None:
        """Keeps a message that no group has come to yet."""
        is_earlier = when < self.next_time
        heappush(self._heap, (when, offset))
        self._offsets.add(offset)
        self._budget.used += 1
        if is_earlier:
            self._on_earlier(when)

    def end_due(self, now: float) -> None:
        """Forgets the messages whose time has come, and gives them back to the groups."""
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[1])
        if due:
            self._budget.used -= len(due)
            self._offsets.difference_update(due)
            self._on_due(due)

    def count(self, now: float) -> int:
        """Counts the messages that are not due yet."""
        self.end_due(now)
        return len(self._heap)

    def forget_below(self, offset: int) -> None:
        """Forgets what retention dropped: all messages below an offset."""
        if self._heap:
            before = len(self._heap)
            self._heap = [each for each in self._heap if each[1] >= offset]
            self._offsets = {each for _, each in self._heap}
            self._budget.used -= before - len(self._heap)
            heapify(self._heap)

    def clear(self) -> None:
        """Forgets all: the stream is gone."""
        self._budget.used -= len(self._heap)
        self._heap.clear()
        self._offsets.clear()


class GroupDelays(Delays):
    """The delayed messages as one group of a stream sees them: the stream keeps them for all
    groups, and gives each back when it is due, so that none is lost, and none comes twice, by a
    moment."""

    __slots__ = ("_due_times",)

    def __init__(self, cursor: Cursor, due_times: DueTimes) -> None:
        super().__init__(cursor)
        self._due_times = due_times
        self.next_time = -inf  # the stream is asked at every turn

    def put_off(self, entry: Entry, when: float) -> None:
        """Passes over an entry, which the stream keeps until its time."""
        self._cursor.memory.release(entry)

    def is_early(self, entry: Entry, now: float) -> bool:
        """Tells whether the stream has not given the entry back yet."""
        return entry.not_before is not None and entry.offset in self._due_times

    def end_due(self, now: float) -> None:
        """Lets the stream give back to all groups the messages whose time has come."""
        self._due_times.end_due(now)

    def clear(self) -> list[Entry]:
        """Forgets nothing: the stream's messages are not this group's to forget."""
        return []
