"""Reads and writes MQTT messages as documents: a PUBLISH as a client sends it, and as a subscriber
gets it."""

from __future__ import annotations

from typing import Any, Final

from gateway.message_files.document import (
    Document,
    MessageFileError,
    check_keys,
    flag,
    number,
    octets,
    section,
    text,
)
from protocols.mqtt.conversion.properties import (
    MQTT3,
    MQTT5,
    native_of,
    published_qos,
    read_facts,
    was_retained,
)
from protocols.mqtt.deliver.frames import expiry_octets, property_octets
from protocols.mqtt.wire.property_set import (
    PacketType,
    PropertySet,
    decode_property_bytes,
    encode_property_bytes,
)
from protocols.mqtt.wire.reasons import MqttError
from queue_core.message.message import Message
from queue_core.routing.topics import levels_of

KEYS_3: Final = ("topic", "qos", "retain", "payload", "publisher")
KEYS_5: Final = (*KEYS_3, "properties")
PROPERTIES: Final = {
    "payload-format-indicator": "payload_format",
    "message-expiry-interval": "message_expiry",
    "content-type": "content_type",
    "response-topic": "response_topic",
    "correlation-data": "correlation_data",
    "user-properties": "user",
}
MAX_EXPIRY: Final = 0xFFFF_FFFF


def read_3(found: Document, now: float) -> Message:
    check_keys(found, KEYS_3)
    return _message(found, PropertySet(), now, is_5=False)


def read_5(found: Document, now: float) -> Message:
    check_keys(found, KEYS_5)
    given = section(found, "properties")
    check_keys(given, PROPERTIES, "properties.")
    said: dict[str, Any] = {
        "payload_format": number(given, "payload-format-indicator", "properties.", 1),
        "message_expiry": number(given, "message-expiry-interval", "properties.", MAX_EXPIRY),
        "content_type": text(given, "content-type", "properties."),
        "response_topic": text(given, "response-topic", "properties."),
        "correlation_data": octets(given, "correlation-data", "properties."),
        "user": _user(given.get("user-properties", [])),
    }
    return _message(found, PropertySet(**said), now, is_5=True)


def _user(given: object) -> tuple[tuple[str, str], ...]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise MessageFileError(
            'properties.user-properties: expected an object of texts, or [["name", "value"], ...]'
        )
    return tuple((name, value) for name, value in pairs)


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(part, str) for part in pair)
    )


def _message(found: Document, said: PropertySet, now: float, *, is_5: bool) -> Message:
    topic = text(found, "topic", default="topic")
    levels_of(topic)
    qos = number(found, "qos", "", 2)
    qos = 1 if qos is None else qos
    retain = flag(found, "retain", "", False)
    try:
        facts = read_facts(encode_property_bytes(said))
    except (MqttError, ValueError, UnicodeError) as error:
        raise MessageFileError(f"properties: {error}") from None
    return Message(
        octets(found, "payload", default=b""),
        topic=topic,
        durable=qos > 0,
        form=MQTT5 if is_5 else MQTT3,
        native=native_of(facts.native, qos, retain),
        priority=facts.priority,
        expires_at=None if facts.expiry is None else now + facts.expiry,
        publisher=text(found, "publisher", default="publisher"),
        retain=retain,
    )


def write_3(message: Message, now: float) -> Document:
    return {
        "topic": message.topic,
        "qos": published_qos(message),
        "retain": was_retained(message),
        "payload": message.body,
    }


def write_5(message: Message, now: float) -> Document:
    raw = expiry_octets(message, now) + property_octets(message)
    found = decode_property_bytes(raw, PacketType.PUBLISH)
    said: Document = {}
    for name, field in PROPERTIES.items():
        value = getattr(found, field)
        if value is not None and value != ():
            said[name] = [list(pair) for pair in value] if field == "user" else value
    return {**write_3(message, now), "properties": said}
