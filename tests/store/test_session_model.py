"""Sessions against a plain model of them: many steps in random order, restarts among them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

import asyncpg
import pytest

from queue_core.delivery.consumer import ConsumerSpec
from queue_core.message.message import Message
from queue_core.queues.spec import QueueSpec
from queue_core.sessions.session import Session
from queue_core.sessions.sessions import KEEP
from queue_core.sessions.subscription import Subscription
from tests.store.sessions import ANONYMOUS, World, world
from tests.support.clock import Clock
from tests.support.inbox import Inbox

CLIENTS = ("ada", "bob", "eve")
FILTERS = {"a": {"a"}, "b": {"b"}, "+": {"a", "b"}, "#": {"a", "b"}}


@dataclass
class Will:
    body: bytes
    delay: float
    due_at: float | None = None


@dataclass
class Client:
    """A client's session, as it should be."""

    expiry: float | None
    is_connected: bool = True
    gone_at: float = 0.0
    subscriptions: dict[str, int] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)
    was_stored: bool = False  # resumed with an expiry of 0, it is stored until it ends

    @property
    def is_stored(self) -> bool:
        return self.was_stored or self.expiry != 0


class Model:
    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.wills: dict[str, Will] = {}
        self.published: list[bytes] = []

    def open(self, name: str, clean: bool, expiry: float | None, now: float) -> bool:
        """Whether the session was there."""
        self.lose(name, KEEP_EXPIRY, True, now)
        client = self.clients.get(name)
        if client is not None and clean:
            self._end(name)
            client = None
        if client is None:
            self._fire(name, only_due=True)
            self.clients[name] = Client(expiry)
            return False
        self.wills.pop(name, None)
        client.was_stored, client.expiry, client.is_connected = True, expiry, True
        return True

    def lose(self, name: str, expiry: float | None, publish_will: bool, now: float) -> None:
        client = self.clients.get(name)
        if client is None or not client.is_connected:
            return
        client.is_connected, client.gone_at = False, now
        is_stored = client.is_stored
        if expiry != KEEP_EXPIRY and is_stored:
            client.expiry = expiry
        left = client.expiry if is_stored else 0.0
        will = self.wills.get(name)
        if will is not None and publish_will:
            wait = will.delay if left is None else min(will.delay, left)
            will.due_at = now + wait
            if wait == 0:
                self._fire(name)
        elif will is not None:
            del self.wills[name]
        if not is_stored or client.expiry == 0:
            self._end(name)
        else:
            client.was_stored = True

    def _end(self, name: str) -> None:
        self._fire(name, only_due=True)
        del self.clients[name]

    def _fire(self, name: str, *, only_due: bool = False) -> None:
        will = self.wills.get(name)
        if will is not None and (not only_due or will.due_at is not None):
            self.published.append(will.body)
            del self.wills[name]

    def pass_time(self, now: float) -> None:
        for name, will in list(self.wills.items()):
            if will.due_at is not None and will.due_at <= now:
                self._fire(name)
        for name, client in list(self.clients.items()):
            over = client.expiry is not None and client.gone_at + client.expiry <= now
            if not client.is_connected and over:
                self._end(name)

    def restart(self, now: float) -> None:
        for name, client in list(self.clients.items()):
            if client.is_connected:
                self.lose(name, KEEP_EXPIRY, True, now)

    def publish(self, topic: str, body: bytes) -> None:
        for client in self.clients.values():
            asked = [q for f, q in client.subscriptions.items() if topic in FILTERS[f]]
            if client.is_stored and any(asked):
                client.waiting.append(body)


KEEP_EXPIRY = -1.0  # no expiry at all, but the wish to leave it as it is


class Run:
    """Steps that the gateway's core and the model both take."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.random = Random(seed)
        self.clock = Clock()
        self.model = Model()
        self.sessions: dict[str, Session] = {}
        self.count = 0
        self.here: World

    def body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    async def step(self) -> None:
        name = self.random.choice(CLIENTS)
        is_connected = name in self.sessions
        match self.random.randrange(9 if is_connected else 6):
            case 0 | 1:
                await self.open(name)
            case 2 | 3:
                await self.publish()
            case 4:
                await self.pass_time()
            case 5 if self.random.random() < 0.4:
                await self.restart()
            case 6:
                await self.detach(name)
            case 7:
                await self.subscribe(name)
            case 8:
                await self.drain(name)

    async def open(self, name: str) -> None:
        clean = self.random.random() < 0.3
        expiry = self.random.choice((0, 50, 50, None))
        wanted = self.model.open(name, clean, expiry, self.clock.now)
        session = await self.here.open(name, clean=clean, expiry=expiry)
        assert session.is_present is wanted
        self.sessions[name] = session
        await self.here.idle()
        if self.random.random() < 0.5:
            will = Will(b"will " + self.body(), self.random.choice((0, 30)))
            self.model.wills[name] = will
            message = Message(will.body, topic="$will")
            await self.here.sessions.wills.set(session, message, ANONYMOUS, delay=will.delay, qos=1)

    async def detach(self, name: str) -> None:
        expiry = self.random.choice((KEEP_EXPIRY, KEEP_EXPIRY, 0, 50))
        publish_will = self.random.random() < 0.5
        self.model.lose(name, expiry, publish_will, self.clock.now)
        session = self.sessions.pop(name)
        kept = KEEP if expiry == KEEP_EXPIRY else expiry
        await self.here.sessions.detach(session, kept, publish_will=publish_will)

    async def subscribe(self, name: str) -> None:
        session, held = self.sessions[name], self.model.clients[name].subscriptions
        topic_filter = self.random.choice(list(FILTERS))
        if self.random.random() < 0.4:
            was_there = held.pop(topic_filter, None) is not None
            assert await session.unsubscribe(topic_filter) is was_there
        else:
            qos = self.random.choice((0, 1, 2))
            assert await session.subscribe(Subscription(topic_filter, qos)) is (
                topic_filter not in held
            )
            held[topic_filter] = qos

    async def publish(self) -> None:
        topic, body = self.random.choice("ab"), self.body()
        is_durable = self.random.random() < 0.8
        if is_durable:
            self.model.publish(topic, body)
        await self.here.publish(topic, body, durable=is_durable)

    async def drain(self, name: str) -> None:
        stored = self.sessions[name].stored
        if stored is None:
            return
        inbox, client = Inbox(), self.model.clients[name]
        consumer = stored.consume(inbox, ConsumerSpec(auto_settle=True))
        consumer.wake()
        assert await inbox.has_bodies(len(client.waiting)) == client.waiting
        self.here.vhost.end_consumer(consumer, None)
        client.waiting = []

    async def pass_time(self) -> None:
        await self.here.pass_time(self.random.choice((5, 20, 40)))
        self.model.pass_time(self.clock.now)

    async def restart(self) -> None:
        await self.stack.aclose()
        await self.start()
        self.model.restart(self.clock.now)
        await self.here.pass_time(0)
        self.model.pass_time(self.clock.now)
        self.sessions.clear()

    async def start(self) -> None:
        self.stack = AsyncExitStack()
        self.here = await self.stack.enter_async_context(world(self.url, self.clock))

    async def check(self) -> None:
        await self.here.idle()
        assert {info.client_id: info.is_connected for info in self.here.sessions.all()} == {
            name: client.is_connected for name, client in self.model.clients.items()
        }
        for info in self.here.sessions.all():
            assert info.waiting == len(self.model.clients[info.client_id].waiting)
        stored = {name: c for name, c in self.model.clients.items() if c.is_stored}
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch("SELECT client_id, state FROM howdah.session")
            assert {row["client_id"]: row["state"] == "connected" for row in rows} == {
                name: client.is_connected for name, client in stored.items()
            }
            kept: int = await connection.fetchval("SELECT count(*) FROM howdah.subscription")
            assert kept == sum(len(client.subscriptions) for client in stored.values())
            wills = await connection.fetch("SELECT client_id FROM howdah.will")
            assert {row["client_id"] for row in wills} == set(self.model.wills)
            queues: int = await connection.fetchval("SELECT count(*) FROM howdah.queue")
            assert queues == len(stored) + 1
        finally:
            await connection.close()


@pytest.mark.parametrize("seed", range(3))
async def test_sessions_do_what_the_model_says(migrated_url: str, seed: int) -> None:
    run = Run(migrated_url, seed)
    await run.start()
    try:
        queue = await run.here.vhost.declare_queue(QueueSpec.parse("wills"))
        await run.here.vhost.bind("amq.topic", queue, "$will")
        for _ in range(120):
            await run.step()
            await run.check()
        inbox = await run.here.listen("wills")
        assert sorted(await inbox.has_bodies(len(run.model.published))) == sorted(
            run.model.published
        )
    finally:
        await run.stack.aclose()
