"""CONNECT, read and written: the one packet that says which version all others are in."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.packets import Connect, Version, Will
from protocols.mqtt.wire.primitives import Reader
from protocols.mqtt.wire.property_set import (
    NO_PROPERTIES,
    PacketType,
    decode_properties,
    encode_properties,
)
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, malformed, violation

NAMES: Final = {
    Version.V31: "MQIsdp",
    Version.V311: "MQTT",
    Version.V5: "MQTT",
}
RESERVED, CLEAN, WILL, RETAIN, PASSWORD, USERNAME = 0x01, 0x02, 0x04, 0x20, 0x40, 0x80


def version_of(body: bytes) -> int:
    """Returns the level that a CONNECT names, as far as it can be read: an answer to one that is
    refused should be in words that its sender knows. 0: it is no CONNECT at all."""
    try:
        reader = Reader(body)
        name, level = reader.text(), reader.byte()
    except MqttError:
        return 0
    return level if name in NAMES.values() else 0


def decode_connect(reader: Reader) -> Connect:
    version = _version(reader)
    flags = reader.byte()
    _check_flags(flags, version)
    keep_alive = reader.short()
    is_5 = version is Version.V5
    properties = decode_properties(reader, PacketType.CONNECT) if is_5 else NO_PROPERTIES
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise violation("authentication data without a method")
    client_id = reader.text()
    will = _will(reader, flags, is_5) if flags & WILL else None
    # 3.1 lets a client leave them out although it has set their flags
    may_end = version is Version.V31
    username = reader.text() if flags & USERNAME and (reader.left or not may_end) else None
    password = reader.binary() if flags & PASSWORD and (reader.left or not may_end) else None
    return Connect(
        client_id, version, bool(flags & CLEAN), keep_alive, username, password, will, properties
    )


def _version(reader: Reader) -> Version:
    name, level = reader.text(), reader.byte()
    if name not in NAMES.values():  # [MQTT-3.1.2-1]
        raise MqttError(
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, f"protocol name '{name[:20]}' is not MQTT"
        )
    for version, its_name in NAMES.items():
        if version == level and its_name == name:
            return version
    raise MqttError(  # [MQTT-3.1.2-2]
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, f"{name} level {level}; use 3.1, 3.1.1 or 5.0"
    )


def _check_flags(flags: int, version: Version) -> None:
    if flags & RESERVED and version is not Version.V31:  # [MQTT-3.1.2-3]
        raise malformed("CONNECT with its reserved flag set")
    if flags & WILL:
        if flags >> 3 & 3 == 3:  # [MQTT-3.1.2-12]
            raise malformed("a will with QoS 3")
    elif flags & (RETAIN | 0x18):  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise malformed("will QoS or retain without a will")
    if flags & PASSWORD and not flags & USERNAME and version is not Version.V5:
        raise malformed("a password without a user name")  # [MQTT-3.1.2-22] of 3.1.1


def _will(reader: Reader, flags: int, is_5: bool) -> Will:
    properties = decode_properties(reader, PacketType.WILL) if is_5 else NO_PROPERTIES
    topic = reader.text()
    payload = reader.binary()
    if not topic or "+" in topic or "#" in topic:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "the will's topic is no topic name")
    return Will(topic, payload, flags >> 3 & 3, bool(flags & RETAIN), properties)


def encode_connect(packet: Connect) -> bytes:
    """Returns the body of a CONNECT."""
    is_5 = packet.version is Version.V5
    will = packet.will
    flags = CLEAN if packet.clean_start else 0
    parts = []
    if is_5:
        parts.append(encode_properties(packet.properties))
    parts.append(wire.text(packet.client_id))
    if will is not None:
        flags |= WILL | will.qos << 3 | (RETAIN if will.retain else 0)
        if is_5:
            parts.append(encode_properties(will.properties))
        parts += wire.text(will.topic), wire.binary(will.payload)
    if packet.username is not None:
        flags |= USERNAME
        parts.append(wire.text(packet.username))
    if packet.password is not None:
        flags |= PASSWORD
        parts.append(wire.binary(packet.password))
    head = wire.text(NAMES[packet.version]) + bytes((packet.version, flags))
    return head + packet.keep_alive.to_bytes(2, "big") + b"".join(parts)
