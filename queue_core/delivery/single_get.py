"""The sink of a single get: takes one message, or hears that none is ready."""

from __future__ import annotations

import asyncio

from queue_core.delivery.consumer import Consumer, Delivery, Entry
from queue_core.delivery.cursor import settle
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import RELEASED


class SingleGet:
    """Settles nothing itself: `answer` is the delivery, or None where nothing was ready."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        if self.answer.done():  # whoever asked has gone meanwhile
            settle(deliveries, RELEASED)
        else:
            self.answer.set_result(deliveries[0])

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        entry = Entry(message, options)
        self.answer.set_result(Delivery(entry, message, entry.offset, consumer))

    def on_drained(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        if not self.answer.done():
            self.answer.set_exception(reason)
