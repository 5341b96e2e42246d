"""A conversation with the machine without a socket: frames in, frames out.

The virtual host is the real one; only the ports below it (writer, definitions, stored queues) are
fakes. The writer commits when it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from protocols.amqp10.machine import Machine
from protocols.amqp10.sasl import AMQP_HEADER
from protocols.amqp10.settings import Settings
from protocols.amqp10.types import Described, UInt, decode
from queue_core.agenda import Agenda
from queue_core.auth import Action, Auth, Identity, Resource
from queue_core.consumers import Entry
from queue_core.counters import Counters
from queue_core.errors import CoreError, VhostNotFound
from queue_core.log import Log
from queue_core.queues import ClassicQueue, House
from queue_core.ready import Budget
from queue_core.specs import QueueSpec
from queue_core.units import Unit
from queue_core.vhost import Queue, Vhost
from tests.protocol.amqp10.wire import BEGIN, OPEN, attach, frame

Performative = tuple[int, list[Any], bytes]


class FakeWriter:
    """Commits when it is told to."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.is_congested = False

    def submit(self, unit: Unit) -> None:
        self.units.append(unit)

    async def uncongested(self) -> None: ...

    async def flushed(self) -> None: ...

    def note(self, cursor: Any) -> None:
        cursor.on_lease(cursor.lease_asked)

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
    async def add_exchange(self, *facts: object) -> None: ...
    async def remove_exchange(self, *facts: object) -> None: ...
    async def add_binding(self, *facts: object) -> None: ...
    async def remove_binding(self, *facts: object) -> None: ...

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        work.close()


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

    async def create(self, vhost: Vhost, spec: QueueSpec, by: str | None) -> ClassicQueue:
        self._next += 1
        log = Log(self._next, 0, is_stream=False)
        return ClassicQueue(spec, vhost.house, log, NoSource(), lease=1 << 30)

    async def delete(self, queue: Queue) -> None: ...

    async def browse(self, queue: Queue, start: int, limit: int) -> list[Entry]:
        return []


class Everybody:
    """May do everything but what is forbidden."""

    def __init__(self) -> None:
        self.forbidden: set[tuple[Action, str]] = set()

    def may_enter(self, identity: Identity, vhost: str) -> bool | None:
        return True

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
        return (action, resource.name) not in self.forbidden


class FakeServices:
    def __init__(self) -> None:
        self.now = 1000.0
        self.rules = Everybody()
        self.auth = Auth([], [self.rules])
        self.writer = FakeWriter()
        self.root = Vhost("/", self._house, self.writer, FakeKeeper(), FakeStore())

    def _house(self, vhost: Vhost) -> House:
        return House("/", self.clock, Agenda(), Budget(1 << 24), Counters(), vhost, self.writer)

    async def vhost(self, name: str) -> Vhost:
        if name != "/":
            raise VhostNotFound(f"no vhost '{name}'")
        return self.root

    def clock(self) -> float:
        return self.now


class Conversation:
    """One client's side of a connection."""

    def __init__(
        self, services: FakeServices | None = None, settings: Settings | None = None
    ) -> None:
        self.services = services or FakeServices()
        self.machine = Machine(
            self.services, settings or Settings(), Identity("ann"), self, lambda: None
        )

    async def say(self, *data: bytes) -> list[Performative]:
        """Sends all of it in one piece, and hears everything that comes back."""
        self.machine.receive(b"".join(data))
        command = self.machine.advance()
        while command is not None:
            await command
            command = self.machine.advance()
        return self.heard()

    def heard(self) -> list[Performative]:
        data = self.machine.take_output().removeprefix(AMQP_HEADER)
        found: list[Performative] = []
        while data:
            size = int.from_bytes(data[:4])
            one, data = data[8:size], data[size:]
            if one:
                performative, end = decode(one)
                assert isinstance(performative, Described)
                assert isinstance(performative.descriptor, int)
                assert isinstance(performative.value, list)
                found.append((int(performative.descriptor), performative.value, one[end:]))
        return found

    async def begin(self) -> None:
        await self.say(
            AMQP_HEADER,
            frame(0, OPEN, ["client", None, UInt(65_536)]),
            frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]),
        )

    async def attach(
        self, address: str | None, handle: int, *, is_receiver: bool
    ) -> list[Performative]:
        return await self.say(attach(address, handle, f"l{handle}", is_receiver=is_receiver))


def of(heard: list[Performative], code: int) -> list[list[Any]]:
    """The fields of all performatives of that kind, as many as one may ask for."""
    return [[*fields, *([None] * 20)] for kind, fields, _ in heard if kind == code]
