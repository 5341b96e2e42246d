"""The properties of MQTT 5 packets: table 2-4 of the standard as a table, and its codec.

Knows which property is allowed where, how it is written, and whether it may come twice. What a
property means is the business of those who read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.primitives import Reader
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, malformed, violation

UserProperties = tuple[tuple[str, str], ...]
MOST_PROPERTIES: Final = 1024  # in one packet from a client: others wait for some 5 ms


class PacketType(IntEnum):
    """Table 2-1. WILL is no packet: a will's properties stand inside CONNECT."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PropertySet(msgspec.Struct, frozen=True, kw_only=True):
    """All properties that a packet can have; None: the packet does not have it."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem: int | None = None
    will_delay: int | None = None
    request_response: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: UserProperties = ()
    maximum_packet_size: int | None = None
    wildcard_available: int | None = None
    identifiers_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = PropertySet()


class Kind(NamedTuple):
    """The way a value is written; `check` names what is wrong with one, or says None."""

    read: Callable[[Reader], object]
    write: Callable[[object], bytes]


def _pair(reader: Reader) -> tuple[str, str]:
    return reader.text(), reader.text()


def _write_text(value: object) -> bytes:
    return wire.text(str(value))


def _write_binary(value: object) -> bytes:
    return wire.binary(value if isinstance(value, bytes) else bytes(str(value), "utf-8"))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _write_number(size: int) -> Callable[[object], bytes]:
    return lambda value: _number(value).to_bytes(size, "big")


BYTE: Final = Kind(Reader.byte, _write_number(1))
SHORT: Final = Kind(Reader.short, _write_number(2))
LONG: Final = Kind(Reader.long, _write_number(4))
VARINT: Final = Kind(Reader.varint, lambda value: wire.varint(_number(value)))
TEXT: Final = Kind(Reader.text, _write_text)
BINARY: Final = Kind(Reader.binary, _write_binary)


class Rule(NamedTuple):
    field: str
    kind: Kind
    packets: frozenset[PacketType]
    values: range | None = None  # allowed values, where not all are


def _in(*types: PacketType) -> frozenset[PacketType]:
    return frozenset(types)


P = PacketType
FLAG: Final = range(2)
ANSWERS: Final = _in(P.CONNACK, P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP, P.SUBACK, P.UNSUBACK)
CONTENT: Final = _in(P.PUBLISH, P.WILL)
USER_PROPERTY: Final = 0x26
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
TOPIC_ALIAS: Final = 0x23
MESSAGE_EXPIRY: Final = 0x02

RULES: Final[dict[int, Rule]] = {
    0x01: Rule("payload_format", BYTE, CONTENT, FLAG),
    MESSAGE_EXPIRY: Rule("message_expiry", LONG, CONTENT),
    0x03: Rule("content_type", TEXT, CONTENT),
    0x08: Rule("response_topic", TEXT, CONTENT),
    0x09: Rule("correlation_data", BINARY, CONTENT),
    SUBSCRIPTION_IDENTIFIER: Rule(
        "subscription_identifiers",
        VARINT,
        _in(P.PUBLISH, P.SUBSCRIBE),
        range(1, wire.MAX_VARINT + 1),
    ),
    0x11: Rule("session_expiry", LONG, _in(P.CONNECT, P.CONNACK, P.DISCONNECT)),
    0x12: Rule("assigned_client_id", TEXT, _in(P.CONNACK)),
    0x13: Rule("server_keep_alive", SHORT, _in(P.CONNACK)),
    0x15: Rule("authentication_method", TEXT, _in(P.CONNECT, P.CONNACK, P.AUTH)),
    0x16: Rule("authentication_data", BINARY, _in(P.CONNECT, P.CONNACK, P.AUTH)),
    0x17: Rule("request_problem", BYTE, _in(P.CONNECT), FLAG),
    0x18: Rule("will_delay", LONG, _in(P.WILL)),
    0x19: Rule("request_response", BYTE, _in(P.CONNECT), FLAG),
    0x1A: Rule("response_information", TEXT, _in(P.CONNACK)),
    0x1C: Rule("server_reference", TEXT, _in(P.CONNACK, P.DISCONNECT)),
    0x1F: Rule("reason_string", TEXT, ANSWERS | _in(P.DISCONNECT, P.AUTH)),
    0x21: Rule("receive_maximum", SHORT, _in(P.CONNECT, P.CONNACK), range(1, 65_536)),
    0x22: Rule("topic_alias_maximum", SHORT, _in(P.CONNECT, P.CONNACK)),
    # An alias of 0 or beyond the maximum is not malformed: it has a code of its own.
    TOPIC_ALIAS: Rule("topic_alias", SHORT, _in(P.PUBLISH)),
    0x24: Rule("maximum_qos", BYTE, _in(P.CONNACK), FLAG),
    0x25: Rule("retain_available", BYTE, _in(P.CONNACK), FLAG),
    USER_PROPERTY: Rule(
        "user",
        Kind(_pair, _write_text),
        ANSWERS | CONTENT | _in(P.CONNECT, P.SUBSCRIBE, P.UNSUBSCRIBE, P.DISCONNECT, P.AUTH),
    ),
    0x27: Rule("maximum_packet_size", LONG, _in(P.CONNECT, P.CONNACK), range(1, 0x1_0000_0000)),
    0x28: Rule("wildcard_available", BYTE, _in(P.CONNACK), FLAG),
    0x29: Rule("identifiers_available", BYTE, _in(P.CONNACK), FLAG),
    0x2A: Rule("shared_available", BYTE, _in(P.CONNACK), FLAG),
}


def decode_properties(reader: Reader, packet: PacketType) -> PropertySet:
    """Reads the property length and the properties behind it. Raises MqttError."""
    length = reader.varint()
    if length == 0:
        return NO_PROPERTIES
    if length > reader.left:
        raise malformed(f"{length} bytes of properties are announced, {reader.left} are left")
    stop = reader.position + length
    inner = Reader(reader.data, reader.position, stop)
    reader.position = stop
    return _decode_all(inner, packet, MOST_PROPERTIES)


def decode_property_bytes(raw: bytes, packet: PacketType) -> PropertySet:
    """Reads properties without the length before them. Raises MqttError."""
    return _decode_all(Reader(raw), packet) if raw else NO_PROPERTIES


def _decode_all(reader: Reader, packet: PacketType, most: int = sys.maxsize) -> PropertySet:
    """Reads all properties. `most`: properties that may come, repeated ones included. Raises
    MqttError."""
    found: dict[str, object] = {}
    user: list[tuple[str, str]] = []
    identifiers: list[int] = []
    while reader.left:
        number = reader.varint()
        rule = RULES.get(number)
        if rule is None or packet not in rule.packets:
            raise malformed(f"property 0x{number:02X} has no place in {packet.name}")
        most -= 1
        if most < 0:
            raise MqttError(
                ReasonCode.QUOTA_EXCEEDED, f"{packet.name} with over {MOST_PROPERTIES} properties"
            )
        value = rule.kind.read(reader)
        if rule.values is not None and value not in rule.values:
            raise violation(f"{rule.field} cannot be {value}")
        if number == USER_PROPERTY:
            user.append(value)  # type: ignore[arg-type]
        elif number == SUBSCRIPTION_IDENTIFIER and (packet is P.PUBLISH or not identifiers):
            identifiers.append(value)  # type: ignore[arg-type]
        elif rule.field in found or number == SUBSCRIPTION_IDENTIFIER:
            raise violation(f"{rule.field} is given twice")
        else:
            found[rule.field] = value
    return PropertySet(
        user=tuple(user),
        subscription_identifiers=tuple(identifiers),
        **found,  # type: ignore[arg-type]
    )


def encode_properties(properties: PropertySet) -> bytes:
    """Returns the property length and the properties behind it."""
    raw = encode_property_bytes(properties)
    return wire.varint(len(raw)) + raw


def encode_property_bytes(properties: PropertySet) -> bytes:
    if properties is NO_PROPERTIES:
        return b""
    parts: list[bytes] = []
    for number, rule in RULES.items():
        value = getattr(properties, rule.field)
        if value is None or value == ():
            continue
        head = wire.varint(number)
        if number == USER_PROPERTY:
            parts += (head + wire.text(name) + wire.text(said) for name, said in value)
        elif number == SUBSCRIPTION_IDENTIFIER:
            parts += (head + rule.kind.write(identifier) for identifier in value)
        else:
            parts.append(head + rule.kind.write(value))
    return b"".join(parts)
