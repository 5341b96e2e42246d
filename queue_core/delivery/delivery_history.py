"""The history of single messages: how often each failed, whether a consumer released it, what
consumers added to it, which consumers may not have it, and whether its delivery was begun.

Most messages have none. A `History` that is empty is false, which the shortcuts of dispatch ask
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_core.delivery.intervals import Intervals

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Consumer

Encoded = bytes | None


class History:
    """All that a cursor remembers of single messages, by offset, until they leave the queue."""

    __slots__ = ("amendments", "barred", "begun", "delays", "failures", "released")

    def __init__(self, failures: dict[int, int] | None = None) -> None:
        self.failures = failures if failures is not None else {}
        # Messages that are flagged as redelivered without having failed; the journal has them with
        # a count of 0.
        self.released = {offset for offset, count in self.failures.items() if count == 0}
        # Changes that consumers made to messages they gave back: how many, and all of them encoded.
        # Each of these messages is flagged as redelivered or has failed.
        self.amendments: dict[int, tuple[int, Encoded]] = {}
        # Times until which messages wait that were returned for later before the gateway started.
        self.delays: dict[int, float] = {}
        self.barred: dict[int, set[Consumer]] = {}  # consumers that may not have a message
        # Messages whose delivery must be completed: they do not expire any more.
        self.begun: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.failures or self.released or self.barred or self.begun)

    def returned(self) -> set[int]:
        """Gives the offsets of all messages that came back at least once."""
        return self.failures.keys() | self.released

    def amend(self, offset: int, encode: Callable[[Encoded], Encoded]) -> None:
        """Notes one more change to a message; `encode` adds it to those before."""
        number, known = self.amendments.get(offset, (0, None))
        self.amendments[offset] = number + 1, encode(known)

    def renew(self, offset: int) -> None:
        """Numbers a message anew that was not changed, so that its next row differs from the
        last."""
        self.amend(offset, lambda known: known)

    # --- consumers that may not have a message

    def bar(self, offset: int, consumer: Consumer) -> None:
        """Keeps a message for other consumers than this one."""
        self.barred.setdefault(offset, set()).add(consumer)

    def is_barred(self, offset: int, consumer: Consumer) -> bool:
        return bool(self.barred) and consumer in self.barred.get(offset, ())

    def admit(self, consumer: Consumer) -> None:
        """Forgets which messages were kept from a consumer that has left."""
        for offset in [o for o, others in self.barred.items() if consumer in others]:
            self.barred[offset].remove(consumer)
            if not self.barred[offset]:
                del self.barred[offset]

    # --- forgetting

    def forget(self, offset: int) -> None:
        """Forgets a message that has left the queue."""
        if self.begun:
            self.begun.discard(offset)
        if self.failures or self.released or self.barred:
            self.failures.pop(offset, None)
            self.amendments.pop(offset, None)
            self.delays.pop(offset, None)
            self.released.discard(offset)
            self.barred.pop(offset, None)

    def forget_all(self, gone: Intervals) -> None:
        """Forgets messages that have left the queue together."""
        for notes in (self.failures, self.amendments, self.delays, self.barred):
            for offset in [offset for offset in notes if offset in gone]:
                del notes[offset]
        for offsets in (self.released, self.begun):
            offsets.difference_update([offset for offset in offsets if offset in gone])
