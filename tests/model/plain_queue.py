"""What a queue is, in as few words as possible: a list, and what may be done to it.

Knows nothing of PostgreSQL, offsets, leases or memory. The manager must behave like this, whatever
happens to its process in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Item:
    """A message in a queue."""

    body: bytes
    place: int
    priority: int = 0
    expires_at: float | None = None
    not_before: float = 0.0
    failures: int = 0
    was_handed_out: bool = False
    was_handed_out_now: bool = False  # since the last start
    is_suspect: bool = False  # a crash came between: it may have been in somebody's hands
    was_lost: bool = False  # it was
    holder: object = None  # who has it; None: it is in the queue


@dataclass
class PlainQueue:
    ttl: float | None = None
    max_length: int | None = None  # of a queue that refuses what does not fit
    delivery_limit: int | None = None
    has_priorities: bool = False
    items: list[Item] = field(default_factory=list)
    dead: list[tuple[bytes, str]] = field(default_factory=list)
    doubtful: list[bytes] = field(default_factory=list)  # expired or purged, whichever was first
    placed: int = 0

    # --- what is ready, in order

    def ready(self, now: float) -> list[Item]:
        waiting = [
            item
            for item in self.items
            if item.holder is None and item.not_before <= now and not self._is_expired(item, now)
        ]
        if self.has_priorities:
            waiting.sort(key=lambda item: (-item.priority, item.place))
        else:
            waiting.sort(key=lambda item: item.place)
        return waiting

    @staticmethod
    def _is_expired(item: Item, now: float) -> bool:
        return item.expires_at is not None and item.expires_at <= now

    def expired(self, now: float) -> list[Item]:
        return [i for i in self.items if i.holder is None and self._is_expired(i, now)]

    # --- what is done to it

    def room(self) -> int:
        """How many more it takes."""
        if self.max_length is None:
            return 1_000_000
        return max(0, self.max_length - sum(item.holder is None for item in self.items))

    def publish(self, body: bytes, priority: int, lifetime: float | None, now: float) -> None:
        ends = [now + seconds for seconds in (self.ttl, lifetime) if seconds is not None]
        item = Item(body, self.placed, priority, min(ends, default=None))
        self.placed += 1
        self.items.append(item)

    def bury(self, item: Item, reason: str) -> None:
        self.items.remove(item)
        self.dead.append((item.body, reason))

    def accept(self, item: Item) -> None:
        self.items.remove(item)

    def release(self, item: Item) -> None:
        item.holder = None

    def fail(self, item: Item, until: float) -> None:
        item.failures += 1
        item.holder = None
        item.not_before = until
        if self.delivery_limit is not None and item.failures > self.delivery_limit:
            self.bury(item, "delivery_limit")

    def purge(self, now: float) -> None:
        for item in [item for item in self.items if item.holder is None]:
            if self._is_expired(item, now):
                self.doubtful.append(item.body)
            self.items.remove(item)

    def crash(self) -> None:
        """All that anybody had comes back; of what nobody had, nobody can be sure."""
        for item in self.items:
            item.holder = None
            item.is_suspect = True
            item.was_lost = item.was_lost or item.was_handed_out_now
            item.was_handed_out_now = False

    def restart(self) -> None:
        for item in self.items:
            item.was_handed_out_now = False
