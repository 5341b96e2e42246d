"""Snapshots for the live feed: what each subject looks like at this moment, and by how much its
counters grew in the last second."""

from __future__ import annotations

from dataclasses import asdict
from heapq import nlargest
from time import time
from typing import Any, Final

from gateway.management.services import Services
from gateway.management.v1.topic_watch import TopicWatches
from gateway.statistics.figures import LENGTHS, QUEUE_FIGURES
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import is_own
from queue_core.vhost import Vhost

MOST_QUEUES: Final = 200  # of a virtual host, those with most messages
RATES: Final = (
    "published",
    "delivered",
    "settled",
    "returned",
    "dead_lettered",
    "unroutable",
    "commits",
    "committed_messages",
)

Snapshot = dict[str, Any]


class Snapshots:
    """Makes snapshots, and remembers the one before of each subject, for its rates."""

    def __init__(self, services: Services, watches: TopicWatches) -> None:
        self._services = services
        self._manager = services.manager
        self._watches = watches
        self._before: dict[tuple[str, ...], tuple[float, dict[str, int]]] = {}

    def forget(self) -> None:
        """Forgets the snapshots before: nobody looks any more."""
        self._before.clear()

    async def of(self, kind: str, vhost: str, name: str) -> Snapshot:
        """Makes the snapshot of one subject."""
        now = time()
        if kind == "overview":
            return {"at": now, **self._overview(now)}
        place = self._manager.vhosts.get(vhost)
        if place is None:
            return {"at": now, "is_gone": True}
        if kind == "queues":
            return {"at": now, **await self._queues(place)}
        if kind == "topics":
            return {"at": now, **self._topics(place, now)}
        queue = place.queues.get(name)
        return {"at": now, "is_gone": True} if queue is None else self._queue(queue, now)

    def _rates(self, key: tuple[str, ...], now: float, totals: dict[str, int]) -> dict[str, float]:
        """By how much each total grew in a second since the snapshot before."""
        at, before = self._before.get(key, (now, totals))
        self._before[key] = (now, totals)
        seconds = now - at
        if seconds <= 0:
            return dict.fromkeys(totals, 0.0)
        return {name: (total - before[name]) / seconds for name, total in totals.items()}

    def _overview(self, now: float) -> Snapshot:
        manager = self._manager
        counters = asdict(manager.counters)
        totals = {name: counters[name] for name in RATES}
        figures = dict(zip(QUEUE_FIGURES, self._services.statistics.broker.totals, strict=False))
        return {
            "is_ready": manager.is_ready,
            "rates": self._rates(("overview",), now, totals),
            "totals": totals,
            **{name: figures[name] for name in LENGTHS},
            "queues": sum(len(vhost.queues) for vhost in manager.vhosts.values()),
            "connections": len(self._services.connections),
            "sessions": manager.sessions.count,
            "memory_used": manager.memory.used,
            "memory_mark": manager.memory.mark,
            "is_memory_short": manager.memory.is_short,
        }

    async def _queues(self, vhost: Vhost) -> Snapshot:
        named = [queue for queue in list(vhost.queues.values()) if not is_own(queue.name)]
        rows = await self._services.loop_share.all(named, _queue_row)
        fullest = nlargest(MOST_QUEUES, rows, key=lambda row: (row["messages"], row["name"]))
        return {"items": fullest, "item_count": len(rows)}

    def _queue(self, queue: Queue, now: float) -> Snapshot:
        figures = dict(zip(QUEUE_FIGURES, self._services.statistics.figures_of(queue), strict=True))
        totals = {name: total for name, total in figures.items() if name not in LENGTHS}
        key = ("queue", queue.context.vhost_name, queue.name)
        return {
            "at": now,
            **_queue_row(queue),
            "totals": totals,
            "rates": self._rates(key, now, totals),
        }

    def _topics(self, vhost: Vhost, now: float) -> Snapshot:
        watch = self._watches.look(vhost)
        totals = {"messages": watch.tree.messages}
        return {
            **totals,
            "rates": self._rates(("topics", vhost.name), now, totals),
            "topics": len(watch.tree),
            "forgotten": watch.tree.forgotten,
            "since": watch.tree.since,
            "is_sampled": watch.is_sampled,
        }


def _queue_row(queue: Queue) -> Snapshot:
    counts = queue.counts()
    return {
        "name": queue.name,
        "type": queue.spec.queue_type,
        "messages": counts.waiting + counts.in_flight,
        "ready": counts.ready,
        "in_flight": counts.in_flight,
        "delayed": counts.delayed,
        "consumers": counts.consumers,
    }
