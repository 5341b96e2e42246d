"""Browsing: a receiver with distribution mode `copy` sees what a queue holds, and takes nothing.

A link reads from offset to offset in small lists, as its credit allows. When it has seen all it
looks again from time to time, for as long as the receiver has credit and does not drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocols.amqp10.addressing.nodes import Supply
from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import Attach
from protocols.amqp10.errors import answer
from protocols.amqp10.links.sending_link import SendingLink
from protocols.amqp10.wire.delivery_sections import header_of, whole
from queue_core.errors import CoreError
from queue_core.message.message import Message

if TYPE_CHECKING:
    from protocols.amqp10.client import Client

BATCH_MESSAGES: Final = 64  # read from the queue at once
LOOK_AGAIN_SECONDS: Final = 0.5  # after a look that found nothing new


class BrowsingLink(SendingLink):
    """A link that sends copies of what a queue holds."""

    def __init__(
        self,
        client: Client,
        asked: Attach,
        supply: Supply,
        test: Callable[[Message], bool] | None,
    ) -> None:
        super().__init__(client, asked, supply, test)
        self._offset = 0
        self._flow = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def on_flow(self) -> None:
        self._flow.set()

    async def _run(self) -> None:
        try:
            while self.is_open:
                await self._flow.wait()
                self._flow.clear()
                await self._browse()
        except CoreError as error:
            if self.is_open:
                said = answer(error)
                self.client.fail_link(self.handle, said.condition, said.text)

    async def _browse(self) -> None:
        while self.is_open and engine.credit_of(self.handle) > 0 and not self.client.is_blocked:
            limit = min(BATCH_MESSAGES, engine.credit_of(self.handle))
            entries = await self._vhost.browse(
                self.supply.queue, self._offset, limit, self.client.terms.owner
            )
            if self._task.cancelled():
                return
            for entry in entries:
                self._offset = entry.offset + 1
                self._send(entry.message)
            self.client.wake()
            if not entries:
                if engine.is_draining(self.handle):
                    self._drain()
                else:
                    asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, self._flow.set)
                return

    def _send(self, message: Message) -> None:
        if self._test is not None and not self._test(message):
            return
        header = header_of(message, self._clock(), True, 0)
        data = whole(message, header, None, self._vhost.queues)
        if self._max_size and len(data) > self._max_size:
            return
        self._next += 1
        if self._frame and len(data) > self._frame:
            self.client.echoing.count_frames(self.session)
        engine.settle(engine.send(self.handle, self._next, data))

    def on_settled(self) -> None:
        """Does nothing: the outcome of a copy has no effect."""

    def pause(self) -> None:
        """Does nothing: `_browse` itself looks whether the socket is full."""

    def resume(self) -> None:
        self._flow.set()

    def close(self, *, is_lost: bool, is_closed: bool = True) -> None:
        self.is_open = False
        self._task.cancel()
