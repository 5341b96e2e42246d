"""The traffic of one queue: what came in, went out and was lost since the gateway started.

Cursors and queues add to plain integers, once for each run or batch. The first addition after a
look notes the queue as changed, so that a look at all queues costs as much as happened in them,
however many there are. Nothing here knows rates, time, or who looks.
"""

from __future__ import annotations


class Traffic:
    """The counters of one queue. Whoever adds to one calls `note` afterwards, unless `is_noted`."""

    __slots__ = (
        "_changed",
        "_told",
        "acknowledged",
        "dead_lettered",
        "delivered",
        "delivered_settled",
        "dropped",
        "empty_gets",
        "expired",
        "got",
        "got_settled",
        "is_noted",
        "name",
        "passed_on",
        "published",
        "redelivered",
        "vhost",
    )

    def __init__(self, vhost: str, name: str, changed: set[Traffic]) -> None:
        self.vhost = vhost
        self.name = name
        self.is_noted = False  # stands among those that changed since the last look
        self.published = 0  # messages that entered the queue, without those that were passed on
        self.passed_on = 0  # that entered and left at once, to a consumer that settles by taking
        # Handed out, the same message each time: to consumers, and by single gets. What is settled
        # by being taken has a count of its own.
        self.delivered = 0
        self.delivered_settled = 0
        self.got = 0
        self.got_settled = 0
        self.redelivered = 0  # of these, those that had been handed out before
        self.empty_gets = 0  # single gets that found nothing
        self.acknowledged = 0
        self.expired = 0
        self.dead_lettered = 0
        self.dropped = 0  # messages that left for any reason but a consumer, and went nowhere
        self._changed = changed
        self._told = 0  # of those passed on, as many are in the gateway's own count

    def note(self) -> None:
        """Puts the queue among those that changed since the last look."""
        self.is_noted = True
        self._changed.add(self)

    def untold(self) -> int:
        """Takes the messages that were passed on since the last time. They are not in the gateway's
        own count of deliveries, as adding to two counters for each message would cost twice."""
        count = self.passed_on - self._told
        self._told = self.passed_on
        return count

    def count_passed_on(self, count: int) -> None:
        """Counts messages that a consumer took as they came, past the queue."""
        self.passed_on += count
        if not self.is_noted:
            self.note()

    def count_handed_out(self, count: int, *, is_settled: bool, is_got: bool) -> None:
        """Counts messages that a consumer took, or a single get."""
        if is_got:
            if is_settled:
                self.got_settled += count
            else:
                self.got += count
        elif is_settled:
            self.delivered_settled += count
        else:
            self.delivered += count
        if not self.is_noted:
            self.note()

    def count_published(self, count: int) -> None:
        """Counts messages that entered the queue."""
        self.published += count
        if not self.is_noted:
            self.note()

    def count_acknowledged(self, count: int) -> None:
        """Counts deliveries that consumers accepted."""
        self.acknowledged += count
        if not self.is_noted:
            self.note()

    def count_empty_get(self) -> None:
        """Counts a single get that found nothing."""
        self.empty_gets += 1
        if not self.is_noted:
            self.note()

    def count_lost(self, reason: str, *, is_dead_letter: bool) -> None:
        """Counts a message that left the queue unconsumed, as a dead letter or for good."""
        if reason == "expired":
            self.expired += 1
        if is_dead_letter:
            self.dead_lettered += 1
        else:
            self.dropped += 1
        if not self.is_noted:
            self.note()
