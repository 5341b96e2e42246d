"""All queues of a virtual host share a house: the clock, the budgets, and the undertaker who takes
messages that leave them. It knows queues by their type only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from queue_core.counters import Counters
from queue_core.delivery.delay_limit import DelayBudget
from queue_core.delivery.ports import Journal
from queue_core.delivery.ready import Budget
from queue_core.message.message import Message
from queue_core.queues.deduplication import IdBudget
from queue_core.queues.inert_arguments import Notices
from queue_core.queues.memory_limit import EphemeralMemory
from queue_core.queues.recent_history import HistoryBudget
from queue_core.timers import Agenda

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Entry
    from queue_core.delivery.cursor import Cursor
    from queue_core.queues.competing import CompetingQueue


def at_once(call: Callable[[], None]) -> None:
    """For a house without an event loop."""
    call()


class Undertaker(Protocol):
    """Takes what leaves a queue without having been consumed."""

    def bury(self, queue: CompetingQueue, cursor: Cursor, entry: Entry, reason: str) -> None:
        """Dead-letters the entry, in one commit with its leaving; drops it where the queue names no
        dead-letter exchange."""

    def bury_newcomer(self, queue: CompetingQueue, message: Message) -> None:
        """Dead-letters a message that the queue refused to take."""

    def on_idle(self, queue: CompetingQueue) -> None:
        """The last consumer of an auto-delete queue left, or its time without use is over."""


@dataclass(slots=True)
class House:
    """A house holds everything that the queues of one virtual host share."""

    vhost_name: str
    clock: Callable[[], float]
    agenda: Agenda
    budget: Budget
    counters: Counters
    undertaker: Undertaker
    journal: Journal
    # Calls it once what is being read now has been read: what a chunk of bytes brings for one
    # queue is handed out together.
    soon: Callable[[Callable[[], None]], object] = at_once
    ids: IdBudget = field(default_factory=IdBudget)
    memory: EphemeralMemory = field(default_factory=EphemeralMemory)
    histories: HistoryBudget = field(default_factory=HistoryBudget)
    delays: DelayBudget = field(default_factory=DelayBudget)
    notices: Notices = field(default_factory=Notices)
    # Many messages at once went into a queue that has many in memory already: whoever sent them
    # lets its consumers have a moment, and takes the flag down.
    is_crowded: bool = False
    # Queues with back-pressure that the publisher of this turn found full: it takes them from here,
    # and waits for them.
    pressed: list[CompetingQueue] = field(default_factory=list)
