"""The sampler: looks at queues and connections every few seconds, and keeps their rates.

A look at queues costs as much as happened: only those that changed are looked at. Connections are
taken in turn, a bounded number each second. Between two slices of either, others have the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import add, sub
from time import time
from typing import Final

from gateway.connections import Connections, OpenConnection
from gateway.statistics.figures import (
    BROKER_FIGURES,
    CHANNEL_STATS,
    NO_LENGTHS,
    NOTHING,
    QUEUE_FIGURES,
    queue_figures,
)
from gateway.statistics.rings import TICK_SECONDS, History
from queue_core.counters import QueueCounts
from queue_core.manager import Manager
from queue_core.queues.queue import Queue
from queue_core.traffic import Traffic

logger = logging.getLogger(__name__)

Look = tuple[Sequence[int], Sequence[int]]  # the figures of a queue before, and now

QUEUES_AT_ONCE: Final = 250  # in about a millisecond
CONNECTIONS_AT_ONCE: Final = 50  # likewise
CONNECTIONS_PER_SECOND: Final = 400
# The figures of queues in which nothing happens. A subscriber's queue has a consumer, and often
# never more: there are tens of thousands of them, without a history, and all share these figures.
QUIET: Final = {
    figures: figures
    for figures in (queue_figures(Traffic("", "", set()), QueueCounts(0, 0, 0, n)) for n in (0, 1))
}
MOST_HISTORIES: Final = 20_000  # of queues: 1.6 kB each
MOST_LONG_HISTORIES: Final = 500  # of queues that somebody looked at: 23 kB each


class Statistics:
    """The figures of one gateway: those of its queues and virtual hosts, and of all together."""

    def __init__(
        self,
        manager: Manager,
        connections: Connections,
        counters: Mapping[str, object],
        clock: Callable[[], float] = time,
    ) -> None:
        self._manager = manager
        self._connections = connections
        self._counters = counters  # of each part, by the prefix of its metrics
        self._clock = clock
        self._now = self.started_at = self._second()
        self._seen: dict[Traffic, Sequence[int]] = {}  # figures of the last look
        self._histories: dict[Traffic, History] = {}  # the one that rested longest first
        self._long: dict[
            Traffic, None
        ] = {}  # those with hours, the one asked for longest ago first
        self._waiting: list[OpenConnection] = []  # for their turn
        self._totals: Sequence[int] = NOTHING  # of all queues, those that are gone as well
        self._vhosts: dict[str, History] = {}
        self._resting = History(NOTHING, self._now)  # of queues in which nothing happened
        self.broker = History((0,) * len(BROKER_FIGURES), self._now, is_long=True)

    # --- asking

    @property
    def now(self) -> int:
        """The time of the last sample, in seconds since the epoch."""
        return self._now

    def of_queue(self, queue: Queue, *, is_long: bool = False) -> History:
        """Returns the history of a queue, with hours from now on where somebody asks for them."""
        traffic = queue.traffic
        history = self._histories.get(traffic)
        if not is_long:
            return self._resting if history is None else history
        if history is None:
            before = self._seen.get(traffic, NOTHING)
            history = self._histories[traffic] = History(before, self._now)
        self._watch(traffic, history)
        return history

    def of_vhost(self, name: str) -> History:
        """Returns the history of all queues of a virtual host together."""
        return self._vhosts.get(name) or self._resting

    def figures_of(self, queue: Queue) -> tuple[int, ...]:
        """Returns a queue's figures as of this moment, in the order of QUEUE_FIGURES."""
        return queue_figures(queue.traffic, queue.counts())

    def current_figures(self) -> tuple[int, ...]:
        """Returns the gateway's figures in the order of BROKER_FIGURES: those of queues as of the
        last sample, all others as of now."""
        return self._broker_figures()

    # --- sampling

    async def run(self) -> None:
        """Samples until it is cancelled. Queues that have messages from before count from the
        start."""
        await self._note_all()
        while True:
            next_tick = self._second() // TICK_SECONDS * TICK_SECONDS + TICK_SECONDS
            while (left := next_tick - self._clock()) > 0:
                await self._guarded(lambda: self._sample_connections(CONNECTIONS_PER_SECOND))
                await asyncio.sleep(min(1.0, left))
            await self._guarded(self.sample)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            logger.exception("statistics could not be sampled; the next time they are")

    async def _note_all(self) -> None:
        queues = [each for vhost in self._manager.vhosts.values() for each in vhost.queues.values()]
        for number, queue in enumerate(queues, 1):
            if queue.counts().waiting:
                queue.traffic.note()
            if number % QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def sample(self) -> None:
        """Looks at the queues that changed since the last time, and at the gateway as a whole."""
        now = self._second()
        manager = self._manager
        manager.count_passed_on()
        changed = list(manager.changed_traffic)
        manager.changed_traffic.clear()
        for start in range(0, len(changed), QUEUES_AT_ONCE):
            self._sample_queues(changed[start : start + QUEUES_AT_ONCE], now)
            await asyncio.sleep(0)
        for name in self._vhosts.keys() - manager.vhosts.keys():
            del self._vhosts[name]
        self.broker.put(now, self._broker_figures())
        self._bound()
        self._now = now
        if not self._waiting:  # else there are more of them than one round takes
            self._waiting = self._connections.all()[::-1]

    def _sample_queues(self, changed: list[Traffic], now: int) -> None:
        """Looks at some queues, and adds what is new to their virtual hosts, and to all."""
        looks: dict[str, list[Look]] = {}
        for traffic in changed:
            traffic.is_noted = False
            looks.setdefault(traffic.vhost, []).append(self._sample_queue(traffic, now))
        for vhost, found in looks.items():
            before = map(sum, zip(*(look[0] for look in found), strict=True))
            after = map(sum, zip(*(look[1] for look in found), strict=True))
            self._grow(vhost, now, tuple(map(sub, after, before)))

    def _sample_queue(self, traffic: Traffic, now: int) -> Look:
        """Looks at one queue, and returns its figures before and now."""
        vhost = self._manager.vhosts.get(traffic.vhost)
        queue = None if vhost is None else vhost.queues.get(traffic.name)
        is_there = queue is not None and queue.traffic is traffic
        counts = queue.counts() if queue is not None and is_there else NO_LENGTHS
        figures = queue_figures(traffic, counts)
        before = self._seen.get(traffic, NOTHING)
        if is_there:
            if figures in QUIET:
                figures = QUIET[figures]
            self._seen[traffic] = figures
            history = self._histories.pop(traffic, None)
            if history is not None or figures not in QUIET:
                history = history or History(before, now)
                self._histories[traffic] = history  # the last: it rested least
                history.put(now, figures)
        else:
            for kept in (self._seen, self._histories, self._long):
                kept.pop(traffic, None)
        return before, figures

    def _grow(self, name: str, now: int, delta: Sequence[int]) -> None:
        self._totals = tuple(map(add, self._totals, delta))
        if name in self._manager.vhosts:
            history = self._vhosts.get(name)
            if history is None:
                history = self._vhosts[name] = History(NOTHING, now, is_long=True)
            history.put(now, tuple(map(add, history.totals, delta)))

    def _watch(self, traffic: Traffic, history: History) -> None:
        if not history.is_long:
            history.lengthen(self._now)
        self._long.pop(traffic, None)
        self._long[traffic] = None

    def _bound(self) -> None:
        """Forgets histories beyond the bounds: of those that rested longest, and hours of those
        that nobody asked for longest."""
        while len(self._histories) > MOST_HISTORIES:
            rested = next(iter(self._histories))
            del self._histories[rested]
            self._long.pop(rested, None)
        while len(self._long) > MOST_LONG_HISTORIES:
            traffic = next(iter(self._long))
            del self._long[traffic]
            self._histories[traffic].shorten()

    # --- the whole gateway

    def _broker_figures(self) -> tuple[int, ...]:
        """Returns the gateway's figures in the order of BROKER_FIGURES. A message counts as
        published once, however many queues took it."""
        counters = self._manager.counters
        flow = dict(zip(CHANNEL_STATS, self._connections.flow, strict=True))
        queues = dict(zip(QUEUE_FIGURES, self._totals, strict=True))
        queues["publish"] = counters.published
        return (
            *queues.values(),
            flow["confirm"],
            flow["return_unroutable"],
            flow["drop_unroutable"],
            counters.read_back,
            counters.committed_messages,
            *self._churn(),
        )

    def _churn(self) -> Iterable[int]:
        counters, connections = self._manager.counters, self._connections
        opened = self._sum(("amqp091", "channels_opened"), ("amqp10", "sessions_opened"))
        closed = self._sum(("amqp091", "channels_closed"), ("amqp10", "sessions_closed"))
        return (
            sum(connections.accepted.values()),
            connections.ended,
            opened,
            closed,
            counters.queues_declared,
            counters.queues_created,
            counters.queues_deleted,
        )

    def _sum(self, *names: tuple[str, str]) -> int:
        return sum(int(getattr(self._counters.get(part), name, 0)) for part, name in names)

    # --- connections

    async def _sample_connections(self, most: int) -> None:
        """Looks at the next connections in turn."""
        for number in range(1, min(most, len(self._waiting)) + 1):
            connection = self._waiting.pop()
            if self._connections.is_open(connection):
                self._connections.sample(connection, self._clock())
            if number % CONNECTIONS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _second(self) -> int:
        return int(self._clock())
