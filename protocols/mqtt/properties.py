"""Between MQTT's properties and the canonical ones, both ways.

`native` of a message is what its publisher wrote as properties, without those that belong to one
hop: the topic alias, and the expiry, which is counted down and so written anew. QoS 2 and retain
are a byte before them, of a value that no property begins with. No socket, no session: the store
reads messages back with this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from protocols.mqtt import wire
from protocols.mqtt.property_set import (
    MESSAGE_EXPIRY,
    NO_PROPERTIES,
    RULES,
    TOPIC_ALIAS,
    USER_PROPERTY,
    PacketType,
    PropertySet,
    decode_property_bytes,
    encode_property_bytes,
)
from protocols.mqtt.reasons import MqttError, ReasonCode, violation
from protocols.mqtt.wire import Reader
from queue_core.message import NO_PROPERTIES as NOTHING_SAID
from queue_core.message import Message, Properties, Value
from queue_core.topics import dotted, slashed

log = logging.getLogger(__name__)

MAX_KEPT: Final = 4096  # property sets kept by their bytes
MAX_KEPT_BYTES: Final = 512  # longer ones are read anew each time

FLAGGED: Final = 0x80  # the byte before the properties that says, with one of these:
QOS_2: Final = 0x02
RETAIN: Final = 0x04

QUEUE_PREFIX: Final = "$queue/"
PUBLISHER: Final = "x-publisher-id"  # stamped by the gateway; from a client it is taken off
PRIORITY: Final = "priority"
FORMAT: Final = "x-payload-format"  # carries the payload format indicator through others
NAMES: Final = {  # canonical field -> the user property that says it
    "content_encoding": "content-encoding",
    "message_id": "message-id",
    "subject": "subject",
    "app_id": "app-id",
    "user_id": "user-id",
    "group_id": "group-id",
}
FIELDS: Final = {name: field for field, name in NAMES.items()}
CREATED: Final = "created"
DEATHS: Final = "x-death"


class Mqtt3Form:
    """Implements the core's `Form`. 3.x has no properties."""

    code = 1

    def properties(self, native: bytes) -> Properties:
        return NOTHING_SAID


class Mqtt5Form:
    """Implements the core's `Form`."""

    code = 2

    def __init__(self) -> None:
        self._kept: dict[bytes, Properties] = {}

    def properties(self, native: bytes) -> Properties:
        known = self._kept.get(native)
        if known is None:
            written = written_properties(native)
            known = canonical(decode_property_bytes(written, PacketType.PUBLISH))
            if len(native) <= MAX_KEPT_BYTES:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[native] = known
        return known


MQTT3: Final = Mqtt3Form()
MQTT5: Final = Mqtt5Form()
FORMS: Final = (MQTT3, MQTT5)


def written_properties(native: bytes) -> bytes:
    """The properties alone."""
    return native[1:] if native and native[0] >= FLAGGED else native


def published_qos(message: Message) -> int:
    """The QoS that a message was published with; what came durable from elsewhere has 1."""
    if not message.durable:
        return 0
    return 2 if _flags(message) & QOS_2 else 1


def was_retained(message: Message) -> bool:
    """Whether it was published with the retain flag."""
    return message.retain or bool(_flags(message) & RETAIN)


def _flags(message: Message) -> int:
    native = message.native
    if native and native[0] >= FLAGGED and message.form in FORMS:
        return native[0]
    return 0


def native_of(properties: bytes, qos: int, retain: bool) -> bytes:
    """What is kept of a PUBLISH beside its topic and payload. Nothing at all of most."""
    flags = (QOS_2 if qos == 2 else 0) | (RETAIN if retain else 0)
    return bytes((FLAGGED | flags,)) + properties if flags else properties


class PublishFacts(NamedTuple):
    """What the gateway itself must know of a PUBLISH's properties."""

    native: bytes
    alias: int | None = None
    expiry: int | None = None
    priority: int | None = None
    is_text: bool = False
    user: tuple[tuple[str, str], ...] = ()
    is_passing: bool = True  # nothing for the gateway to do: the bytes are passed on as they are


NO_FACTS: Final = PublishFacts(b"")


class FactCache:
    """Facts by the bytes that say them: publishers repeat themselves. Bounded."""

    def __init__(self) -> None:
        self._kept: dict[bytes, PublishFacts] = {}

    def of(self, raw: bytes) -> PublishFacts:
        facts = self._kept.get(raw)
        if facts is None:
            facts = read_facts(raw)
            if len(raw) <= MAX_KEPT_BYTES:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[raw] = facts
        return facts


FACTS: Final = FactCache()


def read_facts(raw: bytes) -> PublishFacts:
    """Of the properties of a PUBLISH as a client wrote them, without their length."""
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
    priority = _priority(found.user)
    return PublishFacts(
        native,
        found.topic_alias,
        found.message_expiry,
        priority,
        found.payload_format == 1,
        found.user,
        native is raw and priority is None and found.payload_format != 1,
    )


def check_response_topic(topic: str | None) -> None:
    if topic is not None and ("+" in topic or "#" in topic):  # [MQTT-3.3.2-14]
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a response topic with a wildcard in it")


def without_hop_properties(raw: bytes) -> bytes:
    """Those that travel on, byte for byte and in their order."""
    reader, kept = Reader(raw), []
    while reader.left:
        start = reader.position
        number = reader.varint()
        value = RULES[number].kind.read(reader)
        is_forged = number == USER_PROPERTY and isinstance(value, tuple) and value[0] == PUBLISHER
        if number not in (TOPIC_ALIAS, MESSAGE_EXPIRY) and not is_forged:
            kept.append(raw[start : reader.position])
    return b"".join(kept)


def _priority(user: tuple[tuple[str, str], ...]) -> int | None:
    for name, value in user:
        if name == PRIORITY and value.isdecimal() and int(value) <= 255:
            return int(value)
    return None


# --- to the canonical


def canonical(found: PropertySet) -> Properties:
    """What a PUBLISH's properties say, in no protocol's terms."""
    if found is NO_PROPERTIES:
        return NOTHING_SAID
    values: dict[str, object] = {}
    headers: list[tuple[str, Value]] = []
    for name, value in found.user:
        field = FIELDS.get(name)
        created = _time(value) if name == CREATED else None
        if field is not None and field not in values:
            values[field] = value
        elif created is not None and "created_at" not in values:
            values["created_at"] = created
        elif name != PUBLISHER and not (name == PRIORITY and _priority(((name, value),))):
            headers.append((name, value))
    if found.payload_format:
        headers.append((FORMAT, 1))
    return Properties(
        content_type=found.content_type,
        correlation_id=found.correlation_data,
        reply_to=None if found.response_topic is None else reply_address(found.response_topic),
        headers=tuple(headers),
        **values,  # type: ignore[arg-type]
    )


def reply_address(topic: str) -> str:
    """A queue's name for a queue topic, else the topic in dot form: either is a routing key that
    leads there from the default exchange."""
    name = topic.removeprefix(QUEUE_PREFIX)
    return name if name != topic and "/" not in name else dotted(topic)


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


# --- from the canonical


def built_properties(message: Message, is_queue: bool) -> bytes:
    """The properties of a message that came from another protocol, without its expiry. `is_queue`:
    its reply address is the name of a queue."""
    said = message.properties
    user: list[tuple[str, str]] = []
    for field, name in NAMES.items():
        value = getattr(said, field)
        if value is not None:
            user.append((name, text_of(value)))
    if said.created_at is not None:
        user.append((CREATED, text_of(said.created_at)))
    if message.priority is not None:
        user.append((PRIORITY, str(message.priority)))
    user += ((name, text_of(value)) for name, value in said.headers if name != FORMAT)
    if message.deaths:
        user.append((DEATHS, msgspec.json.encode(message.deaths).decode()))
    if message.publisher is not None:
        user.append((PUBLISHER, message.publisher))
    reply_to = said.reply_to
    if reply_to is not None:
        reply_to = QUEUE_PREFIX + reply_to if is_queue else slashed(reply_to)
    correlation = None if said.correlation_id is None else _octets(said.correlation_id)
    return encode_property_bytes(
        PropertySet(
            payload_format=1 if any(name == FORMAT for name, _ in said.headers) else None,
            content_type=_fitting("content-type", said.content_type),
            response_topic=_fitting("response-topic", reply_to),
            correlation_data=correlation,
            user=tuple(_fitting_pairs(user)),
        )
    )


def _octets(value: str | bytes | int | UUID) -> bytes | None:
    raw = value if isinstance(value, bytes) else text_of(value).encode()
    if len(raw) <= wire.MAX_LENGTH:
        return raw
    log.warning("correlation data of %d bytes has no room in MQTT, and is left out", len(raw))
    return None


def _fitting(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    value = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if len(value) <= wire.MAX_LENGTH // 4 or len(value.encode()) <= wire.MAX_LENGTH:
        return value
    log.warning("%s of %d characters has no room in MQTT, and is left out", name[:80], len(value))
    return None


def _fitting_pairs(user: list[tuple[str, str]]) -> list[tuple[str, str]]:
    pairs = []
    for name, value in user:
        fits_name, fits = _fitting("a name", name), _fitting(name, value)
        if fits_name is not None and fits is not None:
            pairs.append((fits_name, fits))
    return pairs


def text_of(value: Value) -> str:
    """A value as a user property says it: text as it is, a nested one as JSON."""
    match value:
        case str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "\\x" + value.hex()
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case UUID():
            return f"urn:uuid:{value}"
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
        case _:
            return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Value) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return text_of(value)
