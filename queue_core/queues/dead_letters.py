"""Dead letters: what becomes of a message that is rejected, expires, fails too often or does not
fit.

It leaves its queue and enters those that the dead-letter exchange leads to in one commit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from queue_core.commit.unit import Unit
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.errors import CoreError
from queue_core.message.message import Death, Message
from queue_core.routing.exchanges import ExchangeKind
from queue_core.sessions.subscription import is_reserved

if TYPE_CHECKING:
    from queue_core.queues.competing import Appends, CompetingQueue
    from queue_core.routing.router import Route
    from queue_core.vhost import Queue, Vhost

log = logging.getLogger(__name__)

DELAY: Final = "x-delay"  # the header, in milliseconds
MAX_DELAY_MS: Final = (1 << 32) - 1
LONGEST_MS: Final = float(1 << 53)
DROPPED: Final = {
    "maxlen": "dropped_overflow",
    "expired": "dropped_expired",
    "rejected": "dropped_rejected",
    "delivery_limit": "dropped_exhausted",
}


def bury(vhost: Vhost, queue: CompetingQueue, cursor: Cursor, entry: Entry, reason: str) -> None:
    """Moves the entry to where the queue's dead letters go, or drops and counts it."""
    appends = letters(vhost, queue, entry.message, reason)
    if appends:
        mover = _Mover(cursor, entry)
        vhost.writer.submit(Unit(appends, mover, moves=[(cursor, entry)]))
    else:
        cursor.drop(entry)


def letters(vhost: Vhost, queue: CompetingQueue, message: Message, reason: str) -> Appends:
    """What is to be appended in the commit in which the message leaves its queue; counted as dead
    letter, or as dropped where nobody takes it."""
    letter, route = _letter(vhost, queue, message, reason)
    appends: Appends = []
    is_taken = False
    for target, options in route:
        is_taken = (target.take(letter, options, appends) and not target.is_memory) or is_taken
    if is_taken:
        vhost.house.counters.dead_lettered += 1
    else:
        _count_drop(vhost, queue, reason)
    return appends


def bury_newcomer(vhost: Vhost, queue: CompetingQueue, message: Message) -> None:
    """A message that never was in the queue, because that was full."""
    letter, route = _letter(vhost, queue, message, "maxlen")
    appends: Appends = []
    for target, options in route:
        target.take(letter, options, appends)
    if appends:
        vhost.writer.submit(Unit(appends))
    if route:
        vhost.house.counters.dead_lettered += 1


def _letter(
    vhost: Vhost, queue: CompetingQueue, message: Message, reason: str
) -> tuple[Message, Route[Queue]]:
    spec = queue.spec
    exchange = spec.dead_letter_exchange
    if exchange is None:
        return message, ()
    expires_at = message.expires_at
    now = vhost.house.clock()
    copies = message.copies
    death = Death(
        queue=queue.name,
        reason=reason,
        time=now,
        exchange=message.exchange,
        routing_keys=(message.routing_key, *copies),
        expiration_ms=None if expires_at is None else _milliseconds(expires_at - now),
    )
    key, keeps_key = message.routing_key, spec.dead_letter_key is None
    if spec.dead_letter_key is not None:
        key = spec.dead_letter_key
    letter = message.moved(exchange, key, death)
    headers = letter.properties.header_map
    try:
        if copies and keeps_key:
            route = vhost.router.route_keys(
                exchange, (key, *copies), headers, letter.deciding_property, inside=True
            )
        else:
            route = vhost.router.route(
                exchange, key, headers, letter.deciding_property, inside=True
            )
    except CoreError as error:
        log.warning("dead letters of queue '%s' have nowhere to go: %s", queue.name, error)
        return letter, ()
    if route and vhost.router.exchange(exchange).spec.kind is ExchangeKind.DELAYED:
        letter.not_before = _delayed_until(headers().get(DELAY), now)
        if vhost.house.delays.refuses(letter.not_before):
            letter.not_before = None
            vhost.house.delays.count_cut()
    if reason == "rejected":
        return letter, route
    kept = tuple(match for match in route if not _is_cycle(match.queue.name, letter.deaths))
    if len(kept) < len(route):
        vhost.house.counters.dropped_cycle += len(route) - len(kept)
        log.warning("queue '%s': a dead letter would go round in a circle; dropped", queue.name)
    return letter, kept


def _milliseconds(left: float) -> int:
    """Of a time to live that may be for ever: a number that every protocol and the table hold."""
    return int(min(max(0.0, left * 1000), LONGEST_MS))


def _delayed_until(delay: object, now: float) -> float | None:
    """A dead letter that goes to a delaying exchange waits again, as its header says."""
    if isinstance(delay, bool) or not isinstance(delay, int) or delay <= 0:
        return None
    return now + min(delay, MAX_DELAY_MS) / 1000


def _is_cycle(target: str, deaths: tuple[Death, ...]) -> bool:
    """The letter has died in the target before, and nobody rejected it since: it would go round for
    ever without anybody's doing."""
    for death in deaths:
        if death.reason == "rejected":
            return False
        if death.queue == target:
            return True
    return False


def _count_drop(vhost: Vhost, queue: CompetingQueue, reason: str) -> None:
    counters = vhost.house.counters
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


class _Mover:
    """Waits for the commit of a move. What the database will never take is dropped: back in its
    place it would only die again, and again."""

    __slots__ = ("_cursor", "_entry")

    def __init__(self, cursor: Cursor, entry: Entry) -> None:
        self._cursor = cursor
        self._entry = entry

    def on_committed(self, tokens: list[int]) -> None:
        """It is where it should be."""

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        log.error("queue '%s': dead letter dropped: %s", self._cursor.queue_name, error)
        self._cursor.drop(self._entry)
