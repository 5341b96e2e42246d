"""The context that all queues of a virtual host share: clock, timers, budgets, counters, journal
and dead letters. It knows queues by their type only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queue_core.cluster.trust import SoleTrust, Trust
from queue_core.counters import Counters
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.delivery.ports import Journal
from queue_core.delivery.ready import Budget
from queue_core.queues.deduplication_by_message_id import IdBudget
from queue_core.queues.exchange_history import HistoryBudget
from queue_core.queues.ignored_arguments import IgnoredArguments
from queue_core.queues.memory_limit import EphemeralMemory
from queue_core.timers import Agenda
from queue_core.traffic import Traffic

if TYPE_CHECKING:
    from queue_core.queues.dead_letters import DeadLetters
    from queue_core.queues.queue import Queue


def at_once(call: Callable[[], None]) -> None:
    """Calls at once, where there is no event loop."""
    call()


@dataclass(slots=True)
class QueueContext:
    """Everything that the queues of one virtual host share; it has no behaviour of its own."""

    vhost_name: str
    clock: Callable[[], float]
    agenda: Agenda
    budget: Budget
    counters: Counters
    dead_letters: DeadLetters
    journal: Journal
    # Calls it once what is being read now has been read: what a chunk of bytes brings for one
    # queue is handed out together.
    soon: Callable[[Callable[[], None]], object] = at_once
    ids: IdBudget = field(default_factory=IdBudget)
    memory: EphemeralMemory = field(default_factory=EphemeralMemory)
    histories: HistoryBudget = field(default_factory=HistoryBudget)
    delays: DelayBudget = field(default_factory=DelayBudget)
    trust: Trust = field(default_factory=SoleTrust)  # of this gateway in itself
    ignored_arguments: IgnoredArguments = field(default_factory=IgnoredArguments)
    # Many messages at once went into a queue that has many in memory already: whoever sent them
    # lets its consumers have a moment, and takes the flag down.
    is_crowded: bool = False
    # The traffic of queues that something has happened in since whoever samples it last looked.
    changed: set[Traffic] = field(default_factory=set)
    # Queues with back-pressure that the publisher of this turn found full: it takes them from here,
    # and waits for them.
    pressed: list[Queue] = field(default_factory=list)
