"""What is ready to be handed out, in the order of offsets.

Only a bounded part of a stored queue is in memory. `FifoReady` keeps a run of entries that starts
at the next offset to hand out; what did not fit is read back in chunks. A returned message goes
back to its own place: before everything that was never handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, Protocol

from queue_core.consumers import Entry
from queue_core.intervals import Intervals

CHUNK: Final = 1000  # entries a read-back asks for at most
LOW: Final = 500  # entries left in the run when the next chunk is asked for
ENTRY_OVERHEAD: Final = 512  # bytes of Python objects around a message
LEAST: Final = 16  # entries that a queue may always hold, however tight memory is


class Source(Protocol):
    """Where entries that are not in memory are read back from. Answers later, through `done`, with
    the entries that exist, in offset order."""

    def fetch(
        self, start: int, end: int, limit: int, done: Callable[[list[Entry]], None]
    ) -> None: ...

    def fetch_offsets(self, offsets: list[int], done: Callable[[list[Entry]], None]) -> None: ...


class Budget:
    """The memory that entries of all queues may take together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has_room(self) -> bool:
        return self.used < self.limit

    def chunk(self, largest: int) -> int:
        """How many entries to read back at once, if none is larger than the largest of the last
        ones; of which nothing is known yet, a few."""
        if not largest:
            return LEAST
        return max(LEAST, min(CHUNK, (self.limit - self.used) // largest))


def cost(entry: Entry) -> int:
    return entry.message.size() + ENTRY_OVERHEAD


def by_offset(entry: Entry) -> int:
    return entry.offset


class Ready(Protocol):
    """The order in which a cursor hands out entries."""

    tail: int
    bytes: int  # of the bodies and properties of all that is ready

    def arrive(self, entries: list[Entry]) -> None:
        """Committed entries, the first at `tail`."""

    def take(self) -> Entry | None:
        """The next entry; None when there is none, or when it must be read back first (then
        `on_more` is called once it is here)."""

    def head(self) -> Entry | None:
        """What `take` would give, left in its place."""

    def give_back(self, entry: Entry) -> None:
        """An entry that was taken returns to its place."""

    def give_back_offset(self, offset: int, priority: int, size: int = 0) -> None:
        """The same for one that is not in memory."""

    def count(self) -> int:
        """How many are ready."""

    def clear(self) -> list[tuple[int, int]]:
        """Forgets all that is ready; the ranges of offsets that were."""

    def peek(self, start: int, limit: int) -> list[Entry]:
        """Those in memory, from an offset on, in offset order."""

    def offsets_below(self, mark: int) -> list[int]:
        """Those that are ready, below an offset."""

    def withdraw(self, offsets: list[int]) -> list[int]:
        """Takes out those of the offsets that are ready, wherever they stand; which they were.
        `bytes` goes down by those in memory: the size of the rest whoever reads them knows."""


class FifoReady:
    """By offset."""

    __slots__ = (
        "_budget",
        "_fetching",
        "_gone",
        "_largest",
        "_returned",
        "_returned_entries",
        "_run",
        "_run_end",
        "_side",
        "_source",
        "bytes",
        "next",
        "on_more",
        "tail",
    )

    def __init__(
        self,
        start: int,
        tail: int,
        budget: Budget,
        source: Source | None,
        on_more: Callable[[], None],
        gone: Intervals | None = None,
    ) -> None:
        self.next = start  # all below has been handed out, or was settled before
        self.tail = tail
        self.bytes = 0
        self.on_more = on_more
        self._budget = budget
        self._source = source  # None: an ephemeral queue, whose run is all there is
        # Settled above `start` in an earlier life, or withdrawn: to be passed over.
        self._gone = Intervals(gone or ())
        self._run: deque[Entry] = deque()
        self._run_end = start  # the run holds all of [next, run_end) that is not gone
        self._fetching = False
        self._largest = 0  # cost of the largest entry that was read back last
        self._side: list[Entry] = []  # what arrives while a chunk is being read
        self._returned: list[int] = []  # heap of offsets below `next`
        self._returned_entries: dict[int, Entry] = {}

    # --- in

    def arrive(self, entries: list[Entry]) -> None:
        first = entries[0].offset
        self.tail = entries[-1].offset + 1
        for entry in entries:
            self.bytes += len(entry.message.body) + len(entry.message.native)
        if self._source is None:
            self._run.extend(entries)
            self._run_end = self.tail
        elif self._fetching:
            self._put_aside(entries, first)
        elif self._run_end == first:
            self._keep(entries)

    def _put_aside(self, entries: list[Entry], first: int) -> None:
        """They join the run when the chunk is here, if it reaches up to them."""
        side = self._side
        if (not side or side[-1].offset + 1 == first) and self._budget.has_room():
            side.extend(entries)

    def _keep(self, entries: list[Entry]) -> None:
        budget, run = self._budget, self._run
        for entry in entries:
            if budget.used >= budget.limit and len(run) >= LEAST:
                return  # the rest is read back when its turn comes
            budget.used += len(entry.message.body) + len(entry.message.native) + ENTRY_OVERHEAD
            run.append(entry)
            self._run_end = entry.offset + 1

    def give_back(self, entry: Entry) -> None:
        heappush(self._returned, entry.offset)
        self.bytes += entry.message.size()
        if self._source is None or self._budget.has_room():
            self._returned_entries[entry.offset] = entry
        else:
            self._budget.used -= cost(entry)

    def give_back_offset(self, offset: int, priority: int, size: int = 0) -> None:
        heappush(self._returned, offset)
        self.bytes += size

    # --- out

    def take(self) -> Entry | None:
        if self._returned:
            return self._take_returned()
        run = self._run
        if len(run) < LOW and self._run_end < self.tail and not self._fetching:
            self._fetch()
        if not run:
            return None
        entry = run.popleft()
        self.next = entry.offset + 1
        self.bytes -= len(entry.message.body) + len(entry.message.native)
        return entry

    def head(self) -> Entry | None:
        if self._returned:
            entry = self._returned_entries.get(self._returned[0])
            if entry is None:
                self._fetch_returned()
            return entry
        if self._run:
            return self._run[0]
        if self._run_end < self.tail and not self._fetching:
            self._fetch()
        return None

    def _take_returned(self) -> Entry | None:
        offset = self._returned[0]
        entry = self._returned_entries.pop(offset, None)
        if entry is None:
            self._fetch_returned()
            return None
        heappop(self._returned)
        self.bytes -= entry.message.size()
        return entry

    def count(self) -> int:
        if self._source is None:
            return len(self._run) + len(self._returned)
        waiting = self.tail - self.next
        if self._gone:
            waiting = sum(end - start for start, end in self._gone.gaps(self.next, self.tail))
        return waiting + len(self._returned)

    def peek(self, start: int, limit: int) -> list[Entry]:
        held = [*self._returned_entries.values(), *self._run]
        return sorted((e for e in held if e.offset >= start), key=by_offset)[:limit]

    def clear(self) -> list[tuple[int, int]]:
        ranges = [(offset, offset + 1) for offset in self._returned]
        ranges += [(self.next, self.tail)] if self.next < self.tail else []
        if self._source is not None:
            self._budget.used -= sum(map(cost, self._run))
            self._budget.used -= sum(map(cost, self._returned_entries.values()))
        self._run.clear()
        self._side.clear()
        self._returned.clear()
        self._returned_entries.clear()
        self.next = self._run_end = self.tail
        self.bytes = 0
        return ranges

    def offsets_below(self, mark: int) -> list[int]:
        waiting = self._gone.gaps(self.next, min(mark, self.tail))
        untouched = [offset for start, end in waiting for offset in range(start, end)]
        return [offset for offset in self._returned if offset < mark] + untouched

    def withdraw(self, offsets: list[int]) -> list[int]:
        wanted, returned = set(offsets), set(self._returned)
        taken = {o for o in wanted if self.next <= o < self.tail and o not in self._gone}
        for offset in taken:
            self._gone.add_range(offset, offset + 1)
        for entry in [e for e in self._run if e.offset in taken]:
            self._run.remove(entry)
            self._forget(entry)
        for offset in wanted & returned:
            taken.add(offset)
            self._returned.remove(offset)
            if (held := self._returned_entries.pop(offset, None)) is not None:
                self._forget(held)
        heapify(self._returned)
        return sorted(taken)

    def _forget(self, entry: Entry) -> None:
        self.bytes -= entry.message.size()
        if self._source is not None:
            self._budget.used -= cost(entry)

    # --- reading back

    def _fetch(self) -> None:
        """The chunk behind the run, while the run is being handed out."""
        if self._source is None:
            return
        self._fetching = True
        limit = self._budget.chunk(self._largest)
        end = self.tail

        def done(entries: list[Entry]) -> None:
            self._on_fetched(entries, end, limit)

        self._source.fetch(self._run_end, end, limit, done)

    def _on_fetched(self, entries: list[Entry], end: int, limit: int) -> None:
        self._fetching = False
        self._largest = max(map(cost, entries), default=self._largest)
        run_end = end if len(entries) < limit else entries[-1].offset + 1
        self._run_end = max(run_end, self._run_end)
        if self._gone or (entries and entries[0].offset < self.next):
            # purged, or gone otherwise, while it was being read
            entries = [e for e in entries if e.offset >= self.next and e.offset not in self._gone]
        self._run.extend(entries)
        self._budget.used += sum([cost(entry) for entry in entries])
        side, self._side = self._side, []
        if side and side[0].offset == self._run_end:
            self._keep(side)
        if not self._run:
            self.next = max(self.next, self._run_end)
        self.on_more()

    def _fetch_returned(self) -> None:
        if self._fetching or self._source is None:
            return
        self._fetching = True
        first = nsmallest(self._budget.chunk(self._largest), self._returned)
        missing = [offset for offset in first if offset not in self._returned_entries]

        def done(entries: list[Entry]) -> None:
            self._on_fetched_returned(entries, missing)

        self._source.fetch_offsets(missing, done)

    def _on_fetched_returned(self, entries: list[Entry], missing: list[int]) -> None:
        self._fetching = False
        self._largest = max(map(cost, entries), default=self._largest)
        wanted = set(self._returned)
        for entry in entries:
            if entry.offset in wanted and entry.offset not in self._returned_entries:
                self._returned_entries[entry.offset] = entry
                self._budget.used += cost(entry)
        lost = set(missing) - {entry.offset for entry in entries}
        if lost:  # taken away from the table by hand: nothing to wait for
            self._returned = sorted(wanted - lost)
        side, self._side = self._side, []
        if side and side[0].offset == self._run_end:
            self._keep(side)
        self.on_more()
