"""TLS and WebSocket under MQTT, and the gateway's goodbye."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from protocols.mqtt.wire.codec import decode
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeRequest,
    Version,
)
from tests.support.gateway_process import GatewayProcess, running
from tests.support.mqtt_raw_client import Mqtt, RawClient
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

CERTIFICATES = Path(__file__).parents[2] / "certificates"
MQTT = Subprotocol("mqtt")


def ws_url(gateway: GatewayProcess, path: str = "/mqtt") -> str:
    return f"ws://127.0.0.1:{gateway.ports['mqtt_ws']}{path}"


async def heard(socket: ClientConnection) -> Packet:
    """One packet that came in one frame."""
    data = await asyncio.wait_for(socket.recv(), 10)
    assert isinstance(data, bytes)
    return decode(data[0], data[2:], 5)


@pytest.fixture
async def socket(shared_gateway: GatewayProcess) -> AsyncIterator[ClientConnection]:
    async with connect(ws_url(shared_gateway), subprotocols=[MQTT]) as socket:
        assert socket.subprotocol == "mqtt"
        yield socket


async def test_packets_come_through_in_fragments_and_several_to_a_frame(
    socket: ClientConnection,
) -> None:
    hello = encode(Connect(fresh()), 5)
    await socket.send([hello[:3], hello[3:5], hello[5:]])
    assert isinstance(await heard(socket), ConnAck)
    topic = fresh("t")
    await socket.send(encode(Subscribe(1, (SubscribeRequest(topic),)), 5))
    assert isinstance(await heard(socket), SubAck)
    both = encode(Publish(topic, b"1"), 5) + encode(Publish(topic, b"2"), 5)
    await socket.send(both[:7])
    await socket.send(both[7:])
    received = b""
    while len(received) < len(both):
        data = await asyncio.wait_for(socket.recv(), 10)
        assert isinstance(data, bytes)
        received += data
    assert received == both


async def test_each_packet_comes_in_a_frame_of_its_own(socket: ClientConnection) -> None:
    topic, many = fresh("t"), 50
    await socket.send(encode(Connect(fresh()), 5))
    assert isinstance(await heard(socket), ConnAck)
    await socket.send(encode(Subscribe(1, (SubscribeRequest(topic, 1),)), 5))
    assert isinstance(await heard(socket), SubAck)
    publishes = [Publish(topic, b"x", 1, packet_id=number) for number in range(1, many + 1)]
    await socket.send(b"".join(encode(packet, 5) for packet in publishes))
    kinds = [type(await heard(socket)) for _ in range(2 * many)]  # which take one packet each
    assert (kinds.count(PubAck), kinds.count(Publish)) == (many, many)


async def test_a_websocket_ping_is_answered_beside_mqtt(socket: ClientConnection) -> None:
    await socket.send(encode(Connect(fresh()), 5))
    assert isinstance(await heard(socket), ConnAck)
    answered = await socket.ping()
    await asyncio.wait_for(answered, PATIENCE_SECONDS)
    await socket.send(encode(PingReq(), 5))
    assert await heard(socket) == PingResp()


async def test_mqtt_6_0_0_1_text_is_refused(socket: ClientConnection) -> None:
    await socket.send("text")
    with pytest.raises(ConnectionClosed) as caught:
        await asyncio.wait_for(socket.recv(), 10)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1003


async def test_without_the_subprotocol_or_elsewhere_there_is_no_upgrade(
    shared_gateway: GatewayProcess,
) -> None:
    for url, subprotocols, status in (
        (ws_url(shared_gateway), None, 400),
        (ws_url(shared_gateway, "/other"), [MQTT], 404),
    ):
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, subprotocols=subprotocols)
        assert caught.value.response.status_code == status


@pytest.fixture
def tls_gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    tls = {"cert": str(CERTIFICATES / "server.pem"), "key": str(CERTIFICATES / "server.key")}
    settings = {"listeners": {"mqtt": {"tls": tls}, "mqtt_ws": {"tls": tls}}}
    with running(tmp_path / "gateway", settings) as process:
        yield process


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    context.check_hostname = False
    return context


async def test_mqtt_and_websocket_run_over_tls(tls_gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", tls_gateway.ports["mqtt"], ssl=trusting()
    )
    client = RawClient(reader, writer, Version.V5)
    assert (await client.connect(Connect("secret"))).reason == 0
    await client.subscribe("t", 1)
    payload = b"x" * 300_000  # more than one TLS record, in both directions
    await client.publish("t", payload, 1)
    assert (await client.message()).payload == payload
    client.abort()
    await client.wait_closed()
    url = ws_url(tls_gateway).replace("ws:", "wss:")
    async with connect(url, subprotocols=[MQTT], ssl=trusting()) as socket:
        await socket.send(encode(Connect("web"), 5))
        assert isinstance(await heard(socket), ConnAck)


async def test_the_gateway_says_goodbye_when_it_stops(gateway: GatewayProcess) -> None:
    mqtt = Mqtt(gateway.ports["mqtt"])
    client = await mqtt.connected()
    stopped = asyncio.create_task(asyncio.to_thread(gateway.terminate))
    assert await client.disconnected() == 0x8B
    assert await stopped == 0
    await mqtt.close()
