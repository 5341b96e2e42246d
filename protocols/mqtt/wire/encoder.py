"""Writes packets as bytes, for every version: the counterpart of `codec.decode`.

The encoder writes what it is given; that it may be sent, and fits the peer's limits, is the
machine's business. Hot packets have paths of their own, in `deliver.frames` and
`publish.acknowledgements`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.connect_codec import encode_connect
from protocols.mqtt.wire.packets import (
    Acknowledgement,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PacketType, encode_properties


def encode(packet: Packet, version: int) -> bytes:
    """Returns the whole packet."""
    kind, flags, write = ENCODERS[type(packet)]
    body = write(packet, version)
    if isinstance(packet, Publish):
        flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    return bytes((kind << 4 | flags,)) + wire.varint(len(body)) + body


def _short(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _connect(packet: Connect, version: int) -> bytes:
    return encode_connect(packet)


def _connack(packet: ConnAck, version: int) -> bytes:
    # 3.1 has no such flag: the byte is not used
    head = bytes((packet.session_present and version != Version.V31, packet.reason))
    return head + encode_properties(packet.properties) if version == Version.V5 else head


def _publish(packet: Publish, version: int) -> bytes:
    parts = [wire.text(packet.topic)]
    if packet.qos:
        parts.append(_short(packet.packet_id))
    if version == Version.V5:
        parts.append(encode_properties(packet.properties))
    parts.append(packet.payload)
    return b"".join(parts)


def _acknowledgement(packet: Acknowledgement, version: int) -> bytes:
    head = _short(packet.packet_id)
    if version < Version.V5 or (packet.reason == 0 and packet.properties == NO_PROPERTIES):
        return head
    head += bytes((packet.reason,))
    return (
        head if packet.properties == NO_PROPERTIES else head + encode_properties(packet.properties)
    )


def _subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [_short(packet.packet_id)]
    if version == Version.V5:
        parts.append(encode_properties(packet.properties))
    for asked in packet.requests:
        options = (
            asked.qos
            | asked.no_local << 2
            | asked.retain_as_published << 3
            | asked.retain_handling << 4
        )
        parts += wire.text(asked.filter), bytes((options,))
    return b"".join(parts)


def _suback(packet: SubAck, version: int) -> bytes:
    head = _short(packet.packet_id)
    if version == Version.V5:
        return head + encode_properties(packet.properties) + bytes(packet.reasons)
    # 3.1.1 has one way to refuse [MQTT-3.9.3-2]
    return head + bytes(min(reason, 0x80) for reason in packet.reasons)


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    head = _short(packet.packet_id)
    if version == Version.V5:
        head += encode_properties(packet.properties)
    return head + b"".join(map(wire.text, packet.filters))


def _unsuback(packet: UnsubAck, version: int) -> bytes:
    head = _short(packet.packet_id)
    if version < Version.V5:
        return head
    return head + encode_properties(packet.properties) + bytes(packet.reasons)


def _ping(packet: PingReq | PingResp, version: int) -> bytes:
    return b""


def _reasoned(packet: Disconnect | Auth, version: int) -> bytes:
    if version < Version.V5 or (packet.reason == 0 and packet.properties == NO_PROPERTIES):
        return b""
    head = bytes((packet.reason,))
    if packet.properties == NO_PROPERTIES and isinstance(packet, Disconnect):
        return head
    return head + encode_properties(packet.properties)


ENCODERS: Final[dict[type[Packet], tuple[PacketType, int, Callable[[Any, int], bytes]]]] = {
    Connect: (PacketType.CONNECT, 0, _connect),
    ConnAck: (PacketType.CONNACK, 0, _connack),
    Publish: (PacketType.PUBLISH, 0, _publish),
    PubAck: (PacketType.PUBACK, 0, _acknowledgement),
    PubRec: (PacketType.PUBREC, 0, _acknowledgement),
    PubRel: (PacketType.PUBREL, 2, _acknowledgement),
    PubComp: (PacketType.PUBCOMP, 0, _acknowledgement),
    Subscribe: (PacketType.SUBSCRIBE, 2, _subscribe),
    SubAck: (PacketType.SUBACK, 0, _suback),
    Unsubscribe: (PacketType.UNSUBSCRIBE, 2, _unsubscribe),
    UnsubAck: (PacketType.UNSUBACK, 0, _unsuback),
    PingReq: (PacketType.PINGREQ, 0, _ping),
    PingResp: (PacketType.PINGRESP, 0, _ping),
    Disconnect: (PacketType.DISCONNECT, 0, _reasoned),
    Auth: (PacketType.AUTH, 0, _reasoned),
}
