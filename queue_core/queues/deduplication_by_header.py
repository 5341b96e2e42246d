"""Records of the header `x-deduplication-header` hold the values that an exchange has seen, or
those of the messages that are in a queue now."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from queue_core.delivery.consumer import Entry
from queue_core.message.message import Message
from queue_core.queues.deduplication_by_message_id import IdBudget, Repetitions
from queue_core.routing.exchange_arguments import CACHE_TTL, MOST_CACHE_TTL_MS, whole_number

ON_ITS_WAY: Final = -1  # in place of an offset: not committed yet
SPARE_KEYS: Final = 1000  # of messages that have left, before a queue looks which ones have


class Seen(NamedTuple):
    """A value that was let through: when, until when it counts, and by which message."""

    at: float
    expires_at: float | None
    by: int  # the message's identity, which tells it from its repetitions


class Keys(Repetitions):
    """A record of values within the budget of all records: the oldest values go first."""

    __slots__ = ("_budget", "_is_cut", "_whose")

    def __init__(self, budget: IdBudget, whose: str) -> None:
        self._budget = budget
        self._whose = whose  # for people
        self._is_cut = False  # values were forgotten before their time, and the log says so

    def _cut(self, known: Mapping[str, object]) -> None:
        """Forgets the oldest values until the budget holds. The newest one always stays: it tells
        an immediate repetition."""
        while self._budget.is_overdrawn and len(known) > 1:
            self.forget_key(next(iter(known)))
            self._budget.count_forgotten(self._whose, is_first=not self._is_cut)
            self._is_cut = True

    @abstractmethod
    def forget_key(self, key: str) -> None:
        """Takes a value off the record, so that it may come again."""


class SeenKeys(Keys):
    """The values that an exchange has let through: at most so many, and each for its time. Where
    there is no room for one more, the oldest is forgotten."""

    __slots__ = ("seen", "size", "ttl")

    def __init__(self, size: int, ttl: float | None, budget: IdBudget, whose: str) -> None:
        super().__init__(budget, whose)
        self.size = size
        self.ttl = ttl  # seconds; None: for as long as there is room
        self.seen: dict[str, Seen] = {}  # in the order of time

    def seen_at(self, message: Message, now: float) -> float | None:
        key = message.repetition_key
        found = None if key is None else self.seen.get(key)
        if found is None or (found.expires_at is not None and found.expires_at <= now):
            return None
        return found.at

    def has_key(self, key: str, now: float) -> bool:
        found = self.seen.get(key)
        return found is not None and (found.expires_at is None or found.expires_at > now)

    def repeats(self, message: Message) -> bool:
        """Tells whether another message with the same value is on record."""
        key = message.repetition_key
        found = None if key is None else self.seen.get(key)
        return found is not None and found.by != id(message)

    def remember(self, message: Message, now: float) -> None:
        key = message.repetition_key
        if key is not None:
            self.put(key, Seen(now, self.until(message, now), id(message)))

    def until(self, message: Message, now: float) -> float | None:
        """Gives the time when the value may come again; the message itself may say so."""
        asked = whole_number(message.properties.header_map().get(CACHE_TTL))
        if asked is not None:
            return now + min(asked, MOST_CACHE_TTL_MS) / 1000
        return None if self.ttl is None else now + self.ttl

    def put(self, key: str, seen: Seen) -> None:
        if self.seen.pop(key, None) is None:
            self._budget.used += 1
        self.seen[key] = seen
        if len(self.seen) > self.size:
            self.forget_key(next(iter(self.seen)))
        self._cut(self.seen)

    def holds(self, message: Message) -> bool:
        key = message.repetition_key
        return key is None or key in self.seen

    def forget(self, message: Message) -> None:
        key = message.repetition_key
        found = None if key is None else self.seen.get(key)
        if key is not None and found is not None and found.by == id(message):
            self.forget_key(key)

    def forget_key(self, key: str) -> None:
        if self.seen.pop(key, None) is not None:
            self._budget.used -= 1

    def clear(self) -> None:
        self._budget.used -= len(self.seen)
        self.seen.clear()


class Present:
    """A message that is in a queue, with its place and the end of its time."""

    __slots__ = ("at", "by", "expires_at", "offset")

    def __init__(self, at: float, by: int, offset: int, expires_at: float | None) -> None:
        self.at = at
        self.by = by
        self.offset = offset
        self.expires_at = expires_at


class PresentKeys(Keys):
    """The values of the messages that are in a queue: ready, waiting for their time, or in the
    hands of a consumer. That one has left is noticed when it is next asked for."""

    __slots__ = ("_has_left", "_in_queue", "present")

    def __init__(
        self,
        has_left: Callable[[int], bool],
        in_queue: Callable[[], int],
        budget: IdBudget,
        whose: str,
    ) -> None:
        super().__init__(budget, whose)
        self.present: dict[str, Present] = {}
        self._has_left = has_left  # the message with that offset
        self._in_queue = in_queue  # how many messages

    def seen_at(self, message: Message, now: float) -> float | None:
        key = message.repetition_key
        found = None if key is None else self.present.get(key)
        if key is None or found is None:
            return None
        if found.expires_at is not None and found.expires_at <= now:
            return None  # it is there until it reaches the head, and counts no more
        if self._is_gone(found):
            self.forget_key(key)
            return None
        return found.at

    def remember(self, message: Message, now: float) -> None:
        key = message.repetition_key
        if key is not None:
            self.put(key, Present(now, id(message), ON_ITS_WAY, message.expires_at))

    def put(self, key: str, present: Present) -> None:
        if self.present.pop(key, None) is None:
            self._budget.used += 1
        self.present[key] = present
        if len(self.present) > 2 * self._in_queue() + SPARE_KEYS:
            self._sweep()
        self._cut(self.present)

    def arrived(self, entry: Entry) -> None:
        key = entry.message.repetition_key
        found = None if key is None else self.present.get(key)
        if found is not None and found.by == id(entry.message):
            found.offset, found.expires_at = entry.offset, entry.expires_at

    def holds(self, message: Message) -> bool:
        key = message.repetition_key
        return key is None or key in self.present

    def forget(self, message: Message) -> None:
        key = message.repetition_key
        found = None if key is None else self.present.get(key)
        if key is not None and found is not None and found.by == id(message):
            self.forget_key(key)

    def clear(self) -> None:
        self._budget.used -= len(self.present)
        self.present.clear()

    def _is_gone(self, present: Present) -> bool:
        return present.offset != ON_ITS_WAY and self._has_left(present.offset)

    def forget_key(self, key: str) -> None:
        if self.present.pop(key, None) is not None:
            self._budget.used -= 1

    def _sweep(self) -> None:
        before = len(self.present)
        self.present = {
            key: present for key, present in self.present.items() if not self._is_gone(present)
        }
        self._budget.used -= before - len(self.present)
