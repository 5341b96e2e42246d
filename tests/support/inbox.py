"""A consumer of the core that keeps what it gets, for the test to look at."""

from __future__ import annotations

import asyncio

from queue_core.delivery.consumer import Consumer, Delivery
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import Verdict
from queue_core.vhost import Vhost
from tests.support.until import until_signalled


class Inbox:
    """A sink that keeps what it gets, or settles it at once."""

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict
        self.deliveries: list[Delivery] = []
        self.direct: list[Message] = []
        self.arrived: list[bytes] = []  # bodies in the order of their coming, either way
        self.cancelled: CoreError | None = None
        self._changed = asyncio.Event()
        self.vhost: Vhost | None = None

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries
        self.arrived += [delivery.message.body for delivery in deliveries]
        self._changed.set()
        if self.verdict is not None:
            assert self.vhost is not None
            self.vhost.settle(deliveries, self.verdict)

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        self.direct.append(message)
        self.arrived.append(message.body)
        self._changed.set()

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.cancelled = reason
        self._changed.set()

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.message.body for delivery in self.deliveries]

    @property
    def offsets(self) -> list[int]:
        return [delivery.offset for delivery in self.deliveries]

    async def has(self, count: int) -> list[Delivery]:
        await until_signalled(lambda: len(self.deliveries) >= count, self._changed)
        return self.deliveries

    async def has_direct(self, count: int) -> list[Message]:
        await until_signalled(lambda: len(self.direct) >= count, self._changed)
        return self.direct

    async def has_bodies(self, count: int) -> list[bytes]:
        """Waits for so many messages, however they come; all that have come."""
        await until_signalled(lambda: len(self.arrived) >= count, self._changed)
        return self.arrived

    async def is_cancelled(self) -> None:
        await until_signalled(lambda: self.cancelled is not None, self._changed)

    def take(self) -> list[Delivery]:
        """Returns the deliveries that have come, and forgets them."""
        taken, self.deliveries = self.deliveries, []
        return taken
