"""What one consumer with a filter has still to look at.

A consumer with a filter looks through its queue at a pace of its own: it has a view of what is
ready, takes from the view what comes next, and drops from it what its filter refuses. Each message
is looked at once, not at every turn, and looked at again only when it comes back. Nothing leaves
the queue by being looked at: what the filter accepts is claimed from the queue, and is the
consumer's if nobody was faster.

Memory is bounded: of a stored queue a view holds up to `LOOK_AHEAD` bytes, and one chunk that is
being read back; of an ephemeral one it holds references to what the queue holds, and clears away
what has left the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queue_core.delivery.consumer import Entry
from queue_core.delivery.ready import Budget, Ready, cost
from queue_core.message.message import Message

LOOK_AHEAD: Final = 1024 * 1024  # bytes of a stored queue's messages
SLACK: Final = 256  # entries of an ephemeral queue that may be references to nothing


class FilteredView:
    __slots__ = ("_budget", "_is_stored", "_queue", "_view", "accepts")

    def __init__(
        self,
        accepts: Callable[[Message], bool],
        queue: Ready,
        on_more: Callable[[], None],
        *,
        is_stored: bool,
    ) -> None:
        self.accepts = accepts
        self._queue = queue
        self._is_stored = is_stored
        self._budget = Budget(LOOK_AHEAD)
        self._view = queue.view(self._budget, on_more)

    def arrive(self, entries: list[Entry]) -> None:
        """These are in the queue now."""
        view = self._view
        view.arrive(entries)
        if not self._is_stored and view.count() > 2 * self._queue.count() + SLACK:
            view.keep_only(self._queue.knows)

    def take(self) -> Entry | None:
        """The next to look at; None: there is none, or it must be read back first. It may have
        left the queue: `claim` tells."""
        entry = self._view.take()
        if entry is not None and self._is_stored:
            self._budget.used -= cost(entry)
        return entry

    def give_back(self, entry: Entry) -> None:
        """It was looked at, or came back to the queue: it is to be looked at once more."""
        if self._is_stored:
            self._budget.used += cost(entry)
        self._view.give_back(entry)

    def on_returned(self, entry: Entry, *, is_changed: bool = False) -> None:
        """It came back to the queue; changed, if somebody added something to it."""
        is_ahead = self._is_ahead(entry.offset, entry.message.priority or 0, is_changed)
        if not is_ahead and self.accepts(entry.message):
            self.give_back(entry)

    def on_returned_offset(self, offset: int, priority: int, *, is_changed: bool = False) -> None:
        """The same for one that is not in memory."""
        if not self._is_ahead(offset, priority, is_changed):
            self._view.give_back_offset(offset, priority)

    def _is_ahead(self, offset: int, priority: int, is_changed: bool) -> bool:
        """Whether it is still to be looked at. What was read ahead of a message that is another one
        now is not."""
        if not self._view.knows(offset, priority):
            return False
        if is_changed:
            self._view.withdraw([offset])
        return not is_changed

    def clear(self) -> None:
        """The queue is empty."""
        self._view.clear()

    @property
    def is_done(self) -> bool:
        """Whether all that is in the queue has been looked at."""
        return self._view.count() == 0
