"""Both AMQP connections end what their client held, whatever befalls a command or the machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocols.amqp091 import dispatch
from protocols.amqp091.connection import Connection
from protocols.amqp091.context import Context
from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import PROTOCOL_HEADER
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    ChannelOpen,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTuneOk,
    QueueDeclare,
)
from queue_core.vhost import Vhost
from tests.support.amqp091_conversation import GREETING, anns_gateway, published
from tests.support.fake_services import FakeServices
from tests.support.fake_transport import Transport
from tests.support.until import until_turned

TO_OPEN = (
    PROTOCOL_HEADER
    + method_frame(0, GREETING)
    + method_frame(0, ConnectionTuneOk(0, 0, 0))
    + method_frame(0, ConnectionOpen("/"))
)
CONSUMING = (
    TO_OPEN
    + method_frame(1, ChannelOpen())
    + method_frame(1, QueueDeclare(0, "q"))
    + method_frame(1, BasicConsume(0, "q", "t"))
)


class Scene:
    """A connection on a transport without a network."""

    def __init__(self) -> None:
        self.services: FakeServices = anns_gateway()
        self.counters = Amqp091Counters()
        self.connection = Connection(Context(self.services, counters=self.counters))
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    async def consume(self, data: bytes = b"") -> Vhost:
        """Lets the client consume from a queue, and say something more."""
        self.connection.data_received(CONSUMING + data)
        vhost = await self.services.vhost("/")
        await until_turned(
            lambda: bool("q" in vhost.queues and vhost.queue("q").counts().consumers)
        )
        await until_turned(lambda: self.transport.is_read)
        return vhost

    def lose(self) -> None:
        protocol: Any = self.transport.protocol
        self.transport.is_closed = True
        protocol.connection_lost(None)


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_a_connection_ends_though_its_last_command_came_to_no_end(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Others may cancel the work that a command waits for: that is no Exception."""

    commands = 0

    async def fail(*_: object) -> None:
        nonlocal commands
        commands += 1
        raise error

    scene = Scene()
    vhost = await scene.consume()
    monkeypatch.setitem(dispatch.WAITING, QueueDeclare, fail)
    scene.connection.data_received(method_frame(1, QueueDeclare(0, "other")))
    # On a busy machine the connection's slice of time is over, and the command begins later.
    await until_turned(lambda: commands == 1 and not scene.connection.awaits_us)
    scene.lose()
    await until_turned(lambda: vhost.queue("q").counts().consumers == 0)


async def test_a_bug_while_acks_are_settled_ends_the_connection_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    scene = Scene()
    vhost = await scene.consume(published("q"))
    await until_turned(lambda: BasicDeliver.index.to_bytes(4) in scene.transport.written)
    with monkeypatch.context() as patched:
        patched.setattr(vhost, "settle", fail)
        scene.connection.data_received(method_frame(1, BasicAck(1)))
        await until_turned(lambda: bool(scene.counters.bugs))  # read at once, or in a later slice
    await until_turned(lambda: vhost.queue("q").counts().consumers == 0)
    await until_turned(lambda: b"INTERNAL_ERROR" in scene.transport.written)
    assert scene.counters.bugs == 1


async def test_a_connection_that_is_shut_down_while_it_opens_is_not_let_in() -> None:
    scene = Scene()
    asked, found, vhost_of = asyncio.Event(), asyncio.Event(), scene.services.vhost

    async def look_long(name: str) -> Vhost:
        asked.set()
        await found.wait()
        return await vhost_of(name)

    scene.services.vhost = look_long  # type: ignore[method-assign]
    scene.connection.data_received(TO_OPEN)
    await until_turned(asked.is_set)
    scene.connection.shut_down("the gateway stops")
    found.set()
    await until_turned(lambda: not scene.connection.awaits_us)
    assert b"the gateway stops" in scene.transport.written
    assert ConnectionOpenOk.index.to_bytes(4) not in scene.transport.written
    assert scene.counters.connections == 0
