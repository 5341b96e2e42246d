"""What a cursor asks of others: of its queue, what is to become of a message; of the store, to
write down where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.delivery.delay_limit import DelayBudget
from queue_core.delivery.ready import Budget

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor


class CursorContext(Protocol):
    """The clock, the bounds and the counters that all cursors of a virtual host share."""

    @property
    def clock(self) -> Callable[[], float]:
        """Tells the time in seconds since the epoch."""

    @property
    def budget(self) -> Budget:
        """The memory that entries of all stored queues may take."""

    @property
    def counters(self) -> Counters: ...

    @property
    def delays(self) -> DelayBudget:
        """The number of messages that may wait for their time."""


class Journal(Protocol):
    """Where a cursor's changes are written down, with the next commit."""

    def note(self, cursor: Cursor) -> None:
        """Its settled offsets, or its lease, changed."""

    def note_failure(
        self, cursor: Cursor, offset: int, count: int, not_before: float | None, reason: str
    ) -> None:
        """A delivery failed."""


class Pressure(Protocol):
    """Publishers that wait until a queue's consumers have taken something."""

    def on_taken(self) -> None:
        """The consumers took something, or went away."""


class Policy(Protocol):
    """What the queue does with what cannot simply be delivered."""

    name: str
    may_expire: bool  # something in it may have an end

    @property
    def backpressure(self) -> Pressure | None:
        """The publishers of the queue, if it holds them."""

    def on_expired(self, cursor: Cursor, entry: Entry) -> None: ...
    def on_rejected(self, cursor: Cursor, entry: Entry, reason: str | None) -> None: ...
    def on_exhausted(self, cursor: Cursor, entry: Entry) -> None:
        """It failed more often than the queue allows."""

    def on_delayed(self, cursor: Cursor, when: float) -> None:
        """Something becomes ready at `when`: call `cursor.pump` then."""

    def on_due(self, cursor: Cursor, when: float) -> None:
        """A consumer has until `when` to settle: call `cursor.fail_overdue` then."""

    def on_returned(self, cursor: Cursor, count: int) -> None:
        """So many went back to their places, or the time of some has come, and nobody took them at
        once."""

    def on_turn(self, cursor: Cursor) -> None:
        """Where something may expire: the head may be another one now."""

    def on_consumer_gone(self) -> None:
        """The cursor itself ended a consumer."""

    def on_unfinished(self, cursor: Cursor) -> None:
        """Filters have more to look at than one turn allows: call `cursor.pump` in a next one."""
