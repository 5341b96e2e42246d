"""AMQP 0.9.1 clients of fault tests, on aiormq: a publisher with confirms, a consumer with acks.

A consumer learns that its acks are committed from tx.commit-ok; basic.ack has no answer.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import aiormq
import aiormq.exceptions
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage

from tests.faults.actors import Actor
from tests.faults.history import Confirmed, Delivered, Ended, History, Name, Sent, Settled
from tests.support.until import PATIENCE_SECONDS

PERSISTENT: Final = 2
LAST_CONFIRMS_SECONDS: Final = 8


class AmqpActor(Actor):
    EXPECTED = (
        OSError,
        RuntimeError,  # aiormq's, for an operation on a connection that was lost just before
        aiormq.exceptions.AMQPError,
        asyncio.CancelledError,  # aiormq's, for an operation during which it was lost
    )

    def __init__(
        self, history: History, name: str, url: Callable[[], str], queue: str, *, window: int = 50
    ) -> None:
        super().__init__(history, name)
        self.queue = queue
        self._url = url  # asked anew each time: a gateway may come back elsewhere
        self._window = window

    async def live(self, connection: str) -> None:
        url = self._url()
        opened = await asyncio.wait_for(aiormq.connect(url), PATIENCE_SECONDS)
        try:
            await self.work(opened, f"{connection}@{urlsplit(url).port}")
        except Exception as error:
            if type(error) is Exception:  # aiormq's, for an operation during which it was lost
                raise ConnectionError(connection) from error
            raise
        finally:
            await asyncio.gather(opened.close(timeout=1), return_exceptions=True)

    @abstractmethod
    async def work(self, opened: AbstractConnection, connection: str) -> None:
        """Publishes or consumes for as long as the connection lives."""


class AmqpPublisher(AmqpActor):
    """Sends numbered messages, `window` of them unconfirmed at a time. What was not confirmed when
    the connection broke is not sent again: each name is sent once."""

    def __init__(
        self,
        history: History,
        name: str,
        url: Callable[[], str],
        queue: str,
        *,
        window: int = 50,
        size: int = 100,
        exchange: str = "",
    ) -> None:
        super().__init__(history, name, url, queue, window=window)
        self._size = size
        self._exchange = exchange
        self._numbers = count(1)

    async def work(self, opened: AbstractConnection, connection: str) -> None:
        channel = await opened.channel()
        if not self._exchange:
            await channel.queue_declare(self.queue, durable=True)
        room = asyncio.Semaphore(self._window)
        closing = opened.closing
        open_publishes: set[asyncio.Task[None]] = set()
        try:
            while not self.is_stopping and not closing.done():
                await self._room(room, closing)
                task = asyncio.create_task(self._publish(channel, room))
                open_publishes.add(task)
                task.add_done_callback(open_publishes.discard)
            if open_publishes and not closing.done():
                await asyncio.wait(open_publishes, timeout=LAST_CONFIRMS_SECONDS)
        finally:
            for task in open_publishes:
                task.cancel()
            await asyncio.gather(*open_publishes, return_exceptions=True)

    async def _room(self, room: asyncio.Semaphore, closing: asyncio.Future[None]) -> None:
        taking = asyncio.ensure_future(room.acquire())
        both: set[asyncio.Future[Any]] = {taking, closing}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            taking.cancel()

    async def _publish(self, channel: AbstractChannel, room: asyncio.Semaphore) -> None:
        name = Name(self.queue, self.name, next(self._numbers))
        self.history.add(Sent(name))
        properties = aiormq.spec.Basic.Properties(delivery_mode=PERSISTENT)
        try:
            answer = await channel.basic_publish(
                name.encode(self._size),
                exchange=self._exchange,
                routing_key=self.queue,
                properties=properties,
            )
            if isinstance(answer, aiormq.spec.Basic.Ack):
                self.history.add(Confirmed(name))
        except self.EXPECTED:
            pass  # nobody knows what became of it
        finally:
            room.release()


class AmqpConsumer(AmqpActor):
    """Takes what comes and acknowledges it, several at a time. Its queue is also bound to the topic
    of the same name."""

    def __init__(
        self, history: History, name: str, url: Callable[[], str], queue: str, *, window: int = 50
    ) -> None:
        super().__init__(history, name, url, queue, window=window)
        self.is_consuming = asyncio.Event()

    async def work(self, opened: AbstractConnection, connection: str) -> None:
        channel = await opened.channel(publisher_confirms=False)
        await channel.queue_declare(self.queue, durable=True)
        await channel.queue_bind(self.queue, "amq.topic", routing_key=self.queue)
        await channel.basic_qos(prefetch_count=self._window)
        await channel.tx_select()
        inbox: asyncio.Queue[tuple[int, Name]] = asyncio.Queue()
        is_over = False

        async def on_message(message: DeliveredMessage) -> None:
            if not is_over:
                name = Name.decode(message.body)
                self.history.add(Delivered(name, connection, bool(message.redelivered)))
                inbox.put_nowait((message.delivery_tag or 0, name))

        await channel.basic_consume(self.queue, on_message)
        self.is_consuming.set()
        closing = opened.closing
        try:
            while not self.is_stopping and not closing.done():
                await self._settle(channel, await self._batch(inbox, closing))
        finally:
            is_over = True
            self.history.add(Ended(connection))

    async def _batch(
        self, inbox: asyncio.Queue[tuple[int, Name]], closing: asyncio.Future[None]
    ) -> list[tuple[int, Name]]:
        """All that is there; waits for the first, and looks up now and then."""
        getting = asyncio.ensure_future(inbox.get())
        both: set[asyncio.Future[Any]] = {getting, closing}
        await asyncio.wait(both, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
            await asyncio.gather(getting, return_exceptions=True)
            return []
        batch = [getting.result()]
        while not inbox.empty():
            batch.append(inbox.get_nowait())
        return batch

    async def _settle(self, channel: AbstractChannel, batch: list[tuple[int, Name]]) -> None:
        if not batch:
            return
        await channel.basic_ack(batch[-1][0], multiple=True)
        await channel.tx_commit()
        for _, name in batch:
            self.history.add(Settled(name))


class AmqpEcho(AmqpActor):
    """Sends to itself through a queue that lives in memory, one message at a time: traffic that
    needs no database."""

    def __init__(self, history: History, name: str, url: Callable[[], str]) -> None:
        super().__init__(history, name, url, f"echo-{name}")
        self.rounds = 0
        self._round = asyncio.Event()

    async def work(self, opened: AbstractConnection, connection: str) -> None:
        channel = await opened.channel()
        await channel.queue_declare(self.queue, exclusive=True)
        inbox: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_message(message: DeliveredMessage) -> None:
            inbox.put_nowait(message.body)

        await channel.basic_consume(self.queue, on_message, no_ack=True)
        while not self.is_stopping:
            await channel.basic_publish(b"echo", routing_key=self.queue)
            await asyncio.wait_for(inbox.get(), PATIENCE_SECONDS)
            self.rounds += 1
            self._round.set()

    async def goes_on(self, rounds: int = 20) -> None:
        """Waits for so many more rounds; fails when they do not come."""
        wanted = self.rounds + rounds
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.rounds < wanted:
                self._round.clear()
                await self._round.wait()
