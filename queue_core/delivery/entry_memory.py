"""A cursor's part in the memory budget that the entries of all stored queues share."""

from __future__ import annotations

from typing import Final

from queue_core.delivery.consumer import ENTRY_OVERHEAD_BYTES, Entry
from queue_core.delivery.ready import Budget
from queue_core.message.message import Message

SOON_SECONDS: Final = 5.0  # what is wanted later than that is read back, unless memory is plenty


class EntryMemory:
    """The budget as one cursor sees it: entries of a queue in memory do not count in it."""

    __slots__ = ("_budget", "_is_counted")

    def __init__(self, budget: Budget, *, is_counted: bool) -> None:
        self._budget = budget
        self._is_counted = is_counted  # the queue is stored

    def release(self, entry: Entry) -> None:
        """Gives back the memory of an entry that leaves it."""
        if self._is_counted:
            message = entry.message
            self._budget.used -= len(message.body) + len(message.native) + ENTRY_OVERHEAD_BYTES

    def free(self, size: int) -> None:
        """Gives back so many bytes, of several entries together."""
        if self._is_counted:
            self._budget.used -= size

    def exchange(self, before: Message, after: Message) -> None:
        """Counts the difference when an entry's message becomes another one."""
        if self._is_counted:
            self._budget.used += after.size() - before.size()

    def may_keep(self, seconds: float) -> bool:
        """Tells whether there is room for an entry that is wanted in so many seconds: half of the
        budget is kept for those that are wanted soon."""
        if not self._is_counted:
            return True
        return self._budget.has_plenty() if seconds > SOON_SECONDS else self._budget.has_room()
