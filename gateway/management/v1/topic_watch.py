"""Watches the topics of virtual hosts for as long as somebody looks, and not a moment longer.

A watch is a memory of the topic space, as exchanges have that remember their last messages: it
stands at the end of each route, takes note of each message and keeps none, and no message counts as
routed because of it. Messages in a row are taken one by one meanwhile, so under load a watch looks
at one second of five only. Without a watch nothing of this is on the way of any message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.management.v1.topic_tree import TopicTree
from queue_core.message.message import TOPIC_EXCHANGE, Message
from queue_core.queues.deduplication_by_message_id import Repetitions
from queue_core.queues.exchange_state_queues import LiveMemory
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import TOPIC_SPACE

if TYPE_CHECKING:
    from queue_core.queues.queue import Appends
    from queue_core.vhost import Vhost

QUEUE_NAME: Final = "$live/topics"
LOOK_SECONDS: Final = 30.0  # that a watch goes on after the last look
TICK_SECONDS: Final = 1.0
MOST_MESSAGES_PER_TICK: Final = 20_000  # beyond which it looks at some seconds only
REST_TICKS: Final = 4


class NothingSeen(Repetitions):
    """The record of a watch, which knows no message again. With it, a message that only the watch
    took counts as one that had nowhere to go."""

    __slots__ = ()

    def seen_at(self, message: Message, now: float) -> float | None:
        return None

    def remember(self, message: Message, now: float) -> None:
        """Records nothing."""

    def holds(self, message: Message) -> bool:
        return True

    def forget(self, message: Message) -> None:
        """Has nothing to forget."""

    def clear(self) -> None:
        """Has nothing to forget."""


class WatchMemory(LiveMemory):
    """A memory of the topic space, at the end of each route through it, that takes note of messages
    and keeps none."""

    def __init__(self, vhost: Vhost, note: Callable[[Message], None]) -> None:
        super().__init__(QueueSpec.parse(QUEUE_NAME, durable=False), vhost.context)
        self.window = NothingSeen()
        self._note = note

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        self._note(message)
        return True


class TopicWatch:
    """The tree of one virtual host's topics while somebody looks at it."""

    def __init__(self, vhost: Vhost, clock: Callable[[], float]) -> None:
        self.tree = TopicTree(clock())
        self.is_sampled = False  # it has rested since it began
        self._vhost = vhost
        self._clock = clock
        self._memory = WatchMemory(vhost, self._note)
        self._is_bound = False
        self._seen_before = 0
        self._rest = 0
        self.looked_at = monotonic()
        self._bind()

    def _note(self, message: Message) -> None:
        if message.exchange == TOPIC_EXCHANGE:
            self.tree.add(message.topic, message.body, self._clock())

    def _bind(self) -> None:
        if not self._is_bound:
            self._is_bound = True
            self._vhost.router.remember_by(TOPIC_SPACE, self._memory)

    def end(self) -> None:
        """Takes the watch off the way of messages."""
        if self._is_bound:
            self._is_bound = False
            self._vhost.router.forget_memory(TOPIC_SPACE)

    def tick(self) -> None:
        """Rests for some seconds after one with very many messages."""
        seen = self.tree.messages - self._seen_before
        self._seen_before = self.tree.messages
        if self._rest:
            self._rest -= 1
            if not self._rest:
                self._bind()
        elif seen > MOST_MESSAGES_PER_TICK:
            self.is_sampled = True
            self._rest = REST_TICKS
            self.end()

    @property
    def is_over(self) -> bool:
        return monotonic() - self.looked_at > LOOK_SECONDS


class TopicWatches:
    """The watches of all virtual hosts. There is none, and no task, while nobody looks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._watches: dict[Vhost, TopicWatch] = {}
        self._ticking: asyncio.Task[None] | None = None

    def look(self, vhost: Vhost) -> TopicWatch:
        """Returns the watch of a virtual host, which begins with the first look."""
        watch = self._watches.get(vhost)
        if watch is None:
            watch = self._watches[vhost] = TopicWatch(vhost, self._clock)
        watch.looked_at = monotonic()
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="topic watches")
        return watch

    async def _tick(self) -> None:
        while self._watches:
            await asyncio.sleep(TICK_SECONDS)
            for vhost, watch in list(self._watches.items()):
                if watch.is_over:
                    watch.end()
                    del self._watches[vhost]
                else:
                    watch.tick()
        self._ticking = None

    def close(self) -> None:
        """Ends all watches."""
        for watch in self._watches.values():
            watch.end()
        self._watches.clear()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
