"""A gateway around a protocol's machine, without a socket and without a database.

The virtual host is the real one; only the ports below it (writer, definitions, stored queues) are
fakes. The writer commits when it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from queue_core.access.auth import Action, Auth, Authenticator, Identity, Resource
from queue_core.commit.queue_log import Log
from queue_core.commit.unit import Unit
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor_spec import SavedProgress
from queue_core.errors import CoreError, VhostNotFound
from queue_core.memory_account import Memory
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.context import QueueContext
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import Router
from queue_core.timers import Agenda
from queue_core.vhost import Vhost
from tests.support.contexts import queue_context


class FakeWriter:
    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.is_congested = False
        self.submitted = 0

    def submit(self, unit: Unit) -> None:
        self.submitted += 1
        self.units.append(unit)

    async def uncongested(self) -> None: ...

    async def flushed(self) -> None: ...

    def note(self, cursor: Any) -> None:
        cursor.lease.grant(cursor.lease.asked)

    def note_failure(self, *facts: object) -> None: ...

    def commit(self) -> None:
        units, self.units = self.units, []
        for unit in units:
            for log, entry in unit.appends:
                entry.offset = log.next_offset
                log.next_offset += 1
                log.commit([entry])
            if unit.publisher is not None:
                unit.publisher.on_committed([unit.token])

    def refuse(self, error: CoreError) -> None:
        units, self.units = self.units, []
        for unit in units:
            if unit.publisher is not None:
                unit.publisher.on_refused([unit.token], error)


class FakeKeeper:
    """Keeps no definitions; what is to be done later is done in a next turn."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[object]] = set()

    async def add_exchange(self, *facts: object) -> None: ...
    async def remove_exchange(self, *facts: object) -> None: ...
    async def add_binding(self, *facts: object) -> None: ...
    async def remove_binding(self, *facts: object) -> None: ...
    async def set_paused(self, vhost: str, queue: str, *, is_paused: bool) -> None: ...

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def idle(self) -> None:
        """Nothing is left to be done."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


class NoSource:
    """Everything fits into memory."""

    def fetch(self, start: int, end: int, limit: int, done: Callable[..., None]) -> None:
        done([])

    def fetch_offsets(self, offsets: list[int], done: Callable[..., None]) -> None:
        done([])


class FakeStore:
    """Queues whose log is only numbers."""

    def __init__(self) -> None:
        self._next = 0

    async def create(self, context: QueueContext, spec: QueueSpec, by: str | None) -> ClassicQueue:
        self._next += 1
        log = Log(self._next, 0, is_stream=False)
        return ClassicQueue(spec, context, log, NoSource(), SavedProgress(lease=1 << 30))

    async def delete(self, queue: Queue) -> None: ...

    async def count_bytes(self, queue: Queue) -> None:
        """Does nothing: no queue here was there before its limits."""

    async def browse(self, queue: Queue, start: int, limit: int) -> list[Entry]:
        return []


class Everything:
    """May be done, but for what is forbidden."""

    def __init__(self) -> None:
        self.forbidden: set[tuple[Action, str]] = set()
        self.forbidden_to: set[tuple[str, Action, str, str | None]] = set()  # user; name and key

    def may_enter(self, identity: Identity, vhost: str) -> bool | None:
        return True

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
        key = (identity.name, action, resource.name, resource.routing_key)
        return (action, resource.name) not in self.forbidden and key not in self.forbidden_to


class FakeServices:
    def __init__(self, *logins: Authenticator) -> None:
        self.now = 1000.0
        self.rules = Everything()
        self.auth = Auth(logins, [self.rules])
        self.agenda = Agenda()
        self.writer = FakeWriter()
        self.memory = Memory()
        self.keeper = FakeKeeper()
        router = Router[Queue]()
        context = queue_context(
            router,
            clock=self.clock,
            agenda=self.agenda,
            budget_bytes=1 << 24,
            writer=self.writer,
            journal=self.writer,
        )
        self.root = Vhost("/", router, context, self.writer, self.keeper, FakeStore())

    async def vhost(self, name: str) -> Vhost:
        if name != "/":
            raise VhostNotFound(f"no vhost '{name}'")
        return self.root

    def clock(self) -> float:
        return self.now
