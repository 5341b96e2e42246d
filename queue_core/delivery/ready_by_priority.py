"""The messages that are ready in a queue with priorities: by priority, then by offset."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from queue_core.delivery.consumer import Entry
from queue_core.delivery.ready import LEAST_ENTRIES, Budget, Source, by_offset, cost, gone_of


class PriorityReady:
    """The messages that are ready, by priority, then by offset. The offsets of all of them are
    known, as ranges; the entries are in memory as far as the budget allows."""

    __slots__ = (
        "_budget",
        "_count",
        "_entries",
        "_fetching",
        "_largest",
        "_levels",
        "_source",
        "bytes",
        "on_more",
        "tail",
    )

    def __init__(
        self,
        levels: int,
        tail: int,
        budget: Budget,
        source: Source | None,
        on_more: Callable[[], None],
    ) -> None:
        self.tail = tail
        self.on_more = on_more
        self._budget = budget
        self._source = source
        self._levels = [Offsets() for _ in range(levels + 1)]
        self._entries: dict[int, Entry] = {}
        self._fetching = False
        self._largest = 0  # cost of the largest entry that was read back last
        self._count = 0
        self.bytes = 0

    def arrive(self, entries: list[Entry]) -> None:
        for entry in entries:
            if self._source is not None:
                self._budget.used += cost(entry)
            self.give_back(entry)
        self.tail = entries[-1].offset + 1

    def give_back(self, entry: Entry) -> None:
        self.give_back_offset(entry.offset, entry.message.priority or 0)
        self.bytes += entry.message.size()
        if self._source is None or self._budget.has_room() or len(self._entries) < LEAST_ENTRIES:
            self._entries[entry.offset] = entry
        else:
            self._budget.used -= cost(entry)

    def give_back_offset(self, offset: int, priority: int, size: int = 0) -> None:
        """Notes a message as ready that is not in memory."""
        self._level(priority).add(offset)
        self._count += 1
        self.bytes += size

    def take(self) -> Entry | None:
        for level in reversed(self._levels):
            if not level:
                continue
            entry = self._entries.pop(level.first(), None)
            if entry is None:
                self._fetch(level)
                return None
            level.remove_first()
            self._count -= 1
            self.bytes -= entry.message.size()
            return entry
        return None

    def head(self) -> Entry | None:
        for level in reversed(self._levels):
            if level:
                entry = self._entries.get(level.first())
                if entry is None:
                    self._fetch(level)
                return entry
        return None

    def head_offset(self) -> int | None:
        return next((level.first() for level in reversed(self._levels) if level), None)

    def count(self) -> int:
        return self._count

    def clear(self) -> list[tuple[int, int]]:
        ranges = [r for level in self._levels for r in level.ranges()]
        if self._source is not None:
            self._budget.used -= sum(map(cost, self._entries.values()))
        self._entries.clear()
        for level in self._levels:  # emptied, not replaced: a read-back may be under way for one
            level.clear()
        self._count = 0
        self.bytes = 0
        return ranges

    def peek(self, start: int, limit: int) -> list[Entry]:
        held = (e for e in self._entries.values() if e.offset >= start)
        return sorted(held, key=by_offset)[:limit]

    def offsets_below(self, mark: int) -> list[int]:
        spans = [span for level in self._levels for span in level.ranges()]
        return [offset for start, end in spans for offset in range(start, min(end, mark))]

    def withdraw(self, offsets: list[int]) -> list[int]:
        taken = [o for o in offsets if any(level.discard(o) for level in self._levels)]
        self._count -= len(taken)
        for offset in taken:
            entry = self._entries.pop(offset, None)
            if entry is not None:
                self.bytes -= entry.message.size()
                self._budget.used -= cost(entry) if self._source is not None else 0
        return taken

    def claim(self, entry: Entry) -> bool:
        if not self._level(entry.message.priority or 0).discard(entry.offset):
            return False
        self._count -= 1
        self.bytes -= entry.message.size()
        if self._entries.pop(entry.offset, None) is None and self._source is not None:
            self._budget.used += cost(entry)
        return True

    def set_aside(self, entry: Entry) -> bool:
        return self.claim(entry)

    def knows(self, offset: int, priority: int) -> bool:
        return offset in self._level(priority)

    def view(self, budget: Budget, on_more: Callable[[], None]) -> PriorityReady:
        view = PriorityReady(len(self._levels) - 1, self.tail, budget, self._source, on_more)
        for mine, copied in zip(self._levels, view._levels, strict=True):
            copied.extend(mine.ranges())
        view._count = self._count
        if self._source is None:
            view._entries.update(self._entries)
        return view

    def keep_only(self, is_wanted: Callable[[int, int], bool]) -> None:
        held = self._entries.values()
        self.withdraw([e.offset for e in held if not is_wanted(e.offset, e.message.priority or 0)])

    def _level(self, priority: int) -> Offsets:
        """Gives the level of a priority. A row may hold any number: one out of range goes to the
        nearest level, as an error here would keep the gateway from ever starting."""
        return self._levels[max(0, min(priority, len(self._levels) - 1))]

    def _fetch(self, level: Offsets) -> None:
        """Asks for the first entries of a level that are not in memory."""
        if self._fetching or self._source is None:
            return
        self._fetching = True
        first = level.take_first(self._budget.chunk(self._largest))
        asked = [offset for offset in first if offset not in self._entries]

        def done(entries: list[Entry]) -> None:
            self._fetching = False
            self._largest = max(map(cost, entries), default=self._largest)
            wanted = level.among(asked)  # some may have been purged or withdrawn meanwhile
            for entry in entries:
                if entry.offset in wanted and entry.offset not in self._entries:
                    self._entries[entry.offset] = entry
                    self._budget.used += cost(entry)
            for offset in gone_of(asked, entries):
                if level.discard(offset):
                    self._count -= 1
            self.on_more()

        self._source.fetch_offsets(asked, done)


class Offsets:
    """An ordered set of offsets, as ranges: neighbours cost nothing."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: deque[list[int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, offset: int) -> bool:
        i = self._at(offset)
        return i >= 0 and offset < self._ranges[i][1]

    def _at(self, offset: int) -> int:
        """Gives the index of the last range that starts at the offset or before; -1: none does."""
        return bisect_right(self._ranges, offset, key=_start) - 1

    def extend(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Adds ranges, in order, behind all that is in the set."""
        self._ranges.extend([start, end] for start, end in ranges)

    def among(self, offsets: list[int]) -> set[int]:
        """Gives those of the offsets, which are in order, that are in the set."""
        found: set[int] = set()
        i = 0
        for start, end in self._ranges:
            while i < len(offsets) and offsets[i] < end:
                if offsets[i] >= start:
                    found.add(offsets[i])
                i += 1
            if i == len(offsets):
                break
        return found

    def clear(self) -> None:
        self._ranges.clear()

    def first(self) -> int:
        return self._ranges[0][0]

    def ranges(self) -> Iterator[tuple[int, int]]:
        return ((start, end) for start, end in self._ranges)

    def add(self, offset: int) -> None:
        ranges = self._ranges
        i = len(ranges) - 1
        if ranges and offset < ranges[-1][0]:  # it comes back; what arrives goes to the end
            i = self._at(offset)
        touches_left = i >= 0 and ranges[i][1] == offset
        touches_right = i + 1 < len(ranges) and ranges[i + 1][0] == offset + 1
        if touches_left and touches_right:
            ranges[i][1] = ranges[i + 1][1]
            del ranges[i + 1]
        elif touches_left:
            ranges[i][1] = offset + 1
        elif touches_right:
            ranges[i + 1][0] = offset
        else:
            ranges.insert(i + 1, [offset, offset + 1])

    def remove_first(self) -> None:
        first = self._ranges[0]
        first[0] += 1
        if first[0] >= first[1]:
            self._ranges.popleft()

    def discard(self, offset: int) -> bool:
        i = self._at(offset)
        if i < 0 or offset >= self._ranges[i][1]:
            return False
        start, end = self._ranges[i]
        del self._ranges[i]
        for piece in ([offset + 1, end], [start, offset]):
            if piece[0] < piece[1]:
                self._ranges.insert(i, piece)
        return True

    def take_first(self, count: int) -> list[int]:
        """Lists the first offsets, and leaves them in place."""
        found: list[int] = []
        for start, end in self._ranges:
            found.extend(range(start, min(end, start + count - len(found))))
            if len(found) >= count:
                break
        return found


def _start(span: list[int]) -> int:
    return span[0]
