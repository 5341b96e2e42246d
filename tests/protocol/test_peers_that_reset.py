"""Peers that send their bytes and reset the connection before the gateway has accepted it: such a
connection has no peer name, and its bytes can be read all the same."""

from __future__ import annotations

import base64
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import PROTOCOL_HEADER
from protocols.amqp091.wire.methods import ConnectionStartOk
from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Symbol
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Connect, Publish
from tests.support.gateway_process import GatewayProcess
from tests.support.health import until_said

MQTT = encode(Connect("nameless"), 5) + encode(Publish("nameless/was/here", b"x"), 5)
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
FRAME = bytes((0x82, 0x80 | len(MQTT), 0, 0, 0, 0)) + MQTT
START_OK = ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
QUEUES = b"GET /api/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def paused(gateway: GatewayProcess) -> Iterator[None]:
    """The gateway accepts nothing meanwhile; the system does, for it."""
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.pid, signal.SIGCONT)


def send_and_reset(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(data)


@pytest.mark.parametrize(
    ("listener", "data", "words"),
    [
        pytest.param("mqtt", MQTT, "login of '' from an unknown", id="MQTT"),
        pytest.param("mqtt_ws", UPGRADE + FRAME, "login of '' from an unknown", id="WebSocket"),
        pytest.param(
            "amqp",
            PROTOCOL_HEADER + method_frame(0, START_OK),
            "login of 'guest' from an unknown",
            id="AMQP 0.9.1",
        ),
        pytest.param(
            "amqp",
            HEADER + sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0guest"]),
            "login of 'guest' from an unknown",
            id="AMQP 1.0",
        ),
        pytest.param(
            "amqp", AMQP_HEADER, "an unknown address came without SASL", id="AMQP 1.0, no SASL"
        ),
        pytest.param("management", QUEUES, "login of '' from an unknown", id="management"),
    ],
)
async def test_a_peer_that_reset_its_connection_before_it_was_accepted_is_nobody(
    gateway: GatewayProcess, listener: str, data: bytes, words: str
) -> None:
    with paused(gateway):
        send_and_reset(gateway.ports[listener], data)
    await until_said(gateway, words)
    assert "a bug" not in gateway.log()
