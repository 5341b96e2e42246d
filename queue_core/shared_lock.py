"""A lock that many may hold together, or one alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedLock:
    """Whoever comes shared waits while somebody is in alone or waits to be, so that nobody waits
    for ever."""

    def __init__(self) -> None:
        self._entry = asyncio.Lock()  # held by who is in alone, or waits for the others to leave
        self._sharers = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._entry:
            self._sharers += 1
            self._is_empty.clear()
        try:
            yield
        finally:
            self._sharers -= 1
            if not self._sharers:
                self._is_empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._entry:
            await self._is_empty.wait()
            yield
