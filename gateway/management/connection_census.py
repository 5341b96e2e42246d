"""The census of connections: how many connections, channels and consumers each virtual host has.

Counting them means asking each connection. While somebody asks for the numbers, they are counted
again every few seconds in slices of the loop, so that an answer has them at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from gateway.connections import Connections, OpenConnection
from gateway.management.loop_share import LoopShare

logger = logging.getLogger(__name__)

COUNT_SECONDS: Final = 5.0  # between two counts, as in RabbitMQ
REST_FACTOR: Final = 20.0  # times what a count took, where that is longer
FORGET_SECONDS: Final = 90.0  # after the last question: monitors ask every minute


@dataclass(slots=True)
class Census:
    """The numbers of one virtual host."""

    connections: int = 0
    channels: int = 0
    consumers: int = 0


@dataclass(slots=True)
class ConnectionCensus:
    """Counts while somebody asks."""

    connections: Connections
    share: LoopShare
    _found: dict[str, Census] = field(default_factory=dict)
    _asked_at: float = 0.0
    _counting: asyncio.Task[None] | None = None

    async def of(self, vhosts: Iterable[str]) -> Census:
        """Returns the numbers of virtual hosts together, a few seconds old at most."""
        self._asked_at = monotonic()
        if self._counting is None or self._counting.done():
            self._found = await self._counted()
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._keep_counting())
        total = Census()
        for name in vhosts:
            found = self._found.get(name, Census())
            total.connections += found.connections
            total.channels += found.channels
            total.consumers += found.consumers
        return total

    async def close(self) -> None:
        """Ends the counting."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def _keep_counting(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(COUNT_SECONDS, REST_FACTOR * took))
            if monotonic() - self._asked_at > FORGET_SECONDS:
                return
            began = monotonic()
            try:
                self._found = await self._counted()
            except Exception:
                logger.exception("a bug: connections could not be counted")
            took = monotonic() - began

    async def _counted(self) -> dict[str, Census]:
        found: dict[str, Census] = {}

        def count(opened: OpenConnection) -> None:
            report = opened.report()
            if report is not None:
                census = found.setdefault(report.vhost, Census())
                census.connections += 1
                census.channels += len(report.channels)
                census.consumers += sum(len(each.consumers) for each in report.channels)

        await self.share.all(self.connections.all(), count)
        return found
