"""What is left to do for packets that act already: one after another, in the order they came.

Knows neither packets nor sockets; how much may gather before a client waits is its connection's to
judge, by `MOST_FOLLOW_UPS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

MOST_FOLLOW_UPS: Final = 64  # that a client has going, before its subscriptions wait, too

Work = Coroutine[Any, Any, None]


class FollowUps:
    """Of one connection. Work that is added handles its own errors."""

    __slots__ = ("_spawn", "_waiter", "_works")

    def __init__(self, spawn: Callable[[Work], None]) -> None:
        self._spawn = spawn
        self._works: list[Work] = []  # the one under way first
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        self._works.append(work)
        if len(self._works) == 1:
            self._spawn(self._run())

    async def _run(self) -> None:
        while self._works:
            await self._works[0]
            del self._works[0]
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def done(self) -> None:
        """Returns when nothing is left to do."""
        if self._works:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
