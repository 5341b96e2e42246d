"""What a cursor remembers of single messages: how often each failed, whether it was in somebody's
hands, what consumers added to it, who may not have it, and whether its delivery was begun.

Most messages have no history. A `History` that is empty is false, which the short ways ask first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_core.delivery.intervals import Intervals

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Consumer

Encoded = bytes | None


class History:
    """By offset. What has left the queue is forgotten."""

    __slots__ = ("amendments", "barred", "begun", "delays", "failures", "released")

    def __init__(self, failures: dict[int, int] | None = None) -> None:
        self.failures = failures if failures is not None else {}
        # Flagged as redelivered, not counted; a count of 0 is how the journal says the same.
        self.released = {offset for offset, count in self.failures.items() if count == 0}
        # What consumers added to messages that they gave back: how often, and all of it, encoded.
        # All of these are flagged as redelivered or have failed.
        self.amendments: dict[int, tuple[int, Encoded]] = {}
        # Until when those wait that came back for later before the gateway started.
        self.delays: dict[int, float] = {}
        self.barred: dict[int, set[Consumer]] = {}
        # Whose delivery must be completed: they do not expire any more.
        self.begun: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.failures or self.released or self.barred or self.begun)

    def returned(self) -> set[int]:
        """All that came back at least once."""
        return self.failures.keys() | self.released

    def amend(self, offset: int, encode: Callable[[Encoded], Encoded]) -> None:
        number, known = self.amendments.get(offset, (0, None))
        self.amendments[offset] = number + 1, encode(known)

    def renew(self, offset: int) -> None:
        """Nothing is added, but its row must be another one than the last time's."""
        self.amend(offset, lambda known: known)

    # --- consumers that may not have it

    def bar(self, offset: int, consumer: Consumer) -> None:
        self.barred.setdefault(offset, set()).add(consumer)

    def is_barred(self, offset: int, consumer: Consumer) -> bool:
        return bool(self.barred) and consumer in self.barred.get(offset, ())

    def admit(self, consumer: Consumer) -> None:
        """It has left: nothing need be remembered of what it could not take."""
        for offset in [o for o, others in self.barred.items() if consumer in others]:
            self.barred[offset].remove(consumer)
            if not self.barred[offset]:
                del self.barred[offset]

    # --- forgetting

    def forget(self, offset: int) -> None:
        if self.begun:
            self.begun.discard(offset)
        if self.failures or self.released or self.barred:
            self.failures.pop(offset, None)
            self.amendments.pop(offset, None)
            self.delays.pop(offset, None)
            self.released.discard(offset)
            self.barred.pop(offset, None)

    def forget_all(self, gone: Intervals) -> None:
        for notes in (self.failures, self.amendments, self.delays, self.barred):
            for offset in [offset for offset in notes if offset in gone]:
                del notes[offset]
        for offsets in (self.released, self.begun):
            offsets.difference_update([offset for offset in offsets if offset in gone])
