"""Sessions for tests: a manager with a clock in the test's hand, and plain owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from queue_core.access.auth import Identity
from queue_core.commit.unit import Record
from queue_core.commit.waiter import Waiter
from queue_core.delivery.consumer import ConsumerSpec
from queue_core.errors import CoreError
from queue_core.manager import Manager, ManagerSettings
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED
from queue_core.sessions.session import Session, SessionSettings
from queue_core.vhost import Vhost
from tests.support.clock import Clock
from tests.support.inbox import Inbox
from tests.support.until import PATIENCE_SECONDS

ANONYMOUS = Identity("anonymous", is_anonymous=True, is_built_in=True)


class Owner:
    """A connection that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_takeover(self) -> None:
        self.told.append("takeover")

    def on_shared_changed(self) -> None:
        self.told.append("shared")

    def on_ended(self, reason: CoreError) -> None:
        self.told.append("ended")


class World:
    """One gateway's core on a database, with vhost `/`."""

    def __init__(self, manager: Manager, clock: Clock) -> None:
        self.manager = manager
        self.clock = clock
        self.sessions = manager.sessions
        self.vhost: Vhost = manager.vhosts["/"]

    async def open(
        self,
        client_id: str = "sensor",
        *,
        expiry: float | None = 3600,
        clean: bool = False,
        user: str | None = None,
        owner: Owner | None = None,
    ) -> Session:
        return await self.sessions.open(
            self.vhost,
            client_id,
            clean_start=clean,
            expiry=expiry,
            user=user,
            protocol="MQTT 5",
            owner=owner or Owner(),
        )

    async def publish(
        self, topic: str, body: bytes, *, durable: bool = True, records: tuple[Record, ...] = ()
    ) -> None:
        """Returns when it is committed wherever it goes."""
        message = Message(body, topic=topic, durable=durable)
        self.vhost.publish(message, None, 0, records)
        await self.manager.writer.flushed()

    async def commit(self, records: tuple[Record, ...]) -> None:
        waiter = Waiter()
        self.vhost.settle([], ACCEPTED, waiter, 0, records)
        await waiter.done

    async def listen(self, queue: str, *, auto_settle: bool = False) -> Inbox:
        inbox = Inbox()
        consumer = await self.vhost.consume(queue, inbox, ConsumerSpec(auto_settle=auto_settle))
        consumer.wake()
        return inbox

    async def pass_time(self, seconds: float) -> None:
        """Lets time pass; what is due by then is done when this returns."""
        self.clock.now += seconds
        self.manager.agenda.run_due(self.clock.now)
        await self.idle()

    async def idle(self) -> None:
        """Returns when nothing that was started is still going on."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.manager.sessions.close()
            while tasks := set(self.manager._database.definitions._tasks):
                await asyncio.wait(tasks)
            await self.manager.writer.flushed()


@asynccontextmanager
async def world(
    url: str, clock: Clock | None = None, settings: SessionSettings | None = None
) -> AsyncIterator[World]:
    """Left without a goodbye to its sessions, as a crash would leave them."""
    clock = clock or Clock()
    wanted = ManagerSettings(sessions=settings or SessionSettings())
    manager = await Manager.open(url, settings=wanted, clock=clock)
    try:
        yield World(manager, clock)
    finally:
        await manager.close()
