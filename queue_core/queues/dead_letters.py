"""Dead letters: a message that is rejected, expires, fails too often or does not fit goes to its
queue's dead-letter exchange, or is dropped and counted.

A dead letter leaves its queue and enters those that the exchange leads to in one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from queue_core.commit.unit import Unit
from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.errors import CoreError
from queue_core.message.message import Death, Message
from queue_core.queues.reserved_names import is_reserved
from queue_core.routing.exchanges import ExchangeKind

if TYPE_CHECKING:
    from queue_core.commit.ports import Writer
    from queue_core.queues.queue import Appends, Queue
    from queue_core.routing.route import Route
    from queue_core.routing.router import Router

log = logging.getLogger(__name__)

DELAY: Final = "x-delay"  # the header, in milliseconds
MAX_DELAY_MS: Final = (1 << 32) - 1
DROPPED: Final = {  # by reason: the counter of messages that nobody took
    "maxlen": "dropped_overflow",
    "expired": "dropped_expired",
    "rejected": "dropped_rejected",
    "delivery_limit": "dropped_exhausted",
}


class DeadLetters:
    """Moves messages that leave a queue unconsumed to the queue's dead-letter exchange.

    A queue that names no dead-letter exchange, or whose dead letters no queue takes, drops them;
    each is counted by its reason.
    """

    def __init__(
        self,
        router: Router[Queue],
        writer: Writer,
        counters: Counters,
        clock: Callable[[], float],
        delays: DelayBudget,
    ) -> None:
        self._router = router
        self._writer = writer
        self._counters = counters
        self._clock = clock
        self._delays = delays

    def move(self, queue: Queue, cursor: Cursor, entry: Entry, reason: str) -> None:
        """Moves an entry out of its queue to where the dead letters go, in one commit; drops it
        where nobody takes it."""
        appends = self.appends(queue, entry.message, reason)
        if appends:
            mover = _Mover(cursor, entry)
            self._writer.submit(Unit(appends, mover, moves=[(cursor, entry)]))
        else:
            cursor.drop(entry)

    def appends(self, queue: Queue, message: Message, reason: str) -> Appends:
        """Lists the appends that belong into the commit in which the message leaves its queue. The
        message counts as dead-lettered, or as dropped where nobody takes it."""
        letter, route = self._letter(queue, message, reason)
        appends: Appends = []
        is_taken = False
        for target, options in route:
            is_taken = (target.take(letter, options, appends) and not target.is_memory) or is_taken
        queue.traffic.count_lost(reason, is_dead_letter=is_taken)
        if is_taken:
            self._counters.dead_lettered += 1
        else:
            self._count_drop(queue, reason)
        return appends

    def add_refused(self, queue: Queue, message: Message) -> None:
        """Dead-letters a message that the queue refused to take, because it is full."""
        letter, route = self._letter(queue, message, "maxlen")
        appends: Appends = []
        for target, options in route:
            target.take(letter, options, appends)
        if appends:
            self._writer.submit(Unit(appends))
        if route:
            self._counters.dead_lettered += 1
            queue.traffic.count_lost("maxlen", is_dead_letter=True)

    def _letter(self, queue: Queue, message: Message, reason: str) -> tuple[Message, Route[Queue]]:
        """Makes the dead letter of a message, and finds the queues that it goes to."""
        spec = queue.spec
        exchange = spec.dead_letter_exchange
        if exchange is None:
            return message, ()
        now = self._clock()
        key = message.routing_key if spec.dead_letter_key is None else spec.dead_letter_key
        letter = message.moved(exchange, key, _death(queue.name, message, reason, now))
        copies = message.copies if spec.dead_letter_key is None else ()
        headers = letter.properties.header_map
        try:
            if copies:
                route = self._router.route_keys(
                    exchange, (key, *copies), headers, letter.deciding_property, inside=True
                )
            else:
                route = self._router.route(
                    exchange, key, headers, letter.deciding_property, inside=True
                )
        except CoreError as error:
            log.warning("dead letters of queue '%s' have nowhere to go: %s", queue.name, error)
            return letter, ()
        if route and self._router.exchange(exchange).spec.kind is ExchangeKind.DELAYED:
            letter.not_before = _delayed_until(headers().get(DELAY), now)
            if self._delays.refuses(letter.not_before):
                letter.not_before = None
                self._delays.count_cut()
        if reason == "rejected":
            return letter, route
        kept = tuple(match for match in route if not _is_cycle(match.queue.name, letter.deaths))
        if len(kept) < len(route):
            self._counters.dropped_cycle += len(route) - len(kept)
            log.warning("queue '%s': a dead letter would go round in a circle; dropped", queue.name)
        return letter, kept

    def _count_drop(self, queue: Queue, reason: str) -> None:
        counters = self._counters
        name = DROPPED[reason]
        setattr(counters, name, getattr(counters, name) + 1)
        if reason == "maxlen" and is_reserved(queue.name) and not queue.has_told_overflow:
            queue.has_told_overflow = True  # nobody declared it, so nobody expects it
            log.warning(
                "'%s' is full, and drops its oldest messages (more are counted only, as "
                "dropped_overflow): its client takes fewer than are published, or is away",
                queue.name,
            )
        log.debug("queue '%s': message dropped (%s)", queue.name, reason)


def _death(queue_name: str, message: Message, reason: str, now: float) -> Death:
    return Death(
        queue=queue_name,
        reason=reason,
        time=now,
        exchange=message.exchange,
        routing_keys=(message.routing_key, *message.copies),
    )


def _delayed_until(delay: object, now: float) -> float | None:
    """Tells until when a dead letter waits in a delaying exchange, by its x-delay header."""
    if isinstance(delay, bool) or not isinstance(delay, int) or delay <= 0:
        return None
    return now + min(delay, MAX_DELAY_MS) / 1000


def _is_cycle(target: str, deaths: tuple[Death, ...]) -> bool:
    """Tells whether the letter has died in the target before and nobody rejected it since: it would
    go round for ever without anybody's doing."""
    for death in deaths:
        if death.reason == "rejected":
            return False
        if death.queue == target:
            return True
    return False


class _Mover:
    """Waits for the commit of a move. A letter that the database will never take is dropped: back
    in its place it would only die again, and again."""

    __slots__ = ("_cursor", "_entry")

    def __init__(self, cursor: Cursor, entry: Entry) -> None:
        self._cursor = cursor
        self._entry = entry

    def on_committed(self, tokens: list[int]) -> None:
        """Does nothing: the commit took the entry out of its queue."""

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        log.error("queue '%s': dead letter dropped: %s", self._cursor.queue_name, error)
        self._cursor.drop(self._entry)
