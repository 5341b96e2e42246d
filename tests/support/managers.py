"""A manager on a real database, with a hand on its clock and its life: opened, closed, crashed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import asyncpg

from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.errors import CoreError
from queue_core.manager import Manager, ManagerSettings
from queue_core.message.message import Form, Message
from queue_core.outcomes import ACCEPTED, REJECTED, Published, Verdict
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.write.segments import SegmentLimits
from queue_core.vhost import Vhost
from tests.support.clock import Clock
from tests.support.inbox import Inbox
from tests.support.until import PATIENCE_SECONDS, until, until_signalled, until_true

KINDS = ["classic", "ephemeral"]  # of queues with competing consumers
BRISK = ManagerSettings(poll_interval=0.01, upkeep_interval=3600.0)
NO_SESSION_LEFT = """
    SELECT count(*) = 0 FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'howdah gateway%'
"""


class Told:
    """A publisher that remembers what it was told, and when all of it was."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.refused: list[tuple[int, CoreError]] = []
        self._changed = asyncio.Event()

    def on_committed(self, tokens: list[int]) -> None:
        self.committed += tokens
        self._changed.set()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        self.refused += [(token, error) for token in tokens]
        self._changed.set()

    async def answers(self, count: int) -> None:
        """Returns when so many publishes have been answered, either way."""
        await until_signalled(
            lambda: len(self.committed) + len(self.refused) >= count, self._changed
        )


@dataclass
class House:
    """One database and the manager that has it now."""

    url: str
    clock: Clock = field(default_factory=Clock)
    settings: ManagerSettings = BRISK
    forms: Sequence[Form] = ()
    manager: Manager = field(init=False)
    vhost: Vhost = field(init=False)
    is_open: bool = False

    async def open(self) -> House:
        self.manager = await Manager.open(
            self.url, forms=self.forms, settings=self.settings, clock=self.clock
        )
        self.vhost = await self.manager.vhost("/")
        self.is_open = True
        return self

    async def close(self) -> None:
        """In order; a manager that cannot close is ended, so that a failed test does not hang."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                await self.manager.close()
        except TimeoutError:
            await self.crash()
            raise

    async def reopen(self) -> None:
        """An orderly restart."""
        await self.close()
        await self.open()

    async def crash(self) -> None:
        """The process is gone, as far as the database can tell: no last word, no last write."""
        manager = self.manager
        self.is_open = False
        tasks = [
            *manager._tasks,
            *manager._database.reader._tasks,
            *manager._database.definitions._tasks,
        ]
        if manager.writer._task is not None:
            tasks.append(manager.writer._task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if manager.writer._connection is not None:
            manager.writer._connection.terminate()
        manager._database.pool.terminate()
        manager._database.inspection.terminate()
        await manager.auth.close()
        await manager._database.engine.dispose()
        await self._forgotten()

    async def let_node_lock_go(self) -> None:
        """Has the writer's session hold no lock of its node, as after a fencer has ended it, so
        that a test may hold that lock alone. Each transaction takes it all the same."""
        connection = self.manager.writer._connection
        assert connection is not None
        await connection.execute(
            f"SELECT pg_advisory_unlock_shared({NODE_LOCKS}, $1)", self.manager.writer.fence.node.id
        )

    async def _forgotten(self) -> None:
        """Until the server has noticed that the writer's session is gone."""
        connection = await asyncpg.connect(self.url)
        try:
            await until_true(connection, NO_SESSION_LEFT)
        finally:
            await connection.close()

    async def crash_and_reopen(self) -> None:
        await self.crash()
        await self.open()

    # --- short words for what tests do all the time

    def with_segments(self, size: int, age: float = 3600.0) -> House:
        store = replace(self.settings.store, segments=SegmentLimits(size, age))
        self.settings = replace(self.settings, store=store)
        return self

    async def queue(self, name: str = "q", /, **arguments: object) -> ClassicQueue:
        """A classic queue; `max_length=3` is the argument x-max-length."""
        queue = await self.vhost.declare_queue(QueueSpec.parse(name, _words(arguments)))
        assert isinstance(queue, ClassicQueue)
        return queue

    async def stream(self, name: str = "s", /, **arguments: object) -> StreamQueue:
        words = {"x-queue-type": "stream", **_words(arguments)}
        queue = await self.vhost.declare_queue(QueueSpec.parse(name, words))
        assert isinstance(queue, StreamQueue)
        return queue

    async def ephemeral(self, name: str = "e", /, **arguments: object) -> Queue:
        spec = QueueSpec.parse(name, _words(arguments), durable=False)
        return await self.vhost.declare_queue(spec)

    def put(self, queue: str, *bodies: bytes, told: Told | None = None) -> list[Published]:
        return [
            self.vhost.publish(Message(body, "", routing_key=queue), told, token)
            for token, body in enumerate(bodies)
        ]

    async def store(self, queue: str, *bodies: bytes) -> None:
        """Published and committed."""
        self.put(queue, *bodies)
        await self.manager.writer.flushed()

    async def consume(
        self, queue: str = "q", verdict: Verdict | None = None, /, **spec: object
    ) -> tuple[Inbox, Consumer]:
        inbox = Inbox(verdict)
        inbox.vhost = self.vhost
        wanted = ConsumerSpec(**spec)  # type: ignore[arg-type]
        consumer = await self.vhost.consume(queue, inbox, wanted)
        consumer.wake()
        return inbox, consumer

    async def drain(self, queue: str = "q") -> list[Delivery]:
        """All that is ready, taken and settled, in the order it came."""
        found: list[Delivery] = []
        while (delivery := await self.vhost.get(queue)) is not None:
            self.vhost.settle([delivery], ACCEPTED)
            found.append(delivery)
        await self.manager.writer.flushed()
        return found

    async def flushed(self) -> None:
        await self.manager.writer.flushed()

    async def later(self, seconds: float) -> None:
        """Time passes, and what is due is done and written."""
        self.clock.now += seconds
        self.manager.agenda.run_due(self.clock.now)
        await self.manager.writer.flushed()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Time passes until something holds that takes turns of the event loop, or the database."""

        async def holds_later() -> bool:
            await self.later(0.1)
            return holds()

        if not holds():
            await until(holds_later)

    async def upkeep(self) -> None:
        await self.manager._background.maintenance.run_once()


def _words(arguments: dict[str, object]) -> dict[str, object]:
    return {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


async def declare(house: House, kind: str, /, **arguments: object) -> None:
    if kind == "classic":
        await house.queue("q", **arguments)
    else:
        await house.ephemeral("q", **arguments)


async def store_dead_letters(house: House, *numbers: bytes) -> None:
    """Publishes to queue q by its binding `orders`, and rejects each: they die into queue dead."""
    await house.queue("dead")
    await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.vhost.bind("amq.direct", house.vhost.queue("q"), "orders")
    for body in numbers:
        house.vhost.publish(Message(body, "amq.direct", routing_key="orders"))
    await house.flushed()
    while (delivery := await house.vhost.get("q")) is not None:
        house.vhost.settle([delivery], REJECTED)
    await house.flushed()


async def drained(db: asyncpg.Connection) -> None:
    """Returns when all that SQL has published is in its queues."""
    await until_true(db, "SELECT NOT EXISTS (SELECT FROM howdah.outbox)")
