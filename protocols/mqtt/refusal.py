"""The refusal of an MQTT client by a node that does not serve: CONNACK with "server unavailable",
over WebSocket an HTTP status."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.wire.codec import split
from protocols.mqtt.wire.connect_codec import version_of
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import ConnAck, Version
from protocols.mqtt.wire.property_set import PacketType, PropertySet
from protocols.mqtt.wire.reasons import ReasonCode

LARGEST_CONNECT: Final = 60 * 1024
UNAVAILABLE_3: Final = 3  # the return code of 3.1 and 3.1.1 [MQTT-3.2.2-4]


def refusal(received: bytes, reason: str) -> tuple[bytes, bool]:
    """Says what a client hears after these bytes, and whether it is the last word."""
    found = split(received, 0, LARGEST_CONNECT)
    if found is None:
        return b"", False
    if found.head >> 4 != PacketType.CONNECT:
        return b"", True  # [MQTT-3.1.0-1]
    version = version_of(received[found.start : found.end])
    if version == Version.V5:
        properties = PropertySet(reason_string=reason)
        packet = ConnAck(reason=ReasonCode.SERVER_UNAVAILABLE, properties=properties)
    else:
        packet = ConnAck(reason=UNAVAILABLE_3)
    return encode(packet, version), True


def websocket_refusal(received: bytes, reason: str) -> tuple[bytes, bool]:
    """Says the same to a client that comes by HTTP, once its request is whole."""
    if b"\r\n\r\n" not in received:
        return b"", False
    body = f"{reason}\n".encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body, True
