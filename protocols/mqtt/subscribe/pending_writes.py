"""Finishes packets that act already, one after another, in the order they came.

`may_overtake` says which packets may come before all of it is done. No socket is known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from protocols.mqtt.wire.property_set import PacketType

MOST_PENDING_WRITES: Final = 64  # a client with more has its subscriptions wait, too
SUBSCRIBING_PACKETS: Final = frozenset((PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE))

Work = Coroutine[Any, Any, None]


class PendingWrites:
    """The follow-ups of one connection. Work that is added handles its own errors."""

    __slots__ = ("_spawn", "_waiter", "_works")

    def __init__(self, spawn: Callable[[Work], object]) -> None:
        self._spawn = spawn
        self._works: list[Work] = []  # the one under way first
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._works)

    def may_overtake(self, head: int) -> bool:
        """Tells whether a packet with that first byte may act before the follow-ups are done:
        subscriptions act in the order in which they arrive, whatever the disk does meanwhile."""
        return head >> 4 in SUBSCRIBING_PACKETS and len(self._works) < MOST_PENDING_WRITES

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
