"""Sessions on stores that only remember, with a hand on the clock and on the database's life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from queue_core.commit.queue_log import Log
from queue_core.commit.unit import PacketRecord, Unit
from queue_core.delivery.consumer import Entry
from queue_core.errors import CoreError, StoreUnavailable
from queue_core.message.message import Message
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.context import QueueContext
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.routing.router import Router
from queue_core.sessions.deferred_work import DeferredWork
from queue_core.sessions.retained import (
    Kept,
    KeptTopic,
    Retained,
)
from queue_core.sessions.session import ClientKey, Session, SessionState
from queue_core.sessions.sessions import Sessions
from queue_core.sessions.subscription import Subscription
from queue_core.sessions.wills import Will, Wills
from queue_core.timers import Agenda
from queue_core.vhost import Vhost
from tests.support.contexts import queue_context
from tests.support.fake_services import FakeKeeper
from tests.support.until import turns


class Outage:
    """Whether the database can be reached; every fake below asks it first."""

    def __init__(self) -> None:
        self.is_on = False
        self.answers = asyncio.Event()  # cleared: whoever asks waits
        self.answers.set()
        self.spared: tuple[str, ...] = ()  # what goes through all the same
        self.calls: list[str] = []

    async def ask(self, call: str) -> None:
        await turns()  # a database answers in a later turn
        await self.answers.wait()
        if self.is_on and not call.startswith(self.spared):
            raise StoreUnavailable("the database cannot be reached")
        self.calls.append(call)


class FakeSessionStore:
    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._next_id = 0

    async def load(self, now: float) -> list[SessionState]:
        return []

    async def packets(self) -> dict[int, list[PacketRecord]]:
        return {}

    async def add(self, state: SessionState, queue_name: str, now: float) -> int:
        await self._outage.ask(f"add {state.key[1]}")
        self._next_id += 1
        return self._next_id

    async def connect(
        self, session_id: int, expiry: float | None, protocol: str, now: float
    ) -> bool:
        await self._outage.ask(f"connect {session_id}")
        return True

    async def disconnect(self, session_id: int, expiry: float | None, now: float) -> None:
        await self._outage.ask(f"disconnect {session_id} at {now:g}")

    async def delete(self, session_id: int) -> None:
        await self._outage.ask(f"delete {session_id}")

    async def put_subscriptions(
        self, session_id: int, subscriptions: Iterable[Subscription]
    ) -> None:
        await self._outage.ask(f"subscribe {session_id}")

    async def delete_subscriptions(self, session_id: int, addresses: Iterable[str]) -> None:
        await self._outage.ask(f"unsubscribe {session_id}")

    async def note_limits(self, arguments: Mapping[str, object]) -> None:
        await self._outage.ask("note limits")


class FakeWillStore:
    def __init__(self, outage: Outage) -> None:
        self._outage = outage

    async def put(self, key: ClientKey, will: Will) -> None:
        await self._outage.ask(f"put will of {key[1]}")

    async def set_due(self, dues: Mapping[ClientKey, float]) -> None:
        await self._outage.ask("set due")

    async def delete(self, key: ClientKey) -> None:
        await self._outage.ask(f"delete will of {key[1]}")

    async def message(self, key: ClientKey) -> Message | None:
        await self._outage.ask(f"read will of {key[1]}")
        return Message(b"read back", topic="will")

    async def all(self, largest: int) -> list[tuple[ClientKey, Will]]:
        return []


class FakeRetainedStore:
    """One value, which was there before; reading it takes until the test lets it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def topics(self) -> AsyncIterator[list[KeptTopic]]:
        yield [KeptTopic("/", "a", 3, None)]

    async def read(self, vhost: str, topics: Sequence[str]) -> dict[str, Kept]:
        await self.gate.wait()
        return {"a": Kept(Message(b"old", topic="a"), 0, 0.0)}

    async def delete_expired(self, vhost: str, topics: Sequence[str], now: float) -> None:
        """Nothing is there."""


class FakeWriter:
    """Commits at once what it is given."""

    is_congested = False

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.submitted = 0

    def submit(self, unit: Unit) -> None:
        self.submitted += 1
        self.units.append(unit)
        if unit.publisher is not None:
            unit.publisher.on_committed([unit.token])

    async def uncongested(self) -> None:
        """Always."""

    async def flushed(self) -> None:
        """Always."""


class Keeper(FakeKeeper):
    """Definitions that are kept nowhere, and queues whose log nobody reads."""

    def __init__(self, outage: Outage) -> None:
        super().__init__()
        self._outage = outage
        self._next_id = 0

    async def create(
        self, context: QueueContext, spec: QueueSpec, created_by: str | None
    ) -> ClassicQueue | StreamQueue:
        await self._outage.ask(f"create {spec.name}")
        self._next_id += 1
        log = Log(self._next_id, 0, is_stream=False)
        return ClassicQueue(spec, context, log, NoSource())

    async def delete(self, queue: Queue) -> None:
        await self._outage.ask(f"drop {queue.name}")

    async def count_bytes(self, queue: Queue) -> None:
        """Does nothing: no queue here was there before its limits."""

    async def browse(self, queue: Queue, start: int, limit: int) -> list[Entry]:
        return []


class NoSource:
    def fetch(self, start: int, end: int, limit: int, done: Callable[[list[Entry]], None]) -> None:
        raise AssertionError("nothing is stored here")

    def fetch_offsets(self, offsets: list[int], done: Callable[[list[Entry]], None]) -> None:
        raise AssertionError("nothing is stored here")


class NoJournal:
    def note(self, cursor: object) -> None: ...
    def note_failure(self, *facts: object) -> None: ...


class Owner:
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_takeover(self) -> None:
        self.told.append("takeover")

    def on_shared_changed(self) -> None:
        self.told.append("shared")

    def on_ended(self, reason: CoreError) -> None:
        self.told.append("ended")


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.outage = Outage()
        self.agenda = Agenda()
        self.keeper = Keeper(self.outage)
        self.writer = FakeWriter()
        self.vhosts: dict[str, Vhost] = {}
        router = Router[Queue]()
        context = queue_context(
            router,
            clock=self.clock,
            agenda=self.agenda,
            writer=self.writer,
            journal=NoJournal(),
        )
        self.vhost = self.vhosts["/"] = Vhost(
            "/", router, context, self.writer, self.keeper, self.keeper
        )
        retained = Retained(
            FakeRetainedStore(),
            clock=self.clock,
            agenda=self.agenda,
            later=self.keeper.later,
            flushed=self.writer.flushed,
        )
        wills = Wills(
            FakeWillStore(self.outage),
            retained,
            self.vhosts,
            clock=self.clock,
            agenda=self.agenda,
            may_publish=lambda *_: True,
        )
        self.sessions = Sessions(
            FakeSessionStore(self.outage),
            retained,
            wills,
            self.vhosts,
            DeferredWork(self.clock, self.agenda, self.keeper.later),
        )

    def clock(self) -> float:
        return self.now

    async def open(
        self, *, expiry: float | None = 60, clean: bool = False, owner: Owner | None = None
    ) -> Session:
        return await self.sessions.open(
            self.vhost,
            "sensor",
            clean_start=clean,
            expiry=expiry,
            user=None,
            protocol="MQTT 5",
            owner=owner or Owner(),
        )

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.agenda.run_due(self.now)
        await self.idle()

    async def idle(self) -> None:
        await self.keeper.idle()
        await self.sessions.close()
