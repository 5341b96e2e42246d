"""The part that all clients of a fault test share: a life of their own that comes back by itself.

Answers for connecting again whatever happens, until told to stop. It must not know a protocol.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

from tests.faults.history import History, Violation, check
from tests.support.gateway_process import GatewayProcess
from tests.support.health import until_empty
from tests.support.until import PATIENCE_SECONDS

RECONNECT_SECONDS: Final = 0.2
STOP_SECONDS: Final = 10


class Actor(ABC):
    """One client with many lives, each on a connection of its own."""

    # What ends a life and is to be expected when servers die; anything else fails the test.
    EXPECTED: tuple[type[BaseException], ...] = (OSError,)

    def __init__(self, history: History, name: str) -> None:
        self.history = history
        self.name = name
        self.is_stopping = False
        self.lives = 0
        self._lives = count(1)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self.name)
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.history.fail(error)

    async def _run(self) -> None:
        while not self.is_stopping:
            self.lives = next(self._lives)
            try:
                await self.live(f"{self.name}#{self.lives}")
            except self.EXPECTED:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                await asyncio.sleep(RECONNECT_SECONDS)  # as clients do, not to knock all the time

    @abstractmethod
    async def live(self, connection: str) -> None:
        """One connection, from its first to its last moment; returns when asked to stop."""

    def ask_to_stop(self) -> None:
        """A publisher sends no more; a consumer goes away."""
        self.is_stopping = True

    async def stop(self) -> None:
        self.ask_to_stop()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        elif self._task.exception() is not None:
            raise AssertionError(f"{self.name} failed") from self._task.exception()

    @property
    def is_alive(self) -> bool:
        """On the connection that it had at first."""
        return self._task is not None and not self._task.done() and self.lives == 1


@asynccontextmanager
async def acting(*actors: Actor) -> AsyncIterator[None]:
    """All of them, for as long as the block takes."""
    for actor in actors:
        actor.start()
    try:
        yield
    finally:
        for actor in actors:
            actor.ask_to_stop()
        results = await asyncio.gather(*(a.stop() for a in actors), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def drained(
    gateway: GatewayProcess, *publishers: Actor, seconds: float = PATIENCE_SECONDS
) -> None:
    """Nobody sends any more, and the queues are empty. Not: all that was confirmed is known to be
    settled. The commit of a settlement may have been heard of by nobody."""
    for publisher in publishers:
        await publisher.stop()
    await until_empty(gateway, seconds)


def assert_promises_hold(history: History) -> None:
    violations: list[Violation] = check(history.events)
    shown = "\n".join(map(str, violations[:20]))
    assert not violations, f"{len(violations)} violations; {history.summary()}\n{shown}"
