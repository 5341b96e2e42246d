"""The messages that are ready to be handed out, in the order of offsets.

Only a bounded part of a stored queue is in memory. `FifoReady` keeps a run of entries that starts
at the next offset to hand out; what did not fit is read back in chunks. A returned message goes
back to its own place. What a consumer with a filter takes from the middle (`claim`) leaves a mark
there, and its entry stays in the run until the run reaches it, or half of the run is such.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, nsmallest
from typing import Final, Protocol

from queue_core.delivery.consumer import ENTRY_OVERHEAD_BYTES, Entry
from queue_core.delivery.intervals import Intervals

CHUNK_ENTRIES: Final = 4000  # that a read-back asks for at most
# Entries left in the run when the next chunk is asked for: consumers take these while the database
# reads, and so go on while a batch is being committed.
LOW_ENTRIES: Final = 4000
LEAST_ENTRIES: Final = 16  # that a queue may always hold, however tight memory is
SLACK_MARKS: Final = 64  # marks and doubles that may always wait to be cleared away
PASSED_MARKS: Final = 1000  # marks passed before they are forgotten: the list of them is long


class Source(Protocol):
    """The reader of entries that are not in memory. It answers later, through `done`, with the
    entries that exist, in offset order: the first ones, and none only if there are none."""

    def fetch(self, start: int, end: int, limit: int, done: Callable[[list[Entry]], None]) -> None:
        """Reads up to `limit` entries from `start` up to, and without, `end`."""

    def fetch_offsets(self, offsets: list[int], done: Callable[[list[Entry]], None]) -> None:
        """Reads the entries at these offsets."""


class Budget:
    """The memory that entries of all queues may take together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has_room(self) -> bool:
        return self.used < self.limit

    def has_plenty(self) -> bool:
        """Tells whether half of the budget is free."""
        return self.used < self.limit // 2

    def chunk(self, largest: int) -> int:
        """Tells how many entries to read back at once, if none costs more than the largest of the
        last ones did; a few, where nothing was read yet."""
        if not largest:
            return LEAST_ENTRIES
        return max(LEAST_ENTRIES, min(CHUNK_ENTRIES, (self.limit - self.used) // largest))


def cost(entry: Entry) -> int:
    """Gives the bytes that an entry takes in memory."""
    return entry.message.size() + ENTRY_OVERHEAD_BYTES


def by_offset(entry: Entry) -> int:
    return entry.offset


def gone_of(asked: list[int], entries: list[Entry]) -> list[int]:
    """Lists the offsets that were asked for and do not exist: their rows were deleted by hand, so
    there is nothing to wait for. Offsets behind the last entry were not looked for."""
    end = entries[-1].offset if entries else max(asked) + 1
    found = {entry.offset for entry in entries}
    return [offset for offset in asked if offset < end and offset not in found]


class Ready(Protocol):
    """The messages that a cursor may hand out, in the order in which it does."""

    tail: int
    bytes: int  # of the bodies and properties of all that is ready

    def arrive(self, entries: list[Entry]) -> None:
        """Adds entries that were committed, the first at `tail`."""

    def take(self) -> Entry | None:
        """Takes the next entry; None: there is none, or it must be read back first (then `on_more`
        is called once it is here)."""

    def head(self) -> Entry | None:
        """Gives the entry that `take` would give, and leaves it in its place."""

    def head_offset(self) -> int | None:
        """Gives the offset of the next message, whether it is in memory or not."""

    def give_back(self, entry: Entry) -> None:
        """Returns an entry that was taken to its place."""

    def give_back_offset(self, offset: int, priority: int, size: int = 0) -> None:
        """Returns a message to its place that is not in memory."""

    def count(self) -> int:
        """Counts the messages that are ready."""

    def clear(self) -> list[tuple[int, int]]:
        """Forgets all that is ready, and gives the ranges of offsets that were."""

    def peek(self, start: int, limit: int) -> list[Entry]:
        """Lists entries in memory, from an offset on, in offset order."""

    def offsets_below(self, mark: int) -> list[int]:
        """Lists the offsets below `mark` that are ready."""

    def withdraw(self, offsets: list[int]) -> list[int]:
        """Takes out those of the offsets that are ready, wherever they stand, and lists them.
        `bytes` goes down only by those in memory."""

    def claim(self, entry: Entry) -> bool:
        """Takes out an entry, wherever it stands; False: it is not ready any more. The caller has
        it from a `view` or a reader, and holds its memory from now on."""

    def set_aside(self, entry: Entry) -> bool:
        """Takes out an entry that is not due, so that no consumer gets it yet; False: it is not
        ready any more."""

    def knows(self, offset: int, priority: int) -> bool:
        """Tells whether a message is ready here."""

    def view(self, budget: Budget, on_more: Callable[[], None]) -> Ready:
        """Makes a copy for a consumer with a filter, which looks through it at a pace, and with a
        memory budget, of its own."""

    def keep_only(self, is_wanted: Callable[[int, int], bool]) -> None:
        """Forgets what is not wanted, told by offset and priority. Only a view of a queue that is
        all in memory is asked to."""


class FifoReady:
    """The messages that are ready, by offset."""

    __slots__ = (
        "_back",
        "_budget",
        "_claimed_end",
        "_fetching",
        "_gone",
        "_gone_count",
        "_largest",
        "_passed",
        "_returned",
        "_run",
        "_run_end",
        "_side",
        "_source",
        "_stale",
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
        # Offsets that were settled before a restart, or taken from the middle: to be passed over.
        self._gone = Intervals(gone or ())
        self._gone_count = self._gone.size()  # those of them at `next` or above
        self._passed = 0
        self._claimed_end = start
        self._run: deque[Entry] = deque()
        self._run_end = start  # the run holds all of [next, run_end) that is not gone
        self._stale = 0  # entries in the run that are gone
        self._fetching = False
        self._largest = 0  # cost of the largest entry that was read back last
        self._side: list[Entry] = []  # what arrives while a chunk is being read
        self._back: dict[int, Entry | None] = {}  # what came back; None: not in memory
        self._returned: list[int] = []  # heap of their offsets, and of some that left again

    @property
    def reach(self) -> int:
        """Gives the offset below which all lies that was ever handed out."""
        return max(self.next, self._claimed_end)

    # --- in

    def arrive(self, entries: list[Entry]) -> None:
        first = entries[0].offset
        self.tail = entries[-1].offset + 1
        size = 0
        for entry in entries:
            message = entry.message
            size += len(message.body) + len(message.native)
        self.bytes += size
        if self._source is None:
            self._run.extend(entries)
            self._run_end = self.tail
        elif self._fetching:
            self._put_aside(entries, first)
        elif self._run_end == first:
            cost_of_all = size + ENTRY_OVERHEAD_BYTES * len(entries)
            if self._budget.used + cost_of_all <= self._budget.limit:
                self._budget.used += cost_of_all
                self._run.extend(entries)
                self._run_end = self.tail
            else:
                self._keep(entries)

    def _put_aside(self, entries: list[Entry], first: int) -> None:
        """Keeps entries that arrive while a chunk is being read: they join the run when the chunk
        is here, if it reaches up to them."""
        side = self._side
        if (not side or side[-1].offset + 1 == first) and self._budget.has_room():
            side.extend(entries)

    def _keep(self, entries: list[Entry]) -> None:
        """Adds entries to the run as far as the budget allows."""
        budget, run = self._budget, self._run
        for entry in entries:
            if budget.used >= budget.limit and len(run) >= LEAST_ENTRIES:
                return  # the rest is read back when its turn comes
            budget.used += (
                len(entry.message.body) + len(entry.message.native) + ENTRY_OVERHEAD_BYTES
            )
            run.append(entry)
            self._run_end = entry.offset + 1

    def _keep_side(self) -> None:
        """Adds to the run the entries that arrived while a chunk was being read."""
        side, self._side = self._side, []
        if side and side[0].offset == self._run_end:
            if self._gone_count:
                end = side[-1].offset + 1
                side = [entry for entry in side if entry.offset not in self._gone]
                if not side:
                    self._run_end = end
            self._keep(side)

    def give_back(self, entry: Entry) -> None:
        offset = entry.offset
        self._push(offset)
        self.bytes += entry.message.size()
        # a few always: one that is only looked at must not have to be read back for the next look
        if self._source is None or self._budget.has_room() or len(self._back) < LEAST_ENTRIES:
            self._back[offset] = entry
        else:
            self._back[offset] = None
            self._budget.used -= cost(entry)

    def give_back_offset(self, offset: int, priority: int, size: int = 0) -> None:
        self._push(offset)
        self._back[offset] = None
        self.bytes += size

    def _push(self, offset: int) -> None:
        heappush(self._returned, offset)
        if len(self._returned) > 2 * len(self._back) + SLACK_MARKS:
            self._returned = sorted({*self._back, offset})

    # --- out

    def take(self) -> Entry | None:
        if self._back and self._is_returned_first():
            return self._take_returned()
        run = self._run
        if self._stale:
            self._skip_stale()
        if len(run) < LOW_ENTRIES and self._run_end < self.tail and not self._fetching:
            self._fetch()
        if not run:
            return None
        entry = run.popleft()
        offset = entry.offset
        if offset != self.next:
            self._pass(offset)
        self.next = offset + 1
        self.bytes -= len(entry.message.body) + len(entry.message.native)
        return entry

    def head(self) -> Entry | None:
        if self._back and self._is_returned_first():
            entry = self._back[self._returned[0]]
            if entry is None:
                self._fetch_returned()
            return entry
        if self._stale:
            self._skip_stale()
        if self._run:
            return self._run[0]
        if self._run_end < self.tail and not self._fetching:
            self._fetch()
        return None

    def head_offset(self) -> int | None:
        first = self._gone.end_of(self.next)
        ahead = [first] if first < self.tail else []
        return min([*self._back, *ahead], default=None)

    def _is_returned_first(self) -> bool:
        """Tells whether a message that came back is the next. One that was taken from the middle
        returns to there."""
        returned = self._returned
        while returned[0] not in self._back:
            heappop(returned)
        first = returned[0]
        if first < self.next:
            return True
        if self._stale:
            self._skip_stale()
        if self._run:
            return first < self._run[0].offset
        return self._run_end >= self.tail or first < self._run_end

    def _take_returned(self) -> Entry | None:
        offset = self._returned[0]
        entry = self._back[offset]
        if entry is None:
            self._fetch_returned()
            return None
        heappop(self._returned)
        del self._back[offset]
        self._claimed_end = max(self._claimed_end, offset + 1)
        self.bytes -= entry.message.size()
        return entry

    def _pass(self, offset: int) -> None:
        """Passes over offsets between `next` and this one, which are gone."""
        if self._gone_count:
            self._gone_count -= self._gone.size_between(self.next, offset)
            self._passed += 1
            if self._passed >= PASSED_MARKS or not self._gone_count:
                self._gone.discard_below(offset)
                self._passed = 0

    def claim(self, entry: Entry) -> bool:
        if not self.set_aside(entry):
            return False
        self._claimed_end = max(self._claimed_end, entry.offset + 1)
        return True

    def set_aside(self, entry: Entry) -> bool:
        offset = entry.offset
        if offset in self._back:
            is_held = self._back.pop(offset) is not None
        elif self.next <= offset < self.tail and offset not in self._gone:
            is_held = offset < self._run_end
            self._mark_gone(offset)
        else:
            return False
        self.bytes -= entry.message.size()
        if not is_held and self._source is not None:
            self._budget.used += cost(entry)
        return True

    def _mark_gone(self, offset: int) -> None:
        self._gone.add_range(offset, offset + 1)
        self._gone_count += 1
        if offset < self._run_end:
            self._stale += 1
            if self._stale > SLACK_MARKS and 2 * self._stale > len(self._run):
                self._run = deque(e for e in self._run if e.offset not in self._gone)
                self._stale = 0

    def _skip_stale(self) -> None:
        run = self._run
        while self._stale and run and run[0].offset in self._gone:
            run.popleft()
            self._stale -= 1

    def knows(self, offset: int, priority: int) -> bool:
        return offset in self._back or (
            self.next <= offset < self.tail and offset not in self._gone
        )

    def count(self) -> int:
        return self.tail - self.next - self._gone_count + len(self._back)

    def peek(self, start: int, limit: int) -> list[Entry]:
        held = [entry for entry in self._back.values() if entry is not None]
        held += [entry for entry in self._run if entry.offset not in self._gone]
        return sorted((e for e in held if e.offset >= start), key=by_offset)[:limit]

    def clear(self) -> list[tuple[int, int]]:
        ranges = [(offset, offset + 1) for offset in self._back]
        ranges += self._gone.gaps(self.next, self.tail)
        if self._source is not None:
            self._budget.used -= sum(cost(e) for e in self._run if e.offset not in self._gone)
            self._budget.used -= sum(cost(e) for e in self._back.values() if e is not None)
        self._run.clear()
        self._side.clear()
        self._returned.clear()
        self._back.clear()
        self.next = self._run_end = self.tail
        self._gone = Intervals()
        self._gone_count = self._stale = self._passed = 0
        self.bytes = 0
        return ranges

    def offsets_below(self, mark: int) -> list[int]:
        waiting = self._gone.gaps(self.next, min(mark, self.tail))
        untouched = [offset for start, end in waiting for offset in range(start, end)]
        return [offset for offset in self._back if offset < mark] + untouched

    def withdraw(self, offsets: list[int]) -> list[int]:
        taken = [offset for offset in sorted(set(offsets)) if self.knows(offset, 0)]
        for offset in taken:
            if offset in self._back:
                entry = self._back.pop(offset)
            else:
                entry = self._in_run(offset)
                self._mark_gone(offset)
            if entry is not None:
                self.bytes -= entry.message.size()
                if self._source is not None:
                    self._budget.used -= cost(entry)
        return taken

    def _in_run(self, offset: int) -> Entry | None:
        run = self._run
        i = bisect_left(run, offset, key=by_offset)
        return run[i] if i < len(run) and run[i].offset == offset else None

    # --- views

    def view(self, budget: Budget, on_more: Callable[[], None]) -> FifoReady:
        view = FifoReady(self.next, self.tail, budget, self._source, on_more, self._gone)
        if self._source is None:
            view._run.extend(entry for entry in self._run if entry.offset not in self._gone)
            view._run_end = self.tail
            for entry in self._back.values():
                if entry is not None:
                    view.give_back(entry)
        else:
            for offset in self._back:
                view.give_back_offset(offset, 0)
        return view

    def keep_only(self, is_wanted: Callable[[int, int], bool]) -> None:
        for offset in [entry.offset for entry in self._run if not is_wanted(entry.offset, 0)]:
            if offset not in self._gone:
                self._mark_gone(offset)
        self._back = {offset: e for offset, e in self._back.items() if is_wanted(offset, 0)}

    # --- reading back

    def _fetch(self) -> None:
        """Asks for the chunk behind the run, while the run is being handed out."""
        if self._source is None:
            return
        self._fetching = True
        limit = self._budget.chunk(self._largest)
        end = self.tail

        def done(entries: list[Entry]) -> None:
            self._on_fetched(entries, end)

        self._source.fetch(self._run_end, end, limit, done)

    def _on_fetched(self, entries: list[Entry], end: int) -> None:
        self._fetching = False
        self._largest = max(map(cost, entries), default=self._largest)
        # fewer than asked for, where they are large: the rest is another chunk
        run_end = entries[-1].offset + 1 if entries else end
        self._run_end = max(run_end, self._run_end)
        if self._gone_count or (entries and entries[0].offset < self.next):
            # purged, or gone otherwise, while it was being read
            entries = [e for e in entries if e.offset >= self.next and e.offset not in self._gone]
        self._run.extend(entries)
        self._budget.used += sum([cost(entry) for entry in entries])
        self._keep_side()
        if not self._run and self._run_end > self.next:
            self._pass(self._run_end)
            self.next = self._run_end
        self.on_more()

    def _fetch_returned(self) -> None:
        """Asks for the first of the messages that came back and are not in memory."""
        if self._fetching or self._source is None:
            return
        self._fetching = True
        first = nsmallest(self._budget.chunk(self._largest), self._back)
        missing = [offset for offset in first if self._back[offset] is None]

        def done(entries: list[Entry]) -> None:
            self._on_fetched_returned(entries, missing)

        self._source.fetch_offsets(missing, done)

    def _on_fetched_returned(self, entries: list[Entry], missing: list[int]) -> None:
        self._fetching = False
        self._largest = max(map(cost, entries), default=self._largest)
        for entry in entries:
            if entry.offset in self._back and self._back[entry.offset] is None:
                self._back[entry.offset] = entry
                self._budget.used += cost(entry)
        for offset in gone_of(missing, entries):
            self._back.pop(offset, None)
        self._keep_side()
        self.on_more()
