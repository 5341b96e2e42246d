"""Units of what must be committed together: messages that enter queues, messages that leave them,
and the records that belong to them. One unit is never split over two transactions, but for a run,
whose messages have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.errors import CoreError
from queue_core.message.message import Message

if TYPE_CHECKING:
    from queue_core.commit.queue_log import Log


class Publisher(Protocol):
    """Waits for a commit. Tokens are the publisher's own numbers, in the order it published."""

    def on_committed(self, tokens: list[int]) -> None:
        """Safe in PostgreSQL, in every durable queue: acknowledge now, not earlier."""

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        """Refuses, in the protocol's own terms, what is not stored and never will be."""


@dataclass(frozen=True, slots=True)
class RetainedRecord:
    """The last value of a topic; None clears it."""

    vhost: str
    topic: str
    message: Message | None
    qos: int = 0
    number: int = 0  # its place in the order of publishes and subscriptions


@dataclass(frozen=True, slots=True)
class PacketRecord:
    """A step of a session's in-flight state, in either direction; the newest is the state."""

    session_id: int
    is_outgoing: bool
    packet_id: int
    state: int  # 0: over and forgotten; the rest is the adapter's
    queue_id: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """An outbox row that this unit publishes, and takes away; or, while some of its queues are
    full, leaves for them."""

    outbox_id: int
    waiting_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WillRecord:
    """A will that this unit publishes: its row goes with the same commit."""

    vhost: str
    client_id: str


Record = RetainedRecord | PacketRecord | OutboxRecord | WillRecord


class Unit:
    __slots__ = ("appends", "holds", "is_run", "moves", "publisher", "records", "token", "undo")

    def __init__(
        self,
        appends: list[tuple[Log, Entry]],
        publisher: Publisher | None = None,
        token: int = 0,
        moves: list[tuple[Cursor, Entry]] | None = None,
        records: tuple[Record, ...] = (),
        *,
        is_run: bool = False,
    ) -> None:
        self.appends = appends
        self.publisher = publisher
        self.token = token
        self.moves = moves  # entries that leave their queue with this commit
        self.records = records
        # Messages that came in a row, each as good as a unit of its own: their tokens count on from
        # the first one's.
        self.is_run = is_run
        # Of a repetition: whether what it repeats is still there. Asked at the commit; if not, the
        # publisher is refused, and may publish it again.
        self.holds: Callable[[], bool] | None = None
        # Takes back what was remembered of it in memory alone, if it is refused.
        self.undo: Callable[[], None] | None = None

    @property
    def tokens(self) -> Sequence[int]:
        count = len(self.appends) if self.is_run else 1
        return range(self.token, self.token + count)

    def apart(self) -> list[Unit]:
        """Splits a run into a unit for each message, so that one that cannot be stored fails
        alone."""
        if not self.is_run:
            return [self]
        return [
            Unit([each], self.publisher, number)
            for number, each in enumerate(self.appends, self.token)
        ]

    def size(self) -> int:
        return sum(entry.message.size() for _, entry in self.appends) + self.retained_bytes()

    def retained_bytes(self) -> int:
        """Returns the bytes of messages that are in no queue of this unit, but become the value of
        their topic."""
        if self.appends or not self.records:
            return 0
        kept = (each.message for each in self.records if isinstance(each, RetainedRecord))
        return sum(message.size() for message in kept if message is not None)
