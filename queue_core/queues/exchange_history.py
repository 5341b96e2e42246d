"""The last messages that went through an exchange, in memory.

Bounded by their number and by their bytes. All histories share one budget, each an equal part of
it: nobody fills the gateway's memory by declaring exchanges.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from queue_core.delivery.consumer import ENTRY_OVERHEAD_BYTES
from queue_core.message.message import Message
from queue_core.queues.deduplication_by_message_id import Repetitions

MOST_HISTORY_BYTES: Final = 64 * 1024 * 1024  # of all exchanges together
MOST_OF_ONE_BYTES: Final = 8 * 1024 * 1024  # of one exchange, however few there are


class HistoryBudget:
    """The budget bounds the bytes that all histories hold together."""

    __slots__ = ("_members", "limit", "used")

    def __init__(self, limit: int = MOST_HISTORY_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._members: dict[RecentMessages, None] = {}

    @property
    def share(self) -> int:
        """Gives the bytes that one history may hold."""
        return min(MOST_OF_ONE_BYTES, self.limit // max(1, len(self._members)))

    def join(self, member: RecentMessages) -> None:
        """Admits one more history: the others may hold less from now on."""
        self._members[member] = None
        for each in self._members:
            each.cut()

    def leave(self, member: RecentMessages) -> None:
        self._members.pop(member, None)


class RecentMessages(Repetitions):
    """The messages of one history. No message is a repetition to a history; it hears of messages,
    and of those that were not stored after all, as records of repetitions do."""

    __slots__ = ("_budget", "_bytes", "_length", "_messages")

    def __init__(self, length: int, budget: HistoryBudget) -> None:
        self._length = length
        self._messages: deque[tuple[int, Message]] = deque()  # with the original's identity
        self._bytes = 0
        self._budget = budget
        budget.join(self)

    def seen_at(self, message: Message, now: float) -> float | None:
        return None

    def remember(self, message: Message, now: float) -> None:
        self._messages.append((id(message), message.bare()))
        self._count(_size(message))
        if len(self._messages) > self._length:
            self._drop_oldest()
        self.cut()

    def holds(self, message: Message) -> bool:
        return True

    def forget(self, message: Message) -> None:
        for index, (identity, kept) in enumerate(self._messages):
            if identity == id(message) and kept.body is message.body:
                del self._messages[index]
                self._count(-_size(message))
                return

    def clear(self) -> None:
        self._messages.clear()
        self._count(-self._bytes)
        self._budget.leave(self)

    def replay(self, now: float) -> list[Message]:
        """Gives the messages, oldest first, without those whose time to live is over."""
        return [
            message.bare()
            for _, message in self._messages
            if message.expires_at is None or message.expires_at > now
        ]

    def cut(self) -> None:
        """Forgets the oldest until the rest fits into this history's share."""
        share = self._budget.share
        while self._bytes > share:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, message = self._messages.popleft()
        self._count(-_size(message))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._budget.used += size


def _size(message: Message) -> int:
    return message.size() + ENTRY_OVERHEAD_BYTES
