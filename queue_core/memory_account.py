"""One account of the memory that clients make the gateway take, with a high-water mark.

Connections enter what they hold: messages that have come in part, with the size that their peer
declared, open transactions, and output that their peer has not taken. What the core holds (queues
in memory, caches, the writer's buffer) is asked for now and then. Above the mark memory is short:
publishers are not read until it is not. Consumers go on, and so does whoever must go on to give
memory back.

Nobody waits for ever. Queues and caches have limits of their own, well below the mark. A message
that comes no further, and a peer that takes nothing, are ended after a time; and when memory stays
short, the connection that holds most is ended, and then the next. The account owns no socket and
no clock; a connection that holds little never meets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
# An unfinished message, or progress, of no more is not worth a note.
SMALL_HOLDING_BYTES: Final = 4096
WATCHED_OUTPUT_BYTES: Final = 64 * 1024  # output that waits is counted from here on
ALWAYS_ADMITTED_BYTES: Final = (
    256 * 1024
)  # bytes of an unfinished message that never waits for room
LARGE_WRITE_BYTES: Final = 1 << 20  # written at once, they are counted until they are taken
LARGE_PIECE_BYTES: Final = 4096  # of output that several connections may share
PARTIAL_SHARE: Final = 4  # unfinished messages take at most a fourth of the mark
CEILING_SHARE: Final = 4  # a fourth above the mark nobody is waited for any more
LOW_SHARE: Final = 8  # memory is short until an eighth of the mark is free
LOOK_PAUSE_SECONDS: Final = 0.25  # between two looks
GIVE_BACK_BYTES: Final = 64 * MIB  # that must have become free before the allocator is asked
TRIM_SECONDS: Final = 1.0  # and so long after that: what ended lets go of it a little later


@dataclass(frozen=True, slots=True)
class MemorySettings:
    mark: int = 1024 * MIB  # bytes of all clients together
    partial_timeout: float = 60.0  # seconds in which an unfinished message must go on
    unread_timeout: float = 300.0  # seconds in which a peer must take some of its output
    grace: float = 10.0  # seconds for those who can give memory back to do so


@dataclass(slots=True)
class MemoryCounters:
    """Totals since the start."""

    alarms: int = 0  # times that memory became short
    held_publishers: int = 0  # times that a publisher was not read for it
    stalled_messages: int = 0  # connections ended: an unfinished message went no further
    unread_connections: int = 0  # connections ended: the peer took nothing
    relieved_connections: int = 0  # connections ended: they held most while memory was short


Piece = bytes | memoryview


def owner_of(piece: Piece) -> bytes:
    """The whole of which a piece is a part, and which it keeps in memory."""
    if isinstance(piece, memoryview):
        assert isinstance(piece.obj, bytes)
        return piece.obj
    return piece


class Holder(Protocol):
    """A connection, as the account sees it."""

    def on_short(self) -> None:
        """Stop reading until `on_room`."""

    def on_room(self) -> None:
        """Read on."""

    def received_bytes(self) -> int:
        """Returns the bytes of unfinished messages that have come."""

    def is_read(self) -> bool:
        """Tells whether what the peer sends is taken. The peer cannot go on with a message while it
        is not."""

    def unsent_bytes(self) -> int:
        """Returns the bytes that the peer has not taken."""

    def who(self) -> str:
        """Names the connection for the log."""

    def relieve(self, reason: str) -> None:
        """End the connection, in the protocol's own words."""


class Holding:
    """Enters what one connection holds. It is made when the connection first holds something, ended
    with the connection."""

    __slots__ = (
        "_memory",
        "_moved_at",
        "_pieces",
        "_read_at",
        "_received",
        "holder",
        "is_held",
        "partial",
        "transactions",
        "unsent",
        "wanted",
    )

    def __init__(self, memory: Memory, holder: Holder) -> None:
        self._memory = memory
        self.holder = holder
        self.partial = 0  # bytes reserved for messages that have come in part
        self.wanted = 0  # bytes that could not be reserved yet
        self.transactions = 0  # bytes in open transactions
        self.is_held = False  # a publisher that waits for the end of the shortage
        self._received, self._moved_at = 0, memory.now
        self.unsent, self._read_at = 0, memory.now
        self._pieces: list[bytes] = []  # large ones among the output, the last one at the end

    @property
    def size(self) -> int:
        return self.partial + self.transactions + self.unsent

    # --- what comes in

    def expect(self, size: int) -> None:
        """Reserves room for the unfinished messages of this connection, by the size that their
        sender declared; 0: all have ended. Where there is no room, reading stops until there is."""
        self._received, self._moved_at = 0, self._memory.now
        self._memory.reserve(self, size)

    def add_transaction(self, size: int) -> None:
        """Adds bytes in open transactions; fewer, if the number is below zero."""
        self.transactions += size
        self._memory.transactions += size
        if size > 0:
            self._memory.note(self)

    def hold(self, *, is_read: bool = False) -> None:
        """A publisher; called where memory is short. Not read until it is not, or, if it is read
        all the same, told when it is not."""
        self._memory.hold(self, is_read=is_read)

    # --- what goes out

    def watch_output(self, waiting: int, pieces: Sequence[Piece]) -> None:
        """More than is worth overlooking is about to wait for the peer. `waiting`: bytes that did
        before. `pieces`: what comes to them; other connections may hold the same, and then they
        are counted once."""
        if not waiting:
            self._pieces.clear()
        self._pieces += [owner_of(piece) for piece in pieces if len(piece) >= LARGE_PIECE_BYTES]
        self._memory.note(self)

    def count_output(self, seen: set[int]) -> int:
        """Bytes of output that nobody in `seen` counted before."""
        size = self.holder.unsent_bytes()
        if size < self.unsent or size < WATCHED_OUTPUT_BYTES:
            self._read_at = self._memory.now
        self.unsent = size if size >= WATCHED_OUTPUT_BYTES else 0
        shared = counted = 0
        kept: list[bytes] = []
        for piece in reversed(self._pieces):
            if shared >= size:
                break  # that one has been taken, and so have those before it
            kept.append(piece)
            shared += len(piece)
            if id(piece) not in seen:
                seen.add(id(piece))
                counted += len(piece)
        self._pieces = kept[::-1]
        return counted + max(0, size - shared)

    # --- time

    def lateness(self, settings: MemorySettings) -> str:
        """Why this connection has had its time; empty while it has not."""
        now, received = self._memory.now, self.holder.received_bytes()
        has_moved = received - self._received >= SMALL_HOLDING_BYTES
        if has_moved or self.wanted or not self.partial or not self.holder.is_read():
            self._received, self._moved_at = received, now
        elif now - self._moved_at >= settings.partial_timeout:
            return "partial"
        if self.unsent and now - self._read_at >= settings.unread_timeout:
            return "unread"
        return ""

    @property
    def is_idle(self) -> bool:
        """Tells whether nothing that the connection holds is worth a look."""
        return not (self.partial or self.wanted or self.transactions or self.unsent)

    def end(self) -> None:
        """The connection is over, and holds nothing."""
        self._pieces = []
        self._memory.forget(self)


class Memory:
    """The account of one gateway."""

    def __init__(
        self,
        settings: MemorySettings | None = None,
        give_back: Callable[[], object] | None = None,
        now: float = 0.0,
    ) -> None:
        self.settings = settings or MemorySettings()
        self.counters = MemoryCounters()
        self.now = now  # of the last look, or of the start: what is held before counts from then
        self.is_short = False
        self.partial = 0
        self.transactions = 0
        self.unsent = 0
        self.sources: dict[str, Callable[[], int]] = {}  # what the core holds, by kind
        self._sampled: dict[str, int] = {}
        self._core = 0  # bytes of all samples
        self._holdings: dict[Holding, None] = {}
        self._waiting: dict[Holding, None] = {}  # for room for what they have begun to send
        self._held: dict[Holding, None] = {}
        self._short_since = 0.0
        self._is_relief_planned = False
        self._give_back = give_back
        self._peak = 0
        self._trim_at = 0.0  # 0: nothing is to be given back

    @property
    def mark(self) -> int:
        return self.settings.mark

    @property
    def used(self) -> int:
        return self.partial + self.transactions + self.unsent + self._core

    def kinds(self) -> dict[str, int]:
        """Bytes by kind, as the last look found them."""
        own = {"partial": self.partial, "transactions": self.transactions, "unsent": self.unsent}
        return own | self._sampled

    # --- what connections call

    def open(self, holder: Holder) -> Holding:
        return Holding(self, holder)

    def note(self, holding: Holding) -> None:
        """Notes a connection that holds something which is to be looked at."""
        self._holdings[holding] = None
        if self.used > self.mark:
            self._raise_alarm()
            if self.used > self._ceiling and not self._is_relief_planned:
                self._is_relief_planned = True  # not now: the largest may be in the middle of it
                asyncio.get_running_loop().call_soon(self._relieve_excess)

    def reserve(self, holding: Holding, size: int) -> None:
        self._waiting.pop(holding, None)
        more = size - holding.partial
        # One that has begun goes on: it can give back what it has only if it is read.
        if more > 0 and not holding.partial and not self._has_room_for(more):
            self._holdings[holding] = self._waiting[holding] = None
            if not holding.wanted:
                holding.holder.on_short()
            holding.wanted = size
            return
        was_waiting, holding.wanted = holding.wanted, 0
        holding.partial = size
        self.partial += more
        if more > 0:
            self.note(holding)
        elif self._waiting and more:
            self._admit()
        if was_waiting and not holding.is_held:
            holding.holder.on_room()

    def _has_room_for(self, more: int) -> bool:
        """Tells whether a message may come in. One is let in wherever there is none, so that every
        message is possible; and small ones always: the chunk that they began in is here already."""
        if not self.partial or more <= ALWAYS_ADMITTED_BYTES:
            return True
        return not self.is_short and self.partial + more <= self.mark // PARTIAL_SHARE

    def _admit(self) -> None:
        """Lets in those who wait for room, in the order they came, as far as there is some."""
        for holding in list(self._waiting):
            if not self._has_room_for(holding.wanted - holding.partial):
                return
            self.reserve(holding, holding.wanted)

    def hold(self, holding: Holding, *, is_read: bool = False) -> None:
        """Holds a publisher back until memory is not short any more. One with an open transaction
        gets some time first: it can end it only if it is read."""
        in_time = self.now - self._short_since < self.settings.grace
        if holding.is_held or (holding.transactions and in_time):
            return
        holding.is_held = True
        self._held[holding] = None
        self.counters.held_publishers += 1
        if not is_read:
            holding.holder.on_short()

    def forget(self, holding: Holding) -> None:
        for book in (self._holdings, self._waiting, self._held):
            book.pop(holding, None)
        self.partial -= holding.partial
        self.transactions -= holding.transactions
        self.unsent = max(0, self.unsent - holding.unsent)
        holding.unsent = holding.partial = holding.transactions = holding.wanted = 0
        if self._waiting:
            self._admit()

    # --- looks

    def look(self, now: float) -> None:
        """Counts what cannot be entered as it changes, and acts. To be called every
        LOOK_PAUSE_SECONDS."""
        self.now = now
        self._sample()
        self._end_late()
        if self.used > self.mark:
            self._raise_alarm()
        elif self.is_short and self.used <= self.mark - self.mark // LOW_SHARE:
            self._end_alarm()
        is_over = self.is_short and now - self._short_since >= self.settings.grace
        if is_over and self.used - self._core > self.mark // LOW_SHARE:  # that would help
            self._relieve_one(f"memory was short for {self.settings.grace:.0f} s")
        if self._waiting:
            self._admit()
        self._trim()

    def _sample(self) -> None:
        self._sampled = {kind: count() for kind, count in self.sources.items()}
        self._core = sum(self._sampled.values())
        seen: set[int] = set()
        self.unsent = sum(holding.count_output(seen) for holding in self._holdings)
        for holding in [each for each in self._holdings if each.is_idle]:
            del self._holdings[holding]

    def _end_late(self) -> None:
        late = [(each, why) for each in self._holdings if (why := each.lateness(self.settings))]
        for holding, why in late:
            if why == "partial":
                self.counters.stalled_messages += 1
                seconds = self.settings.partial_timeout
                reason = f"an unfinished message has not gone on for {seconds:.0f} s"
            else:
                self.counters.unread_connections += 1
                seconds = self.settings.unread_timeout
                reason = f"nothing of what waits for it was read for {seconds:.0f} s"
            self._end(holding, reason)

    @property
    def _ceiling(self) -> int:
        return self.mark + self.mark // CEILING_SHARE

    def _relieve_excess(self) -> None:
        self._is_relief_planned = False
        while self.used > self._ceiling and self._relieve_one("far too much is in use"):
            pass

    def _relieve_one(self, why: str) -> bool:
        """Ends the connection that holds most: nobody else can give so much back at once. False:
        no connection holds anything."""
        largest = max(self._holdings, key=lambda holding: holding.size, default=None)
        if largest is None or not largest.size:
            return False
        self.counters.relieved_connections += 1
        self._end(largest, f"it held {largest.size >> 10} KiB, more than any other, and {why}")
        return True

    def _end(self, holding: Holding, reason: str) -> None:
        log.warning("the connection of %s is ended: %s", holding.holder.who(), reason)
        holding.holder.relieve(reason)
        self.forget(holding)  # what it has not let go of by itself

    # --- the alarm

    def _raise_alarm(self) -> None:
        if self.is_short:
            return
        self.is_short = True
        self._short_since = self.now
        self.counters.alarms += 1
        log.warning(
            "memory is short: %s of %d MiB (memory.high_watermark) are in use; publishers wait "
            "until an eighth of it is free",
            " + ".join(self._words()),
            self.mark >> 20,
        )

    def _words(self) -> Iterator[str]:
        for kind, size in self.kinds().items():
            if size >= MIB:
                yield f"{size >> 20} MiB {kind.replace('_', ' ')}"

    def _end_alarm(self) -> None:
        self.is_short = False
        seconds = self.now - self._short_since
        held, self._held = self._held, {}
        log.warning(
            "memory is not short any more, after %.1f s: %d publishers go on", seconds, len(held)
        )
        for holding in held:
            holding.is_held = False
            if not holding.wanted:
                holding.holder.on_room()

    def _trim(self) -> None:
        """Gives memory that became free back to the system: the allocator would keep much of it."""
        used = self.used
        self._peak = max(self._peak, used)
        if self._peak - used >= GIVE_BACK_BYTES:
            self._peak = used
            self._trim_at = self.now + TRIM_SECONDS
        if self._trim_at and self.now >= self._trim_at:
            self._trim_at = 0.0
            if self._give_back is not None:
                self._give_back()
