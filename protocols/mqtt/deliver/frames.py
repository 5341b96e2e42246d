"""PUBLISH as it is sent: written once for each (version, QoS, flags) and shared by all subscribers.

Frames lie in `message.encoded`, so a fan-out to a thousand subscribers encodes once; a packet
identifier is put between two shared halves. Parts that differ from subscriber to subscriber
(aliases, subscription identifiers, an expiry that is counted down) are written for each.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from protocols.mqtt.conversion.from_canonical import seconds_left
from protocols.mqtt.conversion.properties import FORMS, MQTT5, built_properties, written_properties
from protocols.mqtt.wire import primitives as wire
from queue_core.message.conversion_cache import Writings
from queue_core.message.memo import Memo
from queue_core.message.message import Message

PUBLISH: Final = 0x30
DUP: Final = 0x08
RETAIN: Final = 0x01
MAX_KEPT_TOPICS: Final = 10_000
MAX_KEPT_TOPIC_CHARACTERS: Final = 256

# Keys in `message.encoded`, which other adapters use too: none of theirs is such a number.
KEYS_V3: Final = (0x4D51_0300, 0x4D51_0301, 0x4D51_0302)  # by QoS
KEYS_V5: Final = (0x4D51_0500, 0x4D51_0501, 0x4D51_0502)
PROPERTIES_KEY: Final = 0x4D51_0510

_topics: Final[Memo[str, bytes]] = Memo(MAX_KEPT_TOPICS)


class Halves(NamedTuple):
    """A PUBLISH with a packet identifier missing in its middle."""

    front: bytes
    back: bytes


def topic_octets(topic: str) -> bytes:
    """Returns the topic with its length before it."""
    octets = _topics.get(topic)
    if octets is None:
        octets = wire.text(topic)
        if len(topic) <= MAX_KEPT_TOPIC_CHARACTERS:
            _topics.keep(topic, octets)
    return octets


# Messages with a reply address are written one by one: no writing here is asked for a queue.
WRITINGS: Final = Writings(lambda message: built_properties(message, False))


def shared_octets(message: Message) -> bytes | None:
    """Returns the properties of a message as MQTT 5 writes them, if messages that say the same
    share them; else None."""
    form = message.form
    if form is MQTT5:
        return written_properties(message.native)
    if form in FORMS:
        return b""
    return WRITINGS.of(message)


def property_octets(message: Message, queues: Container[str] = ()) -> bytes:
    """Returns the properties of a message as MQTT 5 writes them, without length, expiry and the
    properties of one subscriber. `queues`: those there are, where a reply address may name one."""
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
    """Returns a QoS 0 PUBLISH without flags: all subscribers of a version share these bytes."""
    front, back = _halves(message, is_5, PUBLISH, 0, queues)
    frame = front + back
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    encoded[(KEYS_V5 if is_5 else KEYS_V3)[0]] = frame
    return frame


def halves(message: Message, is_5: bool, qos: int, queues: Container[str] = ()) -> Halves:
    """Returns the halves of a QoS 1 or 2 PUBLISH without flags."""
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
    """Returns the halves of a PUBLISH with flags, topic and properties of one subscriber;
    properties None: 3.x."""
    back = message.body
    if properties is not None:
        back = wire.varint(len(properties)) + properties + back
    gap = 2 if head & 0x06 else 0
    return Halves(bytes((head,)) + wire.varint(len(topic) + gap + len(back)) + topic, back)


def expiry_octets(message: Message, now: float) -> bytes:
    """Returns the property with the rest of the message's life, in whole seconds [MQTT-3.3.2-6]."""
    if message.expires_at is None:
        return b""
    return b"\x02" + seconds_left(message.expires_at, now).to_bytes(4, "big")


def identifier_octets(identifiers: tuple[int, ...]) -> bytes:
    return b"".join(b"\x0b" + wire.varint(identifier) for identifier in identifiers)


def user_octets(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(b"\x26" + wire.text(name) + wire.text(value) for name, value in pairs)
