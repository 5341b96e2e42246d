"""A connection that has ended, in whatever way, leaves nothing to the cyclic collector."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from protocols.amqp091.connection import Connection as Amqp091Connection
from protocols.amqp091.context import Context as Amqp091Context
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import PROTOCOL_HEADER
from protocols.amqp091.wire.methods import (
    BasicConsume,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueDeclare,
    TxSelect,
)
from protocols.amqp10.connection import Connection as Amqp10Connection
from protocols.amqp10.context import Context as Amqp10Context
from protocols.amqp10.states import Performative
from protocols.amqp10.wire.sasl import HEADER as SASL
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Symbol, UInt
from protocols.mqtt.connection import Connection as MqttConnection
from protocols.mqtt.context import Context
from protocols.mqtt.settings import Settings as MqttSettings
from protocols.mqtt.websocket_transport import Connection as WebSocketConnection
from tests.support.amqp091_conversation import GREETING, anns_gateway, published
from tests.support.amqp10_wire import BEGIN, CLOSE, FLOW, OPEN, attach, frame, transfer
from tests.support.fake_services import FakeServices
from tests.support.fake_transport import Transport
from tests.support.until import turns
from tests.unit.protocols.mqtt.test_connection import UPGRADE

OURS = ("protocols", "queue_core")
OPENED_091 = (
    PROTOCOL_HEADER
    + method_frame(0, GREETING)
    + method_frame(0, ConnectionTuneOk(0, 0, 0))
    + method_frame(0, ConnectionOpen("/"))
    + method_frame(1, ChannelOpen())
    + method_frame(1, QueueDeclare(0, "q"))
)
LIVES_091 = {
    "before the login": PROTOCOL_HEADER,
    "refused": PROTOCOL_HEADER
    + method_frame(0, ConnectionStartOk({}, "PLAIN", b"\0ann\0wrong", "en_US")),
    "open": OPENED_091,
    "with a consumer and unsettled messages": OPENED_091
    + published("q") * 3
    + method_frame(1, BasicConsume(0, "q", "t"))
    + published("q") * 3,
    "with a transaction": OPENED_091 + method_frame(1, TxSelect()) + published("q") * 3,
    "with confirms": OPENED_091 + method_frame(1, ConfirmSelect()) + published("q") * 3,
    "in the middle of a message": OPENED_091 + published("q")[:-9],
    "with a channel's error": OPENED_091 + method_frame(1, QueueDeclare(0, "no", passive=True)),
    "with a connection's error": OPENED_091 + b"\x77" * 30,
    "closed": OPENED_091 + method_frame(0, ConnectionClose(200, "", 0, 0)),
}
LOGIN_10 = SASL + sasl_frame(Performative.SASL_INIT, [Symbol("PLAIN"), b"\0ann\0secret"])
OPENED_10 = LOGIN_10 + b"AMQP\0\1\0\0" + frame(0, OPEN, ["c", None, UInt(65_536)])
BEGUN_10 = OPENED_10 + frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)])
SENDER = attach("topic://t", 0, "s", is_receiver=False)
CREDIT: list[object] = [UInt(0), UInt(100), UInt(0), UInt(100), UInt(1), UInt(0), UInt(10)]
DATA = b"\0\x53\x75\xa0\x01x"
LIVES_10 = {
    "before the login": SASL,
    "refused": SASL + sasl_frame(Performative.SASL_INIT, [Symbol("PLAIN"), b"\0ann\0wrong"]),
    "before the open": LOGIN_10,
    "open": OPENED_10,
    "in the middle of a message": BEGUN_10 + SENDER + transfer(0, 0, DATA, more=True),
    "with a receiver and unsettled messages": BEGUN_10
    + SENDER
    + attach("topic://t", 1, "r", is_receiver=True)
    + frame(0, FLOW, CREDIT)
    + transfer(0, 0, DATA),
    "with a link that is refused": BEGUN_10 + attach("nothing://", 0, "s", is_receiver=False),
    "with an error": OPENED_10 + b"\xff" * 40,
    "closed": OPENED_10 + frame(0, CLOSE, []),
}


async def live(connection: Any, data: bytes) -> None:
    """From its first to its last moment, as a transport tells of them."""
    transport = Transport()
    transport.protocol = connection
    connection.connection_made(transport)
    connection.data_received(data)
    await turns(30)
    transport.is_closed = True
    protocol: Any = transport.protocol
    del transport.protocol  # as a transport does that is closed
    protocol.connection_lost(None)
    await turns(10)


async def left_by(make: Any, data: bytes) -> list[str]:
    """Returns our objects that only the collector frees after some such connections."""
    await live(make(), data)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await live(make(), data)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [type(each).__qualname__ for each in gc.garbage if _is_ours(each)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(found: object) -> bool:
    return type(found).__module__.startswith(OURS)


@pytest.fixture
def services() -> FakeServices:
    return anns_gateway()


@pytest.mark.parametrize("data", LIVES_091.values(), ids=LIVES_091)
async def test_amqp_091_leaves_nothing(services: FakeServices, data: bytes) -> None:
    context = Amqp091Context(services)
    assert await left_by(lambda: Amqp091Connection(context), data) == []


@pytest.mark.parametrize("data", LIVES_10.values(), ids=LIVES_10)
async def test_amqp_10_leaves_nothing(services: FakeServices, data: bytes) -> None:
    context = Amqp10Context(services)
    assert await left_by(lambda: Amqp10Connection(context), data) == []


@pytest.mark.parametrize("data", [b"", b"\x10", b"GET / HTTP/1.1\r\n\r\n"])
async def test_mqtt_leaves_nothing(services: Any, data: bytes) -> None:
    context = Context(services, MqttSettings())
    assert await left_by(lambda: MqttConnection(context), data) == []


@pytest.mark.parametrize(
    "data", [b"GET", UPGRADE, UPGRADE + b"\x82\x81mask\x7d", UPGRADE + b"\x01"]
)
async def test_websocket_leaves_nothing(services: Any, data: bytes) -> None:
    context = Context(services, MqttSettings())
    assert await left_by(lambda: WebSocketConnection(context), data) == []


async def test_the_collector_would_find_a_cycle() -> None:
    class Cycle(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.itself = self

    Cycle.__module__ = "protocols.cycle"
    assert await left_by(Cycle, b"") == [Cycle.__qualname__] * 3
