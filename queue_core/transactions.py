"""Local transactions: publishes and settlements that become true together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from queue_core.consumers import Delivery
from queue_core.cursor import settle
from queue_core.deadletters import letters
from queue_core.dedup import Window
from queue_core.errors import CoreError
from queue_core.message import Message
from queue_core.outcomes import Outcome, Verdict
from queue_core.queues import Appends, CompetingQueue, EphemeralQueue, full
from queue_core.units import Unit

if TYPE_CHECKING:
    from queue_core.router import Route
    from queue_core.vhost import Queue, Vhost

Live = list[tuple[EphemeralQueue, Message, tuple[object, ...]]]
Publishes = list[tuple[Message, "Route[Queue]"]]
Settlements = list[tuple[list[Delivery], Verdict]]
Original = tuple[Window, int, float]  # which window knows which message, and since when


class Transaction:
    """Nothing of it is seen by anybody before `commit`, which is one PostgreSQL transaction."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._publishes: Publishes = []
        self._settlements: Settlements = []
        self.pressed: list[CompetingQueue] = []  # once committed: queues without room for more

    @property
    def size(self) -> int:
        """Bytes held until the end, for whoever sets a limit."""
        return sum(message.size() for message, _ in self._publishes)

    def publish(self, message: Message, extra_keys: Sequence[str] = ()) -> bool:
        """Routed now, enqueued at commit. False: no queue is bound for it."""
        headers = message.properties.header_map
        keys = (message.routing_key, *extra_keys)
        route = self._vhost.router.route_keys(
            message.exchange, keys, headers, message.hashed_property
        )
        if route:
            self._publishes.append((message, route))
        return bool(route)

    def settle(self, deliveries: Iterable[Delivery], verdict: Verdict) -> None:
        self._settlements.append((list(deliveries), verdict))

    def rollback(self) -> None:
        """As if nothing had been said; deliveries stay with their consumer."""
        self._publishes.clear()
        self._settlements.clear()

    async def commit(self) -> list[Message]:
        """All of it, in one transaction of the database. Raises QueueFull, and does nothing, when a
        queue refuses. Whoever waits may be cancelled: it goes on, to one end or the other. Returns
        those that were routed, and whose queues are all gone by now."""
        publishes, settlements = self._publishes, self._settlements
        self._publishes, self._settlements = [], []
        await self._originals_stored(publishes)
        publishes, stranded = _still_routed(publishes)
        self._vhost.house.counters.unroutable += len(stranded)
        appends, live = self._appends(publishes)
        leaving = _leaving(settlements)
        for delivery, outcome in leaving.items():
            queue = delivery.consumer.cursor.policy
            if outcome is Outcome.REJECTED and isinstance(queue, CompetingQueue):
                appends += letters(self._vhost, queue, delivery.message, "rejected")
            delivery.consumer.cursor.detach(delivery)
        moves = [(delivery.consumer.cursor, delivery.entry) for delivery in leaving]
        ending = _Ending(self._vhost, live, leaving, settlements)
        self._vhost.writer.submit(Unit(appends, ending, 0, moves))
        await ending.done
        self.pressed = _full(publishes)
        return stranded

    async def _originals_stored(self, publishes: Publishes) -> None:
        """What a repetition repeats may still be on its way to the disk, and be refused there: then
        it is no repetition. Nothing has begun meanwhile that could not be left alone."""
        known: set[Original] = set()
        while not (repeated := self._originals(publishes)) <= known:
            known |= repeated
            await self._vhost.writer.flushed()

    def _originals(self, publishes: Publishes) -> set[Original]:
        now = self._vhost.house.clock()
        return {
            (queue.window, id(message), seen_at)
            for message, route in publishes
            for queue, _ in route
            if queue.window is not None
            and (seen_at := queue.window.seen_at(message, now)) is not None
        }

    def _appends(self, publishes: Publishes) -> tuple[Appends, Live]:
        """What is to be written, and what is for queues in memory: those get theirs when the rest
        is committed."""
        appends: Appends = []
        live: Live = []
        coming: dict[EphemeralQueue, tuple[int, int]] = {}  # messages and bytes for each so far
        for message, route in publishes:
            self._vhost.house.counters.published += 1
            for queue, options in route:
                if isinstance(queue, EphemeralQueue):
                    count, size = coming.get(queue, (0, 0))
                    is_taken = not queue.refuses(count, size)
                    coming[queue] = (count + 1, size + message.size())
                    live.append((queue, message, options))
                else:
                    is_taken = queue.take(message, options, appends, stays=True)
                if not is_taken:
                    for log, entry in appends:
                        log.refuse(entry)
                    raise full(queue)  # type: ignore[arg-type]
        return appends, live


def _still_routed(publishes: Publishes) -> tuple[Publishes, list[Message]]:
    """Without the queues that were deleted since, and the messages that have no other."""
    kept: Publishes = []
    stranded: list[Message] = []
    for message, route in publishes:
        there = tuple(match for match in route if not match.queue.is_deleted)
        if there:
            kept.append((message, there))
        else:
            stranded.append(message)
    return kept, stranded


def _full(publishes: Publishes) -> list[CompetingQueue]:
    """Queues that hold their publishers, and that these have found full, or filled."""
    held = {
        queue: None
        for _, route in publishes
        for queue, _ in route
        if isinstance(queue, CompetingQueue) and queue.backpressure is not None
    }
    return [queue for queue in held if queue.backpressure and queue.backpressure.is_full()]


def _leaving(settlements: Settlements) -> dict[Delivery, Outcome]:
    """Deliveries whose messages leave their queue for good, with this commit. Of a stream, nothing
    does by being rejected."""
    leaving: dict[Delivery, Outcome] = {}
    for deliveries, verdict in settlements:
        is_rejected = verdict.outcome is Outcome.REJECTED
        if not is_rejected and verdict.outcome is not Outcome.ACCEPTED:
            continue
        for delivery in deliveries:
            if delivery.is_open and (delivery.consumer.cursor.requeues or not is_rejected):
                leaving.setdefault(delivery, verdict.outcome)
    return leaving


class Waiter:
    """A publisher that is one coroutine waiting for one commit."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_committed(self, tokens: list[int]) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Ending(Waiter):
    """What a commit, or its refusal, makes true at once, whether or not somebody still waits."""

    def __init__(
        self,
        vhost: Vhost,
        live: Live,
        leaving: dict[Delivery, Outcome],
        settlements: Settlements,
    ) -> None:
        super().__init__()
        self._vhost = vhost
        self._live = live
        self._leaving = leaving
        self._settlements = settlements

    def on_committed(self, tokens: list[int]) -> None:
        outcomes = self._leaving.values()
        accepted = sum(outcome is Outcome.ACCEPTED for outcome in outcomes)
        self._vhost.house.counters.settled += accepted
        for queue, message, options in self._live:
            if not queue.is_deleted:
                queue.take(message, options, [])
        for deliveries, verdict in self._settlements:  # what has left is passed over
            settle(deliveries, verdict)
        for cursor in {delivery.consumer.cursor for delivery in self._leaving}:
            cursor.pump()
        super().on_committed(tokens)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        for delivery in self._leaving:
            delivery.consumer.cursor.take_back(delivery.entry, was_delivered=True)
        super().on_refused(tokens, error)
