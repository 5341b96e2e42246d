"""Messages that wait for their time, the first one first, and how a cursor puts them there.

A message that is not due is not ready: it is set aside when it arrives, when a consumer returns it
for later, and when a gateway finds it again after a restart. The agenda wakes the cursor when the
first one is due. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from queue_core.delivery.consumer import Entry
from queue_core.delivery.delay_limit import DelayBudget
from queue_core.outcomes import Outcome, Verdict

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor

SOON_SECONDS: Final = 5.0  # what is delayed for longer is read back, where memory is not plenty

# An entry, or, where it is not in memory, what the order needs to know: priority and size.
Kept = Entry | tuple[int, int]


class Delays:
    __slots__ = ("_heap", "_kept", "budget", "bytes", "next_time")

    def __init__(self, budget: DelayBudget | None = None) -> None:
        self.budget = budget or DelayBudget()
        self._heap: list[tuple[float, int]] = []
        self._kept: dict[int, Kept] = {}
        self.next_time = inf
        self.bytes = 0  # of the bodies and properties of all that waits, in memory or not

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, when: float, offset: int, kept: Kept) -> None:
        heappush(self._heap, (when, offset))
        self._kept[offset] = kept
        self.budget.used += 1
        self.bytes += _size(kept)
        self.next_time = self._heap[0][0]

    def take_due(self, now: float) -> Iterator[tuple[int, Kept]]:
        """Those whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, offset = heappop(self._heap)
            self.next_time = self._heap[0][0] if self._heap else inf
            kept = self._kept.pop(offset, None)
            if kept is not None:
                self.bytes -= _size(kept)
                self.budget.used -= 1
                yield offset, kept

    def times(self) -> dict[int, float]:
        """Until when each waits."""
        return {offset: when for when, offset in self._heap}

    def offsets(self) -> list[int]:
        return list(self._kept)

    def clear(self) -> list[Entry]:
        """Nothing waits any more; the entries that were in memory."""
        entries = [kept for kept in self._kept.values() if isinstance(kept, Entry)]
        self.budget.used -= len(self._kept)
        self._heap.clear()
        self._kept.clear()
        self.next_time = inf
        self.bytes = 0
        return entries


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
        self._on_due = on_due  # with those that have become due
        self._on_earlier = on_earlier  # with a time before which nothing else is due
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
        """Forgets those whose time has come, and tells which they were."""
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[1])
        if due:
            self._budget.used -= len(due)
            self._offsets.difference_update(due)
            self._on_due(due)

    def count(self, now: float) -> int:
        """Gives the number of those that are not due yet."""
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


class Delay(NamedTuple):
    """A delayed message as a restart finds it: when it is due, and what the order needs to know."""

    until: float
    priority: int
    size: int


def bounded(cursor: Cursor, verdict: Verdict) -> Verdict:
    """Gives the verdict without its delay where no more messages may be delayed."""
    budget = cursor.delayed.budget
    if verdict.outcome is Outcome.REJECTED or not cursor.requeues or not budget.is_full():
        return verdict
    budget.count_cut()
    return replace(verdict, delay=0.0)


def put_off(cursor: Cursor, entry: Entry, when: float) -> None:
    """Keeps an entry, which is neither ready nor in flight, until its time. For a group of a stream
    the stream does."""
    if cursor.due_times is not None:
        cursor.release_memory(entry)
        return
    if when < cursor.delayed.next_time:  # the others wait behind the first
        cursor.policy.on_delayed(cursor, when)
    kept: Kept = entry
    if cursor.spec.queue_id and not _may_keep(cursor, when):
        cursor.release_memory(entry)
        kept = entry.message.priority or 0, entry.message.size()
    cursor.delayed.add(when, entry.offset, kept)


def is_early(cursor: Cursor, entry: Entry, now: float) -> bool:
    """Tells whether the entry is not due. For a group of a stream that is until the stream gives it
    back, so that none is lost, and none comes twice, by a moment."""
    if entry.not_before is None:
        return False
    if cursor.due_times is not None:
        return entry.offset in cursor.due_times
    return entry.not_before > now


def _may_keep(cursor: Cursor, when: float) -> bool:
    """Whether memory has room for one that is due then; for what nobody wants soon, half of it."""
    if when > cursor.context.clock() + SOON_SECONDS:
        return cursor.context.budget.has_plenty()
    return cursor.context.budget.has_room()


def set_aside(cursor: Cursor, entries: Iterable[Entry]) -> None:
    """Takes out of what is ready those that have just arrived and are not due."""
    now = cursor.context.clock()
    for entry in entries:
        when = entry.not_before
        if when is not None and when > now and cursor.ready.set_aside(entry):
            put_off(cursor, entry, when)


def restore(cursor: Cursor, found: Mapping[int, Delay]) -> None:
    """The same after a restart, for messages that are not in memory; by offset."""
    for offset in cursor.ready.withdraw(sorted(found)):
        delay = found[offset]
        cursor.delayed.add(delay.until, offset, (delay.priority, delay.size))
    if cursor.delayed:
        cursor.policy.on_delayed(cursor, cursor.delayed.next_time)


def end_delays(cursor: Cursor, now: float) -> None:
    """Gives back to the queue all whose time has come."""
    cursor.has_returned = True
    for offset, kept in cursor.delayed.take_due(now):
        if isinstance(kept, Entry):
            kept.not_before = None
            cursor.give_back(kept)
        else:
            give_back_offset(cursor, offset, *kept)
    if cursor.delayed:
        cursor.policy.on_delayed(cursor, cursor.delayed.next_time)


def give_back_offset(cursor: Cursor, offset: int, priority: int = 0, size: int = 0) -> None:
    """Gives back to the queue one that is due and not in memory."""
    cursor.ready.give_back_offset(offset, priority, size)
    is_changed = offset in cursor.history.amendments
    for selection in cursor.selections:
        selection.on_returned_offset(offset, priority, is_changed=is_changed)


def delays_of(cursor: Cursor) -> dict[int, float]:
    """Until when those wait that came back for later, by offset."""
    times, returned = cursor.delayed.times(), cursor.history.returned()
    now = {offset: when for offset, when in times.items() if offset in returned}
    return cursor.history.delays | now
