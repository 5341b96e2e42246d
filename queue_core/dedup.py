"""Deduplication: message ids that a queue has seen of late. What all queues remember together has a
bound, so that nobody fills the gateway's memory with ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from queue_core.counters import Counters
from queue_core.message import Message

log = logging.getLogger(__name__)

MOST_IDS: Final = 1_000_000  # about 150 bytes each
LONGEST_ID: Final = 256  # characters that are kept as they are


def id_of(message: Message) -> str | None:
    """The message's id as it is remembered, here and in the database. Long ones, and those that
    PostgreSQL's text does not hold, by their digest: publishers decide how long an id is, not what
    a million of them take, nor what an index refuses."""
    message_id = message.properties.message_id
    if message_id is None:
        return None
    text = str(message_id)
    if len(text) <= LONGEST_ID and text.isprintable():
        return text
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class IdBudget:
    """How many ids all windows may hold together."""

    __slots__ = ("counters", "limit", "used")

    def __init__(self, limit: int = MOST_IDS, counters: Counters | None = None) -> None:
        self.limit = limit
        self.used = 0
        self.counters = counters or Counters()


class Window:
    """Message ids seen in the last so many seconds: a second one with the same id is a repetition,
    and not stored again. Where ids come faster than the budget allows for, the oldest are forgotten
    before their time."""

    __slots__ = ("_budget", "_coming", "_is_cut", "_name", "seconds", "seen")

    def __init__(self, seconds: float, budget: IdBudget | None = None, name: str = "") -> None:
        self.seconds = seconds
        self.seen: dict[str, float] = {}  # in the order of time
        self._coming: set[str] = set()  # of messages that are still on their way to the disk
        self._budget = budget or IdBudget()
        self._name = name
        self._is_cut = False  # ids were forgotten before their time, and the log says so

    def restore(self, seen: dict[str, float]) -> None:
        """What was seen before a restart."""
        self.clear()
        self.seen = dict(seen)
        self._budget.used += len(seen)
        self._cut()

    def has_seen(self, message: Message, now: float) -> bool:
        return self.seen_at(message, now) is not None

    def seen_at(self, message: Message, now: float) -> float | None:
        """When it came for the first time; None: it is no repetition."""
        message_id = id_of(message)
        if message_id is None:
            return None
        self._forget(now - self.seconds)
        return self.seen.get(message_id)

    def remember(self, message: Message, now: float) -> None:
        """It was taken."""
        message_id = id_of(message)
        if message_id is None:
            return
        before = len(self.seen)
        self.seen[message_id] = now
        self._coming.add(message_id)
        self._budget.used += len(self.seen) - before
        if self._budget.used > self._budget.limit:
            self._cut()

    def on_stored(self, message: Message) -> None:
        """It has been committed."""
        if self._coming:
            self._coming.discard(id_of(message) or "")

    def stored(self) -> Iterator[tuple[str, float]]:
        """Ids of messages that are committed, and when they came: what may be written down apart
        from them. After a crash, one that never was stored must not be taken for a repetition."""
        return (each for each in self.seen.items() if each[0] not in self._coming)

    def holds(self, message: Message) -> bool:
        """Whether it, or what it repeats, is on record; a message without an id is."""
        message_id = id_of(message)
        return message_id is None or message_id in self.seen

    def forget(self, message: Message) -> None:
        """It was not stored after all."""
        self.on_stored(message)
        if self.seen.pop(id_of(message) or "", None) is not None:
            self._budget.used -= 1

    def clear(self) -> None:
        """The queue is gone."""
        self._budget.used -= len(self.seen)
        self.seen.clear()

    def _forget(self, horizon: float) -> None:
        seen = self.seen
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] > horizon:
                return
            del seen[oldest]
            self._budget.used -= 1
            self._is_cut = False

    def _cut(self) -> None:
        """The newest one always stays: it tells an immediate repetition."""
        budget, seen = self._budget, self.seen
        while budget.used > budget.limit and len(seen) > 1:
            del seen[next(iter(seen))]
            budget.used -= 1
            budget.counters.dedup_forgotten += 1
            if not self._is_cut:
                self._is_cut = True
                log.warning(
                    "queue '%s': message ids are forgotten before its deduplication window is "
                    "over, as all queues together may remember %d; shorten the windows, or raise "
                    "storage.max_dedup_ids",
                    self._name,
                    budget.limit,
                )
