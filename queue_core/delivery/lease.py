"""The lease of a cursor: how far it may hand out messages before the database knows of it."""

from __future__ import annotations

from typing import Final

LEASE_OFFSETS: Final = 1024  # beyond the last offset handed out, asked for in advance
BEYOND_ALL_OFFSETS: Final = 1 << 62


class Lease:
    """The offsets that may have been handed out, as far as the database knows.

    After a crash, all messages below the committed lease are flagged as redelivered. No message at
    or above it is handed out before a longer lease is committed.
    """

    __slots__ = ("asked", "committed", "recovered_mark")

    def __init__(self, saved: int, tail: int) -> None:
        self.committed = saved
        self.asked = saved  # the lease that the next commit writes
        # Messages below the mark were, or may have been, handed out before the gateway started.
        self.recovered_mark = min(saved, tail)

    @classmethod
    def unlimited(cls) -> Lease:
        """Makes the lease of a cursor that has no journal: nobody will ask what it handed out."""
        return cls(BEYOND_ALL_OFFSETS, 0)

    def ask(self, offset: int) -> bool:
        """Asks for a lease that has room for the offset; False where that was asked already."""
        if self.asked > offset:
            return False
        self.asked = offset + LEASE_OFFSETS
        return True

    def extend(self, tail: int) -> bool:
        """Asks for a longer lease while entries up to `tail` are being written, so that no consumer
        waits for a commit of the lease alone; False where the lease is long enough."""
        if tail + LEASE_OFFSETS // 2 <= self.asked:
            return False
        self.asked = tail + LEASE_OFFSETS
        return True

    def grant(self, committed: int) -> None:
        """Notes a lease that was committed."""
        if committed > self.committed:
            self.committed = committed

    def raise_mark(self, offset: int) -> None:
        """Marks all below an offset as messages that must be looked at one by one."""
        self.recovered_mark = max(self.recovered_mark, offset)

    def shorten(self, reach: int) -> None:
        """Asks for no more than what lies below `reach`, or may have been handed out before."""
        self.asked = min(self.asked, max(reach, self.recovered_mark))

    def give_up(self) -> None:
        """Asks for no lease at all: no message need be suspected of having been handed out."""
        self.asked = 0
