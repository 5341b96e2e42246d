"""Bytes to packets and back, for every version: the version is an argument.

`split` alone ever sees an incomplete packet, and it checks the declared length before a byte of the
body is kept. Everything below it is total: it gives a packet, or raises MqttError with the code
that the standard has for what is wrong. Whether a packet may come now, the machine says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from protocols.mqtt.wire.connect_codec import decode_connect, version_of
from protocols.mqtt.wire.packets import (
    Acknowledgement,
    Auth,
    ConnAck,
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
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
    Version,
)
from protocols.mqtt.wire.primitives import Reader
from protocols.mqtt.wire.property_set import (
    NO_PROPERTIES,
    PacketType,
    PropertySet,
    decode_properties,
)
from protocols.mqtt.wire.reasons import (
    DISCONNECT_REASONS,
    MqttError,
    ReasonCode,
    malformed,
    violation,
)


class Frame(NamedTuple):
    """One whole packet within a buffer."""

    head: int  # the first byte: type and flags
    start: int  # where the body begins
    end: int


def split(buffer: bytes, position: int, limit: int) -> Frame | None:
    """Returns the packet that begins at `position`; None: it is not all here yet. `limit` is the
    largest whole packet that is accepted [MQTT-3.2.2-15]."""
    size = len(buffer)
    length = shift = 0
    at = position + 1
    while at < size:
        byte = buffer[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if at - position + length > limit:
                raise MqttError(
                    ReasonCode.PACKET_TOO_LARGE,
                    f"a packet of {at - position + length} bytes; {limit} is the most",
                )
            return Frame(buffer[position], at, at + length) if at + length <= size else None
        shift += 7
        if shift > 21:
            raise malformed("the remaining length has more than four bytes")
    return None


# The flags that each packet must have [MQTT-2.1.3-1]; PUBLISH has its own meaning for them.
FLAGS: Final[dict[PacketType, int]] = {
    PacketType.PUBREL: 0x02,  # [MQTT-3.6.1-1]
    PacketType.SUBSCRIBE: 0x02,  # [MQTT-3.8.1-1]
    PacketType.UNSUBSCRIBE: 0x02,  # [MQTT-3.10.1-1]
}
DUP: Final = 0x08
MOST_FILTERS: Final = 4096  # in one SUBSCRIBE or UNSUBSCRIBE: others wait for some 20 ms


def decode(head: int, body: bytes, version: int) -> Packet:
    """Returns the packet with that first byte and that body. `version` is what CONNECT agreed
    on."""
    number = head >> 4
    if number == 0 or (number == PacketType.AUTH and version < Version.V5):
        raise malformed(f"packet type {number} does not exist in version {version}")
    kind = PacketType(number)
    flags = head & 0x0F
    if kind is not PacketType.PUBLISH and flags != FLAGS.get(kind, 0):
        if kind is PacketType.CONNECT:
            version = version_of(body)
        if version != Version.V31:  # 3.1 uses no flags but PUBLISH's, and repeats with DUP set
            raise malformed(f"{kind.name} with flags 0x{flags:X}")
    reader = Reader(body)
    packet = DECODERS[kind](reader, flags, version)
    reader.done()
    return packet


def _properties(reader: Reader, kind: PacketType, version: int) -> PropertySet:
    return decode_properties(reader, kind) if version == Version.V5 else NO_PROPERTIES


def _decode_connect(reader: Reader, flags: int, version: int) -> Packet:
    return decode_connect(reader)


def _decode_connack(reader: Reader, flags: int, version: int) -> Packet:
    acknowledged = reader.byte()
    if acknowledged > 1:  # [MQTT-3.2.2-1]
        raise malformed("CONNACK with reserved flags")
    reason = reader.byte()
    return ConnAck(acknowledged == 1, reason, _properties(reader, PacketType.CONNACK, version))


def _decode_publish(reader: Reader, flags: int, version: int) -> Packet:
    qos = flags >> 1 & 3
    dup = bool(flags & DUP)
    if qos == 3:  # [MQTT-3.3.1-4]
        raise malformed("PUBLISH with QoS 3")
    if dup and qos == 0:  # [MQTT-3.3.1-2]
        raise malformed("PUBLISH with DUP and QoS 0")
    topic = reader.text()
    check_topic(topic, version)
    packet_id = _packet_id(reader) if qos else 0
    start = reader.position
    properties = _properties(reader, PacketType.PUBLISH, version)
    raw = _without_length(reader.data[start : reader.position])
    if not topic and properties.topic_alias is None:
        raise violation("PUBLISH with neither a topic nor a topic alias")
    return Publish(topic, reader.rest(), qos, bool(flags & 1), dup, packet_id, properties, raw)


def _without_length(raw: bytes) -> bytes:
    at = 0
    while at < len(raw) and raw[at] >= 0x80:
        at += 1
    return raw[at + 1 :]


def check_topic(topic: str, version: int) -> None:
    """Raises MqttError for a topic name with a wildcard in it [MQTT-3.3.2-2], or without a
    character [MQTT-4.7.3-1] where no alias can stand for it."""
    if "+" in topic or "#" in topic:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic name with a wildcard in it")
    if not topic and version < Version.V5:
        raise malformed("PUBLISH with an empty topic")


def check_filter(topic_filter: str, version: int) -> None:
    """Raises MqttError for what no server may take for a filter: the connection ends
    [MQTT-4.13.1-1]. A filter that is well formed, and not to be had here, is answered."""
    if not topic_filter:  # [MQTT-4.7.3-1]
        raise malformed("an empty topic filter")
    if "+" in topic_filter or "#" in topic_filter:
        levels = topic_filter.split("/")
        if "#" in levels[:-1]:  # [MQTT-4.7.1-1]
            raise malformed("a topic filter that goes on after #")
        if any(len(each) > 1 and ("+" in each or "#" in each) for each in levels):
            raise malformed("a topic filter with a wildcard in a longer level")  # [MQTT-4.7.1-2]
    if version == Version.V5 and topic_filter.startswith("$share/"):
        share, slash, rest = topic_filter[len("$share/") :].partition("/")
        if not share or "+" in share or "#" in share:  # [MQTT-4.8.2-1]
            raise malformed("a shared subscription without a group's name")
        if not slash or not rest:  # [MQTT-4.8.2-2]
            raise malformed("a shared subscription without a filter")


def _packet_id(reader: Reader) -> int:
    packet_id = reader.short()
    if packet_id == 0:  # [MQTT-2.2.1-3], [MQTT-2.2.1-4]
        raise violation("packet identifier 0")
    return packet_id


PUBLISH_REASONS: Final = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
RELEASE_REASONS: Final = frozenset((0x00, 0x92))
AUTH_REASONS: Final = frozenset((0x00, 0x18, 0x19))
SUBACK_REASONS: Final = frozenset(
    (0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
)
SUBACK_RETURN_CODES: Final = frozenset((0x00, 0x01, 0x02, 0x80))  # of 3.1.1 [MQTT-3.9.3-2]
UNSUBACK_REASONS: Final = frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91))


def _reason(reader: Reader, allowed: frozenset[int], kind: PacketType) -> int:
    reason = reader.byte()
    if reason not in allowed:
        raise malformed(f"{kind.name} with reason code 0x{reason:02X}")
    return reason


def _acknowledgement(
    packet: type[Acknowledgement], kind: PacketType, reasons: frozenset[int]
) -> Callable[[Reader, int, int], Packet]:
    """Reads one of the four acknowledgements, which are written alike; reason and properties may be
    left out."""

    def decode_one(reader: Reader, flags: int, version: int) -> Packet:
        packet_id = _packet_id(reader)
        if version < Version.V5 or not reader.left:
            return packet(packet_id)
        reason = _reason(reader, reasons, kind)
        properties = decode_properties(reader, kind) if reader.left else NO_PROPERTIES
        return packet(packet_id, reason, properties)

    return decode_one


def _decode_subscribe(reader: Reader, flags: int, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.SUBSCRIBE, version)
    requests = []
    while reader.left:
        requests.append(_decode_request(reader, version))
        _check_count(len(requests))
    if not requests:  # [MQTT-3.8.3-2], in 3.1.1 [MQTT-3.8.3-3]
        raise violation("SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(requests), properties)


def _check_count(filters: int) -> None:
    """Limits the filters of a packet, as it is handled in one piece, however many others wait for
    their turn."""
    if filters > MOST_FILTERS:
        raise MqttError(
            ReasonCode.QUOTA_EXCEEDED,
            f"more than {MOST_FILTERS} filters in one packet; send several",
        )


def _decode_request(reader: Reader, version: int) -> SubscribeRequest:
    topic_filter = reader.text()
    check_filter(topic_filter, version)
    options = reader.byte()
    qos = options & 3
    handling = options >> 4 & 3
    reserved = 0xC0 if version == Version.V5 else 0xFC
    if options & reserved:  # [MQTT-3.8.3-5], in 3.1.1 [MQTT-3-8.3-4]
        raise malformed("SUBSCRIBE with reserved bits in its options")
    if qos == 3 or handling == 3:
        raise violation("SUBSCRIBE with QoS or retain handling 3")
    no_local = bool(options & 4)
    if no_local and topic_filter.startswith("$share/"):  # [MQTT-3.8.3-4]
        raise violation("no-local on a shared subscription")
    return SubscribeRequest(topic_filter, qos, no_local, bool(options & 8), handling)


def _decode_suback(reader: Reader, flags: int, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.SUBACK, version)
    allowed = SUBACK_REASONS if version == Version.V5 else SUBACK_RETURN_CODES
    reasons = tuple(_reason(reader, allowed, PacketType.SUBACK) for _ in range(reader.left))
    return SubAck(packet_id, reasons, properties)


def _decode_unsubscribe(reader: Reader, flags: int, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.UNSUBSCRIBE, version)
    filters = []
    while reader.left:
        filters.append(reader.text())
        check_filter(filters[-1], version)
        _check_count(len(filters))
    if not filters:  # [MQTT-3.10.3-2]
        raise violation("UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _decode_unsuback(reader: Reader, flags: int, version: int) -> Packet:
    packet_id = _packet_id(reader)
    if version < Version.V5:
        return UnsubAck(packet_id)
    properties = decode_properties(reader, PacketType.UNSUBACK)
    reasons = tuple(
        _reason(reader, UNSUBACK_REASONS, PacketType.UNSUBACK) for _ in range(reader.left)
    )
    return UnsubAck(packet_id, reasons, properties)


def _decode_pingreq(reader: Reader, flags: int, version: int) -> Packet:
    return PingReq()


def _decode_pingresp(reader: Reader, flags: int, version: int) -> Packet:
    return PingResp()


def _decode_disconnect(reader: Reader, flags: int, version: int) -> Packet:
    if version < Version.V5 or not reader.left:
        return Disconnect()
    reason = _reason(reader, DISCONNECT_REASONS, PacketType.DISCONNECT)
    properties = decode_properties(reader, PacketType.DISCONNECT) if reader.left else NO_PROPERTIES
    return Disconnect(reason, properties)


def _decode_auth(reader: Reader, flags: int, version: int) -> Packet:
    if not reader.left:
        return Auth()
    reason = _reason(reader, AUTH_REASONS, PacketType.AUTH)
    return Auth(reason, decode_properties(reader, PacketType.AUTH))


DECODERS: Final[dict[PacketType, Callable[[Reader, int, int], Packet]]] = {
    PacketType.CONNECT: _decode_connect,
    PacketType.CONNACK: _decode_connack,
    PacketType.PUBLISH: _decode_publish,
    PacketType.PUBACK: _acknowledgement(PubAck, PacketType.PUBACK, PUBLISH_REASONS),
    PacketType.PUBREC: _acknowledgement(PubRec, PacketType.PUBREC, PUBLISH_REASONS),
    PacketType.PUBREL: _acknowledgement(PubRel, PacketType.PUBREL, RELEASE_REASONS),
    PacketType.PUBCOMP: _acknowledgement(PubComp, PacketType.PUBCOMP, RELEASE_REASONS),
    PacketType.SUBSCRIBE: _decode_subscribe,
    PacketType.SUBACK: _decode_suback,
    PacketType.UNSUBSCRIBE: _decode_unsubscribe,
    PacketType.UNSUBACK: _decode_unsuback,
    PacketType.PINGREQ: _decode_pingreq,
    PacketType.PINGRESP: _decode_pingresp,
    PacketType.DISCONNECT: _decode_disconnect,
    PacketType.AUTH: _decode_auth,
}


def needed_for(rest: bytes) -> int:
    """Returns how many bytes the packet that begins here has; one more than are here if that is not
    known."""
    length = shift = 0
    for at in range(1, min(len(rest), 5)):
        length |= (rest[at] & 0x7F) << shift
        if rest[at] < 0x80:
            return at + 1 + length
        shift += 7
    return len(rest) + 1
