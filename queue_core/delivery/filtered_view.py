"""The view of a consumer with a filter: what it has still to look at.

A consumer with a filter looks through its queue at a pace of its own: it has a view of what is
ready, takes from the view what comes next, and drops from it what its filter refuses. Each message
is looked at once, not at every turn, and looked at again only when it comes back. Nothing leaves
the queue by being looked at: what the filter accepts is claimed from the queue, and is the
consumer's if nobody was faster.

Memory is bounded: a view of a stored queue holds up to `LOOK_AHEAD_BYTES`, and one chunk that is
being read back; a view of an ephemeral queue holds references to what the queue holds, and clears
away what has left the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queue_core.delivery.consumer import Entry
from queue_core.delivery.ready import Budget, Ready, cost
from queue_core.message.message import Message

LOOK_AHEAD_BYTES: Final = 1024 * 1024  # of a stored queue's messages
SLACK_ENTRIES: Final = 256  # of an ephemeral queue that may have left it


class FilteredView:
    """The messages that are ready and that one consumer's filter has not judged yet."""

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
        self._budget = Budget(LOOK_AHEAD_BYTES)
        self._view = queue.view(self._budget, on_more)

    def arrive(self, entries: list[Entry]) -> None:
        """Adds entries that have just come into the queue."""
        view = self._view
        view.arrive(entries)
        if not self._is_stored and view.count() > 2 * self._queue.count() + SLACK_ENTRIES:
            view.keep_only(self._queue.knows)

    def take(self) -> Entry | None:
        """Takes the next entry to look at; None: there is none, or it must be read back first. The
        entry may have left the queue, as the queue's `claim` tells."""
        entry = self._view.take()
        if entry is not None and self._is_stored:
            self._budget.used -= cost(entry)
        return entry

    def give_back(self, entry: Entry) -> None:
        """Adds an entry that is to be looked at once more."""
        if self._is_stored:
            self._budget.used += cost(entry)
        self._view.give_back(entry)

    def on_returned(self, entry: Entry, *, is_changed: bool = False) -> None:
        """Adds an entry that came back to the queue, if the filter accepts it. One that a consumer
        changed replaces what was read ahead of it."""
        is_ahead = self._is_ahead(entry.offset, entry.message.priority or 0, is_changed)
        if not is_ahead and self.accepts(entry.message):
            self.give_back(entry)

    def on_returned_offset(self, offset: int, priority: int, *, is_changed: bool = False) -> None:
        """Adds a message that came back to the queue and is not in memory."""
        if not self._is_ahead(offset, priority, is_changed):
            self._view.give_back_offset(offset, priority)

    def _is_ahead(self, offset: int, priority: int, is_changed: bool) -> bool:
        """Tells whether a message is in the view already. One that was changed since it was read
        ahead is taken out, and is not."""
        if not self._view.knows(offset, priority):
            return False
        if is_changed:
            self._view.withdraw([offset])
        return not is_changed

    def clear(self) -> None:
        """Forgets everything: the queue is empty."""
        self._view.clear()

    @property
    def is_done(self) -> bool:
        """Tells whether all that is in the queue has been looked at."""
        return self._view.count() == 0
