"""The end of a connection: the last words arrive, whatever the peer was still sending."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress

import pytest

from protocols.amqp091.wire.codec import decode_method, method_frame
from protocols.amqp091.wire.frames import BODY, HEADER, PROTOCOL_HEADER, frame, split
from protocols.amqp091.wire.methods import (
    BasicPublish,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
)
from protocols.amqp10.wire.sasl import AMQP_HEADER
from protocols.amqp10.wire.sasl import HEADER as SASL_HEADER
from protocols.graceful_close import FAST_BYTES, STRANGER_BYTES, part
from protocols.mqtt.wire.codec import decode
from protocols.mqtt.wire.codec import split as split_mqtt
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Connect, Disconnect, PingReq, Publish, Version
from protocols.mqtt.wire.reasons import ReasonCode
from tests import certificates
from tests.support.amqp10_wire import Wire
from tests.support.fake_transport import Transport as FakeTransport
from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS, turns

FLOOD = 1 << 20  # more than one read takes, less than the sockets' buffers hold


class Host(asyncio.Protocol):
    """Parts as soon as it has heard anything."""

    def __init__(self, patience: float = PATIENCE_SECONDS, *, is_stranger: bool = False) -> None:
        self._patience = patience
        self._is_stranger = is_stranger
        self.ends: list[Exception | None] = []
        self.is_over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.pause_reading()  # parting reads on, whatever it was that held the peer
        self.transport.write(b"goodbye")
        part(self.transport, self._patience, is_stranger=self._is_stranger)
        part(self.transport, self._patience)

    def connection_lost(self, error: Exception | None) -> None:
        self.ends.append(error)
        self.is_over.set()


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.SERVER, certificates.SERVER_KEY)
    return context


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
async def test_a_peer_that_is_still_sending_hears_the_last_words(is_secured: bool) -> None:
    host = Host()
    loop = asyncio.get_running_loop()
    context = server_context() if is_secured else None
    server = await loop.create_server(lambda: host, "127.0.0.1", 0, ssl=context)
    trusted = ssl.create_default_context(cafile=certificates.AUTHORITY) if is_secured else None
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=trusted)
    writer.write(b"x" * FLOOD)
    assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b"goodbye"
    writer.close()
    await asyncio.wait_for(host.is_over.wait(), PATIENCE_SECONDS)
    assert host.ends == [None]
    server.close()


async def test_a_peer_that_talks_for_ever_is_cut_off() -> None:
    host = Host(patience=0.2)
    server = await asyncio.get_running_loop().create_server(lambda: host, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    with suppress(ConnectionError):
        while not host.is_over.is_set():
            writer.write(b"x" * 1024)
            await writer.drain()
            await turns()  # the host reads in the same loop
    await asyncio.wait_for(host.is_over.wait(), PATIENCE_SECONDS)
    writer.close()
    server.close()


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
async def test_a_client_may_write_all_that_it_has_before_it_reads(is_secured: bool) -> None:
    host = Host()
    loop = asyncio.get_running_loop()
    context = server_context() if is_secured else None
    server = await loop.create_server(lambda: host, "127.0.0.1", 0, ssl=context)
    trusted = ssl.create_default_context(cafile=certificates.AUTHORITY) if is_secured else None
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=trusted)
    for _ in range(2 * FAST_BYTES // FLOOD):
        writer.write(bytes(FLOOD))
        await asyncio.wait_for(writer.drain(), PATIENCE_SECONDS)
    assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b"goodbye"
    writer.close()
    await asyncio.wait_for(host.is_over.wait(), PATIENCE_SECONDS)
    assert host.ends == [None]
    server.close()


async def test_a_stranger_that_sends_on_is_cut_off_long_before_its_time_is_over() -> None:
    host = Host(is_stranger=True)
    server = await asyncio.get_running_loop().create_server(lambda: host, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    sent = 0
    with suppress(ConnectionError):
        while not host.is_over.is_set():
            writer.write(bytes(65_536))
            sent += 65_536
            await writer.drain()
            await turns()  # the host reads in the same loop
    assert sent > STRANGER_BYTES
    writer.close()
    server.close()


async def test_discarding_gives_way_to_others_after_every_chunk() -> None:
    """The event loop itself reads on for megabytes in one turn while a flood fills its buffer."""
    transport = FakeTransport()
    transport.set_protocol(asyncio.Protocol())
    part(transport)
    last = transport.get_protocol()
    assert isinstance(last, asyncio.Protocol)
    seen = []
    for _ in range(3):
        seen.append(transport.is_read)
        last.data_received(bytes(1000))
        seen.append(transport.is_read)
        await turns()
    assert seen == [True, False] * 3
    last.connection_lost(None)


# --- every adapter


def connected(port: int) -> socket.socket:
    """With room for the whole flood: what is sent is on its way before anything is answered."""
    made = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * FLOOD)
    return made


def rest_of(peer: socket.socket) -> bytes:
    """All that comes until the other side is done. A reset fails here."""
    found = b""
    while data := peer.recv(65_536):
        found += data
    peer.close()
    return found


def opened(port: int) -> socket.socket:
    peer = connected(port)
    peer.sendall(PROTOCOL_HEADER)
    hear(peer)
    start = ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
    peer.sendall(method_frame(0, start))
    hear(peer)
    peer.sendall(method_frame(0, ConnectionTuneOk(0, 0, 0)) + method_frame(0, ConnectionOpen("/")))
    hear(peer)
    peer.sendall(method_frame(1, ChannelOpen()))
    hear(peer)
    return peer


def hear(peer: socket.socket) -> Method:
    start = peer.recv(7, socket.MSG_WAITALL)
    rest = peer.recv(int.from_bytes(start[3:]) + 1, socket.MSG_WAITALL)
    return decode_method(rest[:-1])


def publishes() -> bytes:
    content = frame(HEADER, 1, b"\0\x3c" + bytes(2) + (1000).to_bytes(8) + bytes(2))
    one = method_frame(1, BasicPublish(0, "amq.fanout", "")) + content
    return (one + frame(BODY, 1, b"x" * 1000)) * (FLOOD // 1000)


def test_amqp_091_answers_a_close_that_publishes_follow(shared_gateway: GatewayProcess) -> None:
    peer = opened(shared_gateway.ports["amqp"])
    peer.sendall(method_frame(0, ConnectionClose(200, "bye")) + publishes())
    assert rest_of(peer) == method_frame(0, ConnectionCloseOk())


def test_amqp_091_says_what_was_wrong_though_publishes_follow(
    shared_gateway: GatewayProcess,
) -> None:
    peer = opened(shared_gateway.ports["amqp"])
    peer.sendall(b"\x09" * 8 + publishes())
    found = rest_of(peer)
    closed = split(found, 0, 1 << 17)
    assert closed is not None
    method = decode_method(found[closed.start : closed.end])
    assert isinstance(method, ConnectionClose)
    assert method.reply_code == 501


def test_amqp_091_says_what_was_wrong_to_a_client_that_closes_after_publishing_on(
    shared_gateway: GatewayProcess,
) -> None:
    peer = opened(shared_gateway.ports["amqp"])
    wrong = method_frame(7, BasicPublish(0, "amq.fanout", ""))  # on a channel that is not open
    bye = method_frame(0, ConnectionClose(200, "bye"))
    peer.sendall(wrong + publishes() + bye + publishes())
    found = rest_of(peer)
    assert found.endswith(method_frame(0, ConnectionCloseOk()))
    assert b"CHANNEL_ERROR" in found


def test_amqp_says_what_it_speaks_to_a_stranger_who_sends_much(
    shared_gateway: GatewayProcess,
) -> None:
    peer = connected(shared_gateway.ports["amqp"])
    peer.sendall(b"AMQP\x09\x09\x09\x09" + bytes(FLOOD))
    assert rest_of(peer) == PROTOCOL_HEADER


def test_amqp_10_answers_a_close_that_more_follows(shared_gateway: GatewayProcess) -> None:
    wire = Wire(shared_gateway)
    wire.open()
    empty = bytes.fromhex("00000008 02000000")
    close = bytes.fromhex("0000000c 02000000 005318 45")
    wire.send(close + empty * (FLOOD // len(empty)))
    answer = wire.frame()
    assert answer is not None
    assert answer[0] == 0x18
    assert wire.frame() is None
    wire.close()


def test_amqp_10_refuses_a_login_that_more_follows(shared_gateway: GatewayProcess) -> None:
    peer = connected(shared_gateway.ports["amqp"])
    peer.sendall(SASL_HEADER + AMQP_HEADER * (FLOOD // 8))
    assert rest_of(peer).startswith(SASL_HEADER)


def mqtt_connected(port: int, version: Version) -> socket.socket:
    peer = connected(port)
    peer.sendall(encode(Connect("farewell", version=version), version))
    connack = peer.recv(2, socket.MSG_WAITALL)
    peer.recv(connack[1], socket.MSG_WAITALL)
    return peer


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_mqtt_says_nothing_and_resets_nothing_after_disconnect(
    shared_gateway: GatewayProcess, version: Version
) -> None:
    peer = mqtt_connected(shared_gateway.ports["mqtt"], version)
    ping = encode(PingReq(), version)
    peer.sendall(encode(Disconnect(), version) + ping * (FLOOD // len(ping)))
    assert rest_of(peer) == b""


def test_mqtt_5_says_why_it_disconnects_a_client_that_goes_on(
    shared_gateway: GatewayProcess,
) -> None:
    peer = mqtt_connected(shared_gateway.ports["mqtt"], Version.V5)
    connect = encode(Connect("farewell"), Version.V5)
    publish = encode(Publish("a/b", b"x" * 1000), Version.V5)
    peer.sendall(connect + publish * (FLOOD // len(publish)))
    found = rest_of(peer)
    packet = split_mqtt(found, 0, FLOOD)
    assert packet is not None
    last = decode(packet.head, found[packet.start : packet.end], Version.V5)
    assert isinstance(last, Disconnect)
    assert last.reason == ReasonCode.PROTOCOL_ERROR
