"""The ports of a cursor: its queue says what becomes of a message that cannot be delivered, and
the store writes down how far the cursor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from queue_core.cluster.trust import Trust
from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.delivery.ready import Budget
from queue_core.traffic import Traffic

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
    def trust(self) -> Trust:
        """Tells whether stored messages may be handed out."""

    @property
    def delays(self) -> DelayBudget:
        """The number of messages that may wait for their time."""


class Journal(Protocol):
    """The writer of a cursor's changes, with the next commit."""

    def note(self, cursor: Cursor) -> None:
        """Notes that a cursor's settled offsets, or its lease, changed."""

    def note_failure(
        self, cursor: Cursor, offset: int, count: int, not_before: float | None, reason: str
    ) -> None:
        """Notes that a delivery failed for the `count`th time, or came back for later."""


class Pressure(Protocol):
    """Publishers that wait until a queue's consumers have taken something."""

    def on_taken(self) -> None:
        """Learns that consumers took something, or went away."""


class Policy(Protocol):
    """The queue's rules for messages that cannot simply be delivered."""

    name: str
    may_expire: bool  # something in it may have an end
    traffic: Traffic

    @property
    def backpressure(self) -> Pressure | None:
        """The publishers of the queue, if it holds them."""

    def on_expired(self, cursor: Cursor, entry: Entry) -> None: ...
    def on_rejected(self, cursor: Cursor, entry: Entry, reason: str | None) -> None: ...
    def on_exhausted(self, cursor: Cursor, entry: Entry) -> None:
        """Ends an entry that failed more often than the queue allows."""

    def on_delayed(self, cursor: Cursor, when: float) -> None:
        """Plans a call of `cursor.pump` at `when`, because a message becomes ready then."""

    def on_due(self, cursor: Cursor, when: float) -> None:
        """Plans a call of `cursor.fail_overdue` at `when`, because a consumer has to settle a
        delivery by then."""

    def on_returned(self, cursor: Cursor, count: int) -> None:
        """Learns that consumers gave so many messages back, or that the time of some has come, and
        that no consumer took them at once."""

    def on_turn(self, cursor: Cursor) -> None:
        """Learns that a turn is over and the head may be another message now; only where messages
        may expire."""

    def on_consumer_gone(self) -> None:
        """Learns that the cursor itself ended a consumer."""

    def on_unfinished(self, cursor: Cursor) -> None:
        """Plans a call of `cursor.pump`, because there is more than one turn allows."""
