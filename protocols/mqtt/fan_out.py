"""Asynchronous fan-out: workers hand messages to live subscribers, outside the publisher's turn.

Only what ends in memory goes through here: durable queues are given their message at once, and the
publisher hears when it is committed. A publisher keeps its order, because all it publishes goes
through one worker; a worker that is behind makes its publishers wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from typing import TYPE_CHECKING, Final

from queue_core.queues import Appends, EphemeralQueue

if TYPE_CHECKING:
    from queue_core.message import Message
    from queue_core.router import Match, Route
    from queue_core.vhost import Queue

log = logging.getLogger(__name__)

MOST_MESSAGES: Final = 10_000  # that wait for one worker
MOST_BYTES: Final = 16 * 1024 * 1024
TURN: Final = 64  # messages handed over before others get their turn


class Worker:
    """Hands over in order. Bounded: whoever fills it waits for room."""

    def __init__(self) -> None:
        self._work: deque[tuple[Message, tuple[Match[Queue], ...]]] = deque()
        self._bytes = 0
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_full(self) -> bool:
        return len(self._work) >= MOST_MESSAGES or self._bytes >= MOST_BYTES

    def put(self, message: Message, matches: tuple[Match[Queue], ...]) -> None:
        self._work.append((message, matches))
        self._bytes += message.size()
        self._has_work.set()
        if self.is_full:
            self._has_room.clear()

    async def room(self) -> None:
        await self._has_room.wait()

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            self._hand_over_some()
            if not self._work:
                self._has_work.clear()
            if not self.is_full:
                self._has_room.set()
            await asyncio.sleep(0)

    def _hand_over_some(self) -> None:
        appends: Appends = []
        for _ in range(min(TURN, len(self._work))):
            message, matches = self._work.popleft()
            self._bytes -= message.size()
            for queue, options in matches:
                queue.take(message, options, appends)  # in memory: appends nothing


class FanOut:
    def __init__(self, workers: int) -> None:
        count = workers or os.cpu_count() or 1
        self._workers = [Worker() for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(worker.run()) for worker in self._workers]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take(self, message: Message, route: Route[Queue], publisher: str) -> Route[Queue]:
        """Takes what ends in memory; what is left of the route is the caller's."""
        live = tuple(match for match in route if isinstance(match.queue, EphemeralQueue))
        if live:
            self.worker(publisher).put(message, live)
        return tuple(match for match in route if not isinstance(match.queue, EphemeralQueue))

    def worker(self, publisher: str) -> Worker:
        return self._workers[hash(publisher) % len(self._workers)]
