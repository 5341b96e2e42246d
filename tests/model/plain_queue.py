"""A queue in as few words as possible: a list, and what may be done to it.

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
    due_at: float | None = None  # when its holder has had it for too long
    is_promised: bool = False  # somebody with credit gets it before limits are looked at


@dataclass
class PlainQueue:
    ttl: float | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "drop-head"
    delivery_limit: int | None = None
    ack_timeout: float | None = None
    window: float | None = None  # in which a message id is a repetition
    has_priorities: bool = False
    has_dead_letters: bool = True
    items: list[Item] = field(default_factory=list)
    dead: list[tuple[bytes, str]] = field(default_factory=list)
    doubtful: list[bytes] = field(default_factory=list)  # expired or purged, whichever was first
    seen: dict[str, float] = field(default_factory=dict)
    placed: int = 0

    # --- what is ready, in order

    def ready(self, now: float) -> list[Item]:
        waiting = [
            item
            for item in self.items
            if item.holder is None and item.not_before <= now and not self._is_expired(item, now)
        ]
        return self._in_order(waiting)

    def _in_order(self, items: list[Item]) -> list[Item]:
        if self.has_priorities:
            return sorted(items, key=lambda item: (-item.priority, item.place))
        return sorted(items, key=lambda item: item.place)

    @staticmethod
    def _is_expired(item: Item, now: float) -> bool:
        return item.expires_at is not None and item.expires_at <= now

    def expired(self, now: float) -> list[Item]:
        return [i for i in self.items if i.holder is None and self._is_expired(i, now)]

    def expired_at_the_head(self, now: float) -> int:
        """How many are gone, and not only not handed out any more: they stood first."""
        count = 0
        for item in self._in_order([item for item in self.items if item.holder is None]):
            if not self._is_expired(item, now):
                break
            count += item.not_before <= now  # what waits for its time may stand aside meanwhile
        return count

    # --- limits

    @property
    def is_limited(self) -> bool:
        return self.max_length is not None or self.max_bytes is not None

    @property
    def drops(self) -> bool:
        return self.is_limited and self.overflow == "drop-head"

    def _waiting(self) -> list[Item]:
        return [item for item in self.items if item.holder is None and not item.is_promised]

    def is_full(self) -> bool:
        waiting = self._waiting()
        if self.max_length is not None and len(waiting) >= self.max_length:
            return True
        return self.max_bytes is not None and sum(len(i.body) for i in waiting) >= self.max_bytes

    def _is_over(self) -> bool:
        waiting = self._waiting()
        if self.max_length is not None and len(waiting) > self.max_length:
            return True
        return self.max_bytes is not None and sum(len(i.body) for i in waiting) > self.max_bytes

    def make_fit(self, room: int, now: float) -> None:
        """Consumers with room have their share; then the first go, until the rest fits."""
        if not self.drops:
            return
        for item in self.ready(now)[:room]:
            item.is_promised = True
        while self._is_over():
            self.bury(next(i for i in self.ready(now) if not i.is_promised), "maxlen")

    # --- what is done to it

    def is_repetition(self, message_id: str | None, now: float) -> bool:
        if self.window is None or message_id is None:
            return False
        seen_at = self.seen.get(message_id)
        return seen_at is not None and seen_at > now - self.window

    def publish(
        self,
        body: bytes,
        now: float,
        *,
        priority: int = 0,
        lifetime: float | None = None,
        delay: float = 0.0,
        message_id: str | None = None,
    ) -> bool:
        """False: it is full, and refuses it."""
        if self.is_repetition(message_id, now):
            return True
        if self.overflow != "drop-head" and self.is_full():
            if self.overflow == "reject-publish-dlx":
                self._die(body, "maxlen")
            return False
        if message_id is not None:
            self.seen[message_id] = now
        # the queue's time to live begins when the message is due, its own when it is published
        lives = ((delay, self.ttl), (0.0, lifetime))
        ends = [now + before + seconds for before, seconds in lives if seconds is not None]
        item = Item(body, self.placed, priority, min(ends, default=None), now + delay)
        self.placed += 1
        self.items.append(item)
        return True

    def hand_over(self, item: Item, holder: object, now: float) -> None:
        item.holder = holder
        item.is_promised = False
        item.was_handed_out = item.was_handed_out_now = True
        item.due_at = None if self.ack_timeout is None else now + self.ack_timeout

    def bury(self, item: Item, reason: str) -> None:
        self.items.remove(item)
        self._die(item.body, reason)

    def _die(self, body: bytes, reason: str) -> None:
        if self.has_dead_letters:
            self.dead.append((body, reason))

    def accept(self, item: Item) -> None:
        self.items.remove(item)

    def release(self, item: Item, until: float = 0.0) -> None:
        item.holder = None
        item.not_before = until

    def fail(self, item: Item, until: float = 0.0) -> None:
        item.failures += 1
        item.holder = None
        item.not_before = until
        if self.delivery_limit is not None and item.failures > self.delivery_limit:
            self.bury(item, "delivery_limit")

    def purge(self, now: float) -> int:
        waiting = [item for item in self.items if item.holder is None]
        for item in waiting:
            if self._is_expired(item, now):
                self.doubtful.append(item.body)
            self.items.remove(item)
        return len(waiting)

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
