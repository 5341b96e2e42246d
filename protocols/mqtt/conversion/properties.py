"""Reads a PUBLISH's properties: which bytes are kept, and which facts the gateway itself must know.

`to_canonical` and `from_canonical` tell what each property becomes in other protocols. A message's
`native` holds the properties as its publisher wrote them, without those that belong to one hop: the
topic alias, and the expiry, which is counted down and so written anew. QoS 2 and retain are a byte
before them, of a value that no property begins with. No socket and no session is known here: the
store reads messages back with this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocols.mqtt.conversion import from_canonical
from protocols.mqtt.conversion.from_canonical import built_properties
from protocols.mqtt.conversion.to_canonical import (
    QUEUE_PREFIX,
    canonical,
    reply_address,
    user_priority,
)
from protocols.mqtt.wire.primitives import Reader
from protocols.mqtt.wire.property_set import (
    MESSAGE_EXPIRY,
    RULES,
    TOPIC_ALIAS,
    USER_PROPERTY,
    PacketType,
    decode_property_bytes,
)
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, malformed, violation
from queue_core.message.carried_headers import PUBLISHER
from queue_core.message.memo import Memo
from queue_core.message.message import NO_PROPERTIES as NOTHING_SAID
from queue_core.message.message import Message, Properties

__all__ = [
    "FACTS",
    "FORMS",
    "MQTT3",
    "MQTT5",
    "QUEUE_PREFIX",
    "PublishFacts",
    "built_properties",
    "check_response_topic",
    "is_text",
    "native_of",
    "published_qos",
    "read_facts",
    "reply_address",
    "was_retained",
    "written_properties",
]

MAX_KEPT_SETS: Final = 4096  # property sets are kept by their bytes
MAX_KEPT_BYTES: Final = 512  # longer ones are read anew each time

FLAGGED: Final = 0x80  # marks the byte before the properties, which has one of these bits:
QOS_2: Final = 0x02
RETAIN: Final = 0x04


class Mqtt3Form:
    """Implements the core's `Form`. 3.x has no properties."""

    code = 1

    def properties(self, native: bytes) -> Properties:
        return NOTHING_SAID


class Mqtt5Form:
    """Implements the core's `Form` for messages with MQTT 5 properties."""

    code = 2

    def __init__(self) -> None:
        self._kept: Memo[bytes, Properties] = Memo(MAX_KEPT_SETS)

    def properties(self, native: bytes) -> Properties:
        known = self._kept.get(native)
        if known is None:
            written = written_properties(native)
            known = canonical(decode_property_bytes(written, PacketType.PUBLISH))
            if len(native) <= MAX_KEPT_BYTES:
                self._kept.keep(native, known)
        return known


MQTT3: Final = Mqtt3Form()
MQTT5: Final = Mqtt5Form()
FORMS: Final = (MQTT3, MQTT5)


def written_properties(native: bytes) -> bytes:
    """Returns the properties alone, without the byte of flags before them."""
    return native[1:] if native and native[0] >= FLAGGED else native


def published_qos(message: Message) -> int:
    """Returns the QoS that a message was published with; a durable one of another protocol has
    1."""
    if message.durable and _flags(message) & QOS_2:
        return 2
    return from_canonical.qos(message.durable)


def was_retained(message: Message) -> bool:
    """Tells whether a message was published with the retain flag."""
    return message.retain or bool(_flags(message) & RETAIN)


def _flags(message: Message) -> int:
    native = message.native
    if native and native[0] >= FLAGGED and message.form in FORMS:
        return native[0]
    return 0


def native_of(properties: bytes, qos: int, retain: bool) -> bytes:
    """Returns the bytes to keep of a PUBLISH beside its topic and payload; for most there are
    none."""
    flags = (QOS_2 if qos == 2 else 0) | (RETAIN if retain else 0)
    return bytes((FLAGGED | flags,)) + properties if flags else properties


class PublishFacts(NamedTuple):
    """The facts about a PUBLISH's properties that the gateway itself must know."""

    native: bytes
    alias: int | None = None
    expiry: int | None = None
    priority: int | None = None
    is_text: bool = False
    user: tuple[tuple[str, str], ...] = ()
    claimed_users: tuple[str, ...] = ()  # whom it names as its publisher: AMQP's user-id
    is_passing: bool = True  # nothing for the gateway to do: the bytes are passed on as they are


USER_ID: Final = "user-id"
NO_FACTS: Final = PublishFacts(b"")


class FactCache:
    """Keeps facts by the bytes that say them, as publishers repeat themselves. Bounded."""

    def __init__(self) -> None:
        self._kept: Memo[bytes, PublishFacts] = Memo(MAX_KEPT_SETS)

    def of(self, raw: bytes) -> PublishFacts:
        facts = self._kept.get(raw)
        if facts is None:
            facts = read_facts(raw)
            if len(raw) <= MAX_KEPT_BYTES:
                self._kept.keep(raw, facts)
        return facts


FACTS: Final = FactCache()


def read_facts(raw: bytes) -> PublishFacts:
    """Reads the facts out of a PUBLISH's properties as a client wrote them, without their length.
    Raises MqttError."""
    if not raw:
        return NO_FACTS
    found = decode_property_bytes(raw, PacketType.PUBLISH)
    if found.subscription_identifiers:  # [MQTT-3.3.4-6]
        raise violation("a client's PUBLISH with a subscription identifier")
    check_response_topic(found.response_topic)
    is_forged = any(name == PUBLISHER for name, _ in found.user)
    native = raw
    if found.topic_alias is not None or found.message_expiry is not None or is_forged:
        native = without_hop_properties(raw)
    priority = user_priority(found.user)
    claimed_users = tuple(value for name, value in found.user if name == USER_ID)
    is_passing = native is raw and priority is None and found.payload_format != 1
    return PublishFacts(
        native,
        found.topic_alias,
        found.message_expiry,
        priority,
        found.payload_format == 1,
        found.user,
        claimed_users,
        is_passing and not claimed_users,
    )


def check_response_topic(topic: str | None) -> None:
    if topic == "":  # [MQTT-4.7.3-1]
        raise malformed("an empty response topic")
    if topic is not None and ("+" in topic or "#" in topic):  # [MQTT-3.3.2-14]
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a response topic with a wildcard in it")


def is_text(payload: bytes) -> bool:
    """Tells whether a payload is the UTF-8 that its format indicator promises."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def without_hop_properties(raw: bytes) -> bytes:
    """Returns the properties that travel on, byte for byte and in their order."""
    reader, kept = Reader(raw), []
    while reader.left:
        start = reader.position
        number = reader.varint()
        value = RULES[number].kind.read(reader)
        is_forged = number == USER_PROPERTY and isinstance(value, tuple) and value[0] == PUBLISHER
        if number not in (TOPIC_ALIAS, MESSAGE_EXPIRY) and not is_forged:
            kept.append(raw[start : reader.position])
    return b"".join(kept)
