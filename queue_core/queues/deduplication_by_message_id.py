"""Deduplication: how repetitions are told, and message ids that a queue has seen of late. What all
queues and exchanges remember together has a bound, so that nobody fills the gateway's memory."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.message.deduplication_keys import shortened
from queue_core.message.message import Message

log = logging.getLogger(__name__)

MOST_IDS: Final = 1_000_000  # about 150 bytes each


def id_of(message: Message) -> str | None:
    """Gives the message's id as it is remembered, here and in the database."""
    message_id = message.properties.message_id
    return None if message_id is None else shortened(str(message_id))


class IdBudget:
    """The budget bounds the ids that all queues and exchanges remember together."""

    __slots__ = ("counters", "limit", "used")

    def __init__(self, limit: int = MOST_IDS, counters: Counters | None = None) -> None:
        self.limit = limit
        self.used = 0
        self.counters = counters or Counters()

    @property
    def is_overdrawn(self) -> bool:
        return self.used > self.limit

    def count_forgotten(self, whose: str, *, is_first: bool) -> None:
        """Counts an id that was forgotten before its time; the first of several is logged."""
        self.counters.dedup_forgotten += 1
        if is_first:
            log.warning(
                "%s: message ids are forgotten before their time, as all queues and exchanges "
                "together may remember %d; shorten their windows, make their caches smaller, or "
                "raise storage.max_dedup_ids",
                *(whose, self.limit),
            )


class Repetitions(ABC):
    """A record of messages that tells which ones were there before."""

    __slots__ = ()

    def has_seen(self, message: Message, now: float) -> bool:
        return self.seen_at(message, now) is not None

    @abstractmethod
    def seen_at(self, message: Message, now: float) -> float | None:
        """Gives the time when the repeated message was taken; None: this one is no repetition."""

    @abstractmethod
    def remember(self, message: Message, now: float) -> None:
        """Records a message that was taken."""

    def arrived(self, entry: Entry) -> None:
        """Records that the message is committed, and which place it has."""
        return  # few want to know

    @abstractmethod
    def holds(self, message: Message) -> bool:
        """Tells whether the message, or the one that it repeats, is on record. A message that has
        nothing to tell it by counts as recorded."""

    @abstractmethod
    def forget(self, message: Message) -> None:
        """Takes a message off the record: it was not stored after all."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets all: the queue or exchange is gone."""


class Window(Repetitions):
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
        """Restores an id that was seen before a restart."""
        self.clear()
        self.seen = dict(seen)
        self._budget.used += len(seen)
        self._cut()

    def seen_at(self, message: Message, now: float) -> float | None:
        message_id = id_of(message)
        if message_id is None:
            return None
        self._forget(now - self.seconds)
        return self.seen.get(message_id)

    def remember(self, message: Message, now: float) -> None:
        message_id = id_of(message)
        if message_id is None:
            return
        before = len(self.seen)
        self.seen[message_id] = now
        self._coming.add(message_id)
        self._budget.used += len(self.seen) - before
        if self._budget.is_overdrawn:
            self._cut()

    def arrived(self, entry: Entry) -> None:
        if self._coming:
            self._coming.discard(id_of(entry.message) or "")

    def stored(self) -> Iterator[tuple[str, float]]:
        """Lists the ids of messages that are committed, and when they came. Only these may be
        written down apart from their messages: after a crash, a message that never was stored must
        not be taken for a repetition."""
        return (each for each in self.seen.items() if each[0] not in self._coming)

    def holds(self, message: Message) -> bool:
        message_id = id_of(message)
        return message_id is None or message_id in self.seen

    def forget(self, message: Message) -> None:
        message_id = id_of(message) or ""
        self._coming.discard(message_id)
        if self.seen.pop(message_id, None) is not None:
            self._budget.used -= 1

    def clear(self) -> None:
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
        """Forgets the oldest ids until the budget holds. The newest one always stays: it tells an
        immediate repetition."""
        budget, seen = self._budget, self.seen
        while budget.is_overdrawn and len(seen) > 1:
            del seen[next(iter(seen))]
            budget.used -= 1
            budget.count_forgotten(f"queue '{self._name}'", is_first=not self._is_cut)
            self._is_cut = True
