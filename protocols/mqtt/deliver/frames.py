"""PUBLISH as it is sent: written once for each (version, QoS, flags) and shared by all subscribers.

Frames lie in `message.encoded`, so a fan-out to a thousand subscribers encodes once; a packet
identifier is put between two shared halves. What differs from subscriber to subscriber (aliases,
subscription identifiers, an expiry that is counted down) is written for each.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from protocols.mqtt.conversion.from_canonical import seconds_left
from protocols.mqtt.conversion.properties import FORMS, MQTT5, built_properties, written_properties
from protocols.mqtt.wire import primitives as wire
from queue_core.message.conversion_cache import Writings
from queue_core.message.message import Message

PUBLISH: Final = 0x30
DUP: Final = 0x08
RETAIN: Final = 0x01
MAX_TOPICS_KEPT: Final = 10_000
MAX_TOPIC_KEPT: Final = 256  # characters

# Keys in `message.encoded`, which other adapters use too: none of theirs is such a number.
KEYS_V3: Final = (0x4D51_0300, 0x4D51_0301, 0x4D51_0302)  # by QoS
KEYS_V5: Final = (0x4D51_0500, 0x4D51_0501, 0x4D51_0502)
PROPERTIES_KEY: Final = 0x4D51_0510

_topics: dict[str, bytes] = {}


class Halves(NamedTuple):
    """A PUBLISH with a packet identifier missing in its middle."""

    front: bytes
    back: bytes


def topic_octets(topic: str) -> bytes:
    """The topic with its length before it."""
    octets = _topics.get(topic)
    if octets is None:
        octets = wire.text(topic)
        if len(topic) <= MAX_TOPIC_KEPT:
            if len(_topics) >= MAX_TOPICS_KEPT:
                _topics.clear()
            _topics[topic] = octets
    return octets


# What has a reply address is written by itself, so none of these is asked whether it is a queue.
WRITINGS: Final = Writings(lambda message: built_properties(message, False))


def shared_octets(message: Message) -> bytes | None:
    """The properties of a message as MQTT 5 writes them, if all that say the same have the same."""
    form = message.form
    if form is MQTT5:
        return written_properties(message.native)
    if form in FORMS:
        return b""
    return WRITINGS.of(message)


def property_octets(message: Message, queues: Container[str] = ()) -> bytes:
    """The properties of a message as MQTT 5 writes them, without length, expiry and whatever
    belongs to one subscriber. `queues`: those there are, where a reply address may name one."""
    shared = shared_octets(message)
    if shared is not None:
        return shared
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    octets = encoded.get(PROPERTIES_KEY)
    if octets is None:
        is_queue = message.properties.reply_to in queues
        octets = encoded[PROPERTIES_KEY] = built_properties(message, is_queue)
    assert isinstance(octets, bytes)
    return octets


def frame_0(message: Message, is_5: bool, queues: Container[str] = ()) -> bytes:
    """QoS 0, no flags: all subscribers of a version share these bytes."""
    front, back = _halves(message, is_5, PUBLISH, 0, queues)
    frame = front + back
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    encoded[(KEYS_V5 if is_5 else KEYS_V3)[0]] = frame
    return frame


def halves(message: Message, is_5: bool, qos: int, queues: Container[str] = ()) -> Halves:
    """QoS 1 or 2, no flags."""
    made = _halves(message, is_5, PUBLISH | qos << 1, 2, queues)
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    encoded[(KEYS_V5 if is_5 else KEYS_V3)[qos]] = made
    return made


def _halves(message: Message, is_5: bool, head: int, gap: int, queues: Container[str]) -> Halves:
    topic = topic_octets(message.topic)
    back = message.body
    if is_5:
        properties = property_octets(message, queues)
        back = wire.varint(len(properties)) + properties + back if properties else b"\0" + back
    length = len(topic) + gap + len(back)
    if length < 0x80:
        return Halves(bytes((head, length)) + topic, back)
    return Halves(bytes((head,)) + wire.varint(length) + topic, back)


def special_halves(message: Message, head: int, topic: bytes, properties: bytes | None) -> Halves:
    """With flags, topic and properties of one subscriber; properties None: 3.x."""
    back = message.body
    if properties is not None:
        back = wire.varint(len(properties)) + properties + back
    gap = 2 if head & 0x06 else 0
    return Halves(bytes((head,)) + wire.varint(len(topic) + gap + len(back)) + topic, back)


def expiry_octets(message: Message, now: float) -> bytes:
    """What is left of the message's life, in whole seconds [MQTT-3.3.2-6]."""
    if message.expires_at is None:
        return b""
    return b"\x02" + seconds_left(message.expires_at, now).to_bytes(4, "big")


def identifier_octets(identifiers: tuple[int, ...]) -> bytes:
    return b"".join(b"\x0b" + wire.varint(identifier) for identifier in identifiers)


def user_octets(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(b"\x26" + wire.text(name) + wire.text(value) for name, value in pairs)
