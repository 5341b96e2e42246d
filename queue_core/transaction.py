"""Local transactions: publishes and settlements that become true together, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from queue_core.commit.unit import Unit
from queue_core.commit.waiter import Waiter
from queue_core.delivery.consumer import Delivery
from queue_core.delivery.cursor import settle
from queue_core.errors import CoreError, LimitExceeded
from queue_core.message.message import Message
from queue_core.outcomes import Outcome, Published, Verdict
from queue_core.queues.deduplication_by_message_id import Repetitions
from queue_core.queues.duplicate_publishes import forget_live
from queue_core.queues.queue import Appends, Queue, is_bound

if TYPE_CHECKING:
    from queue_core.commit.ports import Writer
    from queue_core.counters import Counters
    from queue_core.queues.context import QueueContext
    from queue_core.routing.route import Route
    from queue_core.routing.router import Router

Live = list[tuple[Queue, Message, tuple[object, ...]]]
Settlements = list[tuple[list[Delivery], Verdict]]
Original = tuple[Repetitions, int, float]  # which window knows which message, and since when


@dataclass(slots=True)
class Publish:
    """A message of a transaction, and its route."""

    message: Message
    route: Route[Queue]
    extra_keys: Sequence[str] = ()

    @property
    def is_judged_later(self) -> bool:
        """Tells whether an exchange on the route decides with the commit if the message is a
        repetition."""
        return any(queue.judges_repetitions for queue, _ in self.route)


class Transaction:
    """Publishes and settlements that nobody sees before `commit`, which is one PostgreSQL
    transaction."""

    def __init__(
        self,
        router: Router[Queue],
        context: QueueContext,
        writer: Writer,
        queues: Mapping[str, Queue],
    ) -> None:
        self._router = router
        self._context = context
        self._writer = writer
        self._queues = queues  # of the virtual host, by name
        self._publishes: list[Publish] = []
        self._settlements: Settlements = []
        self.entries = 0  # of queues, that the commit is to make
        self.pressed: list[Queue] = []  # once committed: queues without room for more

    @property
    def size(self) -> int:
        """The bytes of messages that the transaction holds until it ends."""
        return sum(publish.message.size() for publish in self._publishes)

    def publish(
        self, message: Message, extra_keys: Sequence[str] = (), most_entries: float = inf
    ) -> Published:
        """Routes the message now, and enqueues it at the commit: PENDING, unless no queue is bound.
        Whether it repeats another message is seen at the commit. Raises LimitExceeded where it goes
        to more queues than `most_entries`, and then does nothing."""
        publish = Publish(message, self._route(message, extra_keys), extra_keys)
        if not publish.route:
            return Published.NOWHERE
        if len(publish.route) > most_entries:
            raise LimitExceeded(
                f"the message goes to {len(publish.route)} queues, and takes memory for each of "
                "them until its transaction ends, which has no room for it; end it earlier"
            )
        self.entries += len(publish.route)
        self._publishes.append(publish)
        is_routed = is_bound(publish.route) or publish.is_judged_later
        return Published.PENDING if is_routed else Published.REMEMBERED

    def _route(self, message: Message, extra_keys: Sequence[str]) -> Route[Queue]:
        return self._router.route_keys(
            message.exchange,
            (message.routing_key, *extra_keys),
            message.properties.header_map,
            message.deciding_property,
        )

    def settle(self, deliveries: Iterable[Delivery], verdict: Verdict) -> None:
        self._settlements.append((list(deliveries), verdict))

    def rollback(self) -> None:
        """Forgets all publishes and settlements; deliveries stay with their consumer."""
        self._publishes.clear()
        self._settlements.clear()
        self.entries = 0

    async def commit(self) -> list[Message]:
        """Commits everything in one transaction of the database. Raises QueueFull, and does
        nothing, when a queue refuses. A caller that is cancelled does not stop the commit. Returns
        the messages that had a route and reach no queue now, because their queues are gone or
        because they are repetitions."""
        publishes, settlements = self._publishes, self._settlements
        self._publishes, self._settlements = [], []
        await self._originals_stored(publishes)
        appends, live, stranded = self._appends(publishes)
        leaving = _leaving(settlements)
        for delivery, outcome in leaving.items():
            queue = self._queues.get(delivery.queue_name)
            if outcome is Outcome.REJECTED and queue is not None:
                dead_letters = self._context.dead_letters
                appends += dead_letters.appends(queue, delivery.message, "rejected")
            delivery.consumer.cursor.detach(delivery)
        moves = [(delivery.consumer.cursor, delivery.entry) for delivery in leaving]
        ending = _Ending(self._context.counters, live, leaving, settlements)
        unit = Unit(appends, ending, 0, moves)
        unit.undo = lambda: _forget_all(publishes)
        self._writer.submit(unit)
        await ending.done
        self.pressed = _full(publishes)
        return stranded

    async def _originals_stored(self, publishes: list[Publish]) -> None:
        """Waits until the messages that this transaction repeats are stored: one that is refused on
        its way to the disk was not repeated. Called before anything else of the commit begins."""
        known: set[Original] = set()
        while not (repeated := self._originals(publishes)) <= known:
            known |= repeated
            await self._writer.flushed()

    def _originals(self, publishes: list[Publish]) -> set[Original]:
        now = self._context.clock()
        return {
            (queue.window, id(publish.message), seen_at)
            for publish in publishes
            for queue, _ in publish.route
            if queue.window is not None
            and (seen_at := queue.window.seen_at(publish.message, now)) is not None
        }

    def _appends(self, publishes: list[Publish]) -> tuple[Appends, Live, list[Message]]:
        """Takes the messages into their queues. Gives the entries to write, the messages for queues
        in memory, which get theirs when the rest is committed, and the messages that reach no
        queue."""
        self._check_delays(publishes)
        appends: Appends = []
        live: Live = []
        stranded: list[Message] = []
        coming: dict[Queue, tuple[int, int]] = {}  # messages and bytes for each so far
        counters = self._context.counters
        for publish in publishes:
            message, duplicates = publish.message, counters.duplicates
            publish.route = self._route_now(publish)
            is_routed = is_bound(publish.route)
            counters.published += is_routed
            for queue, options in publish.route:
                if queue.is_ephemeral:
                    count, size = coming.get(queue, (0, 0))
                    is_taken = not queue.refuses(count, size)
                    coming[queue] = (count + 1, size + message.size())
                    live.append((queue, message, options))
                else:
                    is_taken = queue.take(message, options, appends, stays=True)
                if not is_taken:
                    for log, entry in appends:
                        log.refuse(entry)
                    _forget_all(publishes)
                    raise queue.full_error()
            if not is_routed:
                stranded.append(message)
                counters.unroutable += counters.duplicates == duplicates
        return appends, live, stranded

    def _check_delays(self, publishes: list[Publish]) -> None:
        """Raises QueueFull where all of them together would be too many that wait."""
        delays, coming = self._context.delays, 0
        for publish in publishes:
            if publish.message.not_before is not None:
                coming += len(publish.route)
                if delays.refuses(publish.message.not_before, coming - 1):
                    delays.count_refused()
                    raise delays.error()

    def _route_now(self, publish: Publish) -> Route[Queue]:
        """Gives the route as it is at the commit: without queues that were deleted since, and
        judged by the values that exchanges on the way have seen by now, in this transaction too."""
        route = publish.route
        if publish.is_judged_later:
            with suppress(CoreError):  # the exchange is gone: what was bound to it then gets it
                route = self._route(publish.message, publish.extra_keys)
        return tuple(match for match in route if not match.queue.is_deleted)


def _forget_all(publishes: list[Publish]) -> None:
    for publish in publishes:
        forget_live(publish.message, publish.route)


def _full(publishes: list[Publish]) -> list[Queue]:
    """Queues that hold their publishers, and that these have found full, or filled."""
    held = {
        queue: None
        for publish in publishes
        for queue, _ in publish.route
        if queue.backpressure is not None
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


class _Ending(Waiter):
    """The end of a transaction: everything that a commit, or its refusal, makes true at once,
    whether or not somebody waits for it."""

    def __init__(
        self,
        counters: Counters,
        live: Live,
        leaving: dict[Delivery, Outcome],
        settlements: Settlements,
    ) -> None:
        super().__init__()
        self._counters = counters
        self._live = live
        self._leaving = leaving
        self._settlements = settlements

    def on_committed(self, tokens: list[int]) -> None:
        outcomes = self._leaving.values()
        accepted = sum(outcome is Outcome.ACCEPTED for outcome in outcomes)
        self._counters.settled += accepted
        for delivery, outcome in self._leaving.items():
            if outcome is Outcome.ACCEPTED:
                delivery.consumer.cursor.traffic.count_acknowledged(1)
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
