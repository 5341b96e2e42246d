"""The context of a virtual host's queues, for tests that make one without a manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queue_core.counters import Counters
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.delivery.ready import Budget
from queue_core.queues.context import QueueContext
from queue_core.queues.dead_letters import DeadLetters
from queue_core.queues.queue import Queue
from queue_core.routing.router import Router
from queue_core.timers import Agenda


def queue_context(
    router: Router[Queue],
    *,
    clock: Callable[[], float] = float,
    agenda: Agenda | None = None,
    budget_bytes: int = 1 << 20,
    writer: Any = None,
    journal: Any = None,
) -> QueueContext:
    """Makes a context with counters and limits of its own; `router` is its virtual host's."""
    counters = Counters()
    delays = DelayBudget(counters=counters, clock=clock)
    return QueueContext(
        "/",
        clock,
        agenda or Agenda(),
        Budget(budget_bytes),
        counters,
        DeadLetters(router, writer, counters, clock, delays),
        journal,
        delays=delays,
    )
