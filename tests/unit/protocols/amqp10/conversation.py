"""A conversation with the machine without a socket: frames in, frames out."""

from __future__ import annotations

from typing import Any

from protocols.amqp10.client import Client
from protocols.amqp10.context import Context
from protocols.amqp10.machine import Machine
from protocols.amqp10.settings import Settings
from protocols.amqp10.wire.sasl import AMQP_HEADER
from protocols.amqp10.wire.types import Described, UInt, decode
from queue_core.access.auth import Identity
from tests.support.amqp10_wire import BEGIN, OPEN, attach, frame
from tests.support.fake_carrier import FakeCarrier
from tests.support.fake_services import FakeServices

Performative = tuple[int, list[Any], bytes]


class Conversation:
    """One client's side of a connection."""

    def __init__(
        self,
        services: FakeServices | None = None,
        settings: Settings | None = None,
        user: str = "ann",
    ) -> None:
        self.services = services or FakeServices()
        context = Context(self.services, settings or Settings())
        self.counters = context.counters
        self.carrier = FakeCarrier()
        self.machine = Machine(context, self.carrier, Identity(user), "PLAIN")

    @property
    def client(self) -> Client:
        """The open connection's own part of the machine."""
        assert self.machine.client is not None
        return self.machine.client

    async def say(self, *data: bytes) -> list[Performative]:
        """Sends all of it in one piece, and hears everything that comes back."""
        command = self.machine.receive(b"".join(data))
        while command is not None:
            await self.machine.perform(command)
            self.machine.proceed()
            command = self.machine.receive(b"")
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
