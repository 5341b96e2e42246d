"""One connection's chunk is handled over several turns of the loop, and others between."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp091.connection import Connection as Amqp091Connection
from protocols.amqp091.context import Context as Amqp091Context
from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, split
from protocols.amqp091.wire.methods import ConfirmSelect, ConnectionOpen, ConnectionTuneOk
from protocols.amqp10.connection import Connection as Amqp10Connection
from protocols.amqp10.context import Context as Amqp10Context
from protocols.amqp10.counters import Amqp10Counters
from protocols.amqp10.states import Performative
from protocols.amqp10.wire.sasl import HEADER as SASL
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Symbol, UInt
from protocols.graceful_close import Farewell
from protocols.mqtt.connection import Connection as MqttConnection
from protocols.mqtt.context import Context
from protocols.mqtt.settings import Settings as MqttSettings
from protocols.mqtt.websocket_transport import MOST_EARLY_FRAMES
from protocols.mqtt.websocket_transport import Connection as WebSocketConnection
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import PubAck, Publish, Version
from protocols.mqtt.wire.websocket_codec import MOST_FRAMES, Opcode, masked
from queue_core import scheduler as scheduling
from tests.support.amqp091_conversation import GREETING, anns_gateway
from tests.support.amqp10_wire import BEGIN, CLOSE, OPEN, frame
from tests.support.fake_transport import Transport
from tests.support.until import turns, until_turned
from tests.unit.protocols.mqtt.test_connection import UPGRADE
from tests.unit.protocols.mqtt.wired import Broking

AMQP_10 = b"AMQP\0\1\0\0"
EMPTY_10 = b"\0\0\0\x08\x02\0\0\0"
MANY = 5000


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds that a slice is over: a slice holds one step and no more."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += scheduling.TURN_SECONDS
        return now

    original = scheduling.Scheduler.__init__
    monkeypatch.setattr(
        scheduling.Scheduler, "__init__", lambda self, soon: original(self, soon, clock)
    )


async def until_read(transport: Transport) -> int:
    """How many turns it took until all that had come was handled."""
    return await until_turned(lambda: transport.is_read, "the transport is read again")


def made(connection: Any) -> Transport:
    transport = Transport()
    transport.protocol = connection
    connection.connection_made(transport)
    return transport


async def amqp091() -> tuple[Amqp091Connection, Transport, Amqp091Counters]:
    """An open connection; its channels are yet to be opened."""
    counters = Amqp091Counters()
    connection = Amqp091Connection(Amqp091Context(anns_gateway(), counters=counters))
    transport = made(connection)
    connection.data_received(
        PROTOCOL_HEADER
        + method_frame(0, GREETING)
        + method_frame(0, ConnectionTuneOk(0, 0, 0))
        + method_frame(0, ConnectionOpen("/"))
    )
    await until_read(transport)
    await turns(2)
    assert connection._machine.client is not None
    transport.written = b""
    return connection, transport, counters


def frames_in(data: bytes) -> int:
    count = position = 0
    while (found := split(data, position, 1 << 20)) is not None:
        count, position = count + 1, found.end + 1
    return count


async def test_a_chunk_of_amqp_091_takes_several_turns_and_others_are_served_between() -> None:
    greedy, crowded, _ = await amqp091()
    good, answers, _ = await amqp091()
    greedy.data_received(HEARTBEAT_FRAME * MANY + b"\1\0\1\0\0\0\5\0\x14\0\n\0\xce")
    assert not crowded.is_read
    good.data_received(b"\1\0\1\0\0\0\5\0\x14\0\n\0\xce")  # channel.open
    await turns(4)
    assert frames_in(answers.written) == 1  # its answer did not wait for the other's last frame
    assert crowded.written == b""
    assert await until_read(crowded) > 5
    await turns(2)
    assert frames_in(crowded.written) == 1


async def test_what_amqp_091_keeps_back_is_handled_in_its_order() -> None:
    connection, transport, _ = await amqp091()
    opens = b"\1\0\1\0\0\0\5\0\x14\0\n\0\xce"
    connection.data_received(opens + method_frame(1, ConfirmSelect()) * 300)
    connection.data_received(b"\1\0\2\0\0\0\5\0\x14\0\n\0\xce")  # as TLS does, though not read
    await until_read(transport)
    await turns(2)
    assert frames_in(transport.written) == 302
    assert transport.written.endswith(b"\1\0\2\0\0\0\x08\0\x14\0\x0b\0\0\0\0\xce")


async def test_heartbeats_before_the_login_of_amqp_091_are_few_and_counted() -> None:
    counters = Amqp091Counters()
    connection = Amqp091Connection(Amqp091Context(anns_gateway(), counters=counters))
    transport = made(connection)
    connection.data_received(PROTOCOL_HEADER + HEARTBEAT_FRAME * 20)
    await turns(4)
    assert counters.early_floods == 0
    connection.data_received(HEARTBEAT_FRAME * MANY)
    await turns(20)
    assert counters.early_floods == 1
    assert b"frames before the connection is open" in transport.written
    connection.connection_lost(None)


async def amqp10() -> tuple[Amqp10Connection, Transport, Amqp10Counters]:
    counters = Amqp10Counters()
    connection = Amqp10Connection(Amqp10Context(anns_gateway(), counters=counters))
    transport = made(connection)
    connection.data_received(
        SASL + sasl_frame(Performative.SASL_INIT, [Symbol("PLAIN"), b"\0ann\0secret"])
    )
    await turns(10)
    transport.written = b""
    return connection, transport, counters


async def test_a_chunk_of_amqp_10_takes_several_turns_and_others_are_served_between() -> None:
    opened = AMQP_10 + frame(0, OPEN, ["c", None, UInt(65_536)])
    begun = frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)])
    greedy, crowded, _ = await amqp10()
    good, answers, _ = await amqp10()
    for connection in (greedy, good):
        connection.data_received(opened)
    await turns(20)
    assert crowded.written
    assert answers.written
    crowded.written = answers.written = b""
    greedy.data_received(EMPTY_10 * (8 * MANY) + begun)
    assert not crowded.is_read
    good.data_received(begun)
    await turns(4)
    assert answers.written
    assert not crowded.written
    await until_read(crowded)
    await turns(2)
    assert crowded.written == answers.written
    for connection in (greedy, good):
        connection.connection_lost(None)
    await turns(5)


async def test_empty_frames_before_the_open_of_amqp_10_are_few_and_counted() -> None:
    connection, transport, counters = await amqp10()
    connection.data_received(AMQP_10 + EMPTY_10 * 20)
    await turns(10)
    assert counters.early_floods == 0
    connection.data_received(EMPTY_10 * (8 * MANY))
    await turns(40)
    assert counters.early_floods == 1
    assert b"bytes before the connection is open" in transport.written
    assert bytes((0, 0x53, CLOSE)) in transport.written
    connection.connection_lost(None)
    await turns(5)


def ping(number: int) -> bytes:
    payload = number.to_bytes(4, "big")
    return bytes((0x80 | Opcode.PING, 0x84)) + b"mask" + masked(payload, b"mask")


def web(context: Context) -> tuple[WebSocketConnection, Transport]:
    connection = WebSocketConnection(context)
    transport = made(connection)
    connection.data_received(UPGRADE)
    transport.written = b""
    return connection, transport


async def test_a_chunk_of_websocket_takes_several_turns_and_others_are_served_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MqttConnection, "is_let_in", True)
    services: Any = anns_gateway()
    context = Context(services, MqttSettings())
    greedy, crowded = web(context)
    good, answers = web(context)
    greedy.data_received(b"".join(map(ping, range(MANY))))
    assert not crowded.is_read
    assert 0 < len(crowded.written) < MANY * 6
    good.data_received(ping(7))
    await turns(2)
    assert answers.written == b"\x8a\4" + (7).to_bytes(4, "big")
    assert await until_read(crowded) >= MANY // MOST_FRAMES // 4 - 1
    pongs = b"".join(b"\x8a\4" + number.to_bytes(4, "big") for number in range(MANY))
    assert crowded.written == pongs


async def test_a_websocket_that_ends_in_the_midst_of_a_chunk_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A socket that is closed with something unread in it is reset, and takes last words along."""
    monkeypatch.setattr(MqttConnection, "is_let_in", True)
    services: Any = anns_gateway()
    connection, transport = web(Context(services, MqttSettings()))
    connection.data_received(b"".join(map(ping, range(MANY))))
    assert not transport.is_read
    connection.shut_down("bye")
    assert isinstance(transport.protocol, Farewell)
    assert transport.is_read


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.BINARY])
async def test_websocket_frames_without_a_payload_are_few_before_the_login(opcode: Opcode) -> None:
    services: Any = anns_gateway()
    context = Context(services, MqttSettings())
    connection, transport = web(context)
    empty = bytes((0x80 | opcode, 0x80)) + b"mask"
    connection.data_received(empty * MOST_EARLY_FRAMES)
    await turns(2)
    assert context.counters.early_floods == 0
    connection.data_received(empty)
    await turns(4)
    assert isinstance(transport.protocol, Farewell)
    assert transport.written.endswith(b"\x88\2" + (1008).to_bytes(2, "big"))
    assert context.counters.early_floods == 1


async def test_the_last_byte_of_a_large_mqtt_packet_waits_where_a_small_packet_goes_first() -> None:
    """Sixty clients that finish 15 MB at the same moment are a second of copying."""
    broking = Broking()
    large, small = await broking.client("large"), await broking.client("small")
    packets = [
        encode(Publish("a/b", b"x" * size, qos=1, packet_id=1), Version.V5)
        for size in (2 * scheduling.HEAVY_BYTES, 1000)
    ]
    for wire, packet in zip((large, small), packets, strict=True):
        wire.gets_bytes(packet[:-1])
    scheduling.scheduler().left = 0.0  # others have used this turn up
    for wire in (large, small):
        wire.gets_bytes(b"x")
    assert [wire.connection.received_bytes() for wire in (large, small)] == [len(packets[0]), 0]
    scheduling.scheduler().spend(0.0)  # as it was used up by somebody
    await large.until(PubAck)
