"""PUBLISH packets of one `$queue/...` subscription: the hot half of delivering, in one piece each.

Answers for first deliveries of QoS 1 that do not expire; everything else is written by the
deliverer, part by part. A test holds both to the same bytes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from protocols.mqtt import wire
from protocols.mqtt.frames import identifier_octets, property_octets, topic_octets, user_octets
from protocols.mqtt.properties import QUEUE_PREFIX
from protocols.mqtt.queue_addresses import source_topic

if TYPE_CHECKING:
    from queue_core.consumers import Delivery

PUBLISH_1: Final = b"\x32"
MESSAGE_ID: Final = b"\x26" + wire.text("message-id")
OFFSET: Final = b"\x26" + wire.text("offset")
SOURCE: Final = b"\x26" + wire.text("x-source-topic")
NEVER_FAILED: Final = user_octets([("delivery-count", "0")])
MAX_SOURCES: Final = 1024
MAX_KEY_KEPT: Final = 512  # characters; of a longer one each is written by itself
VARINTS: Final = tuple(wire.varint(number) for number in range(2048))


def _varint(number: int) -> bytes:
    return VARINTS[number] if number < 2048 else wire.varint(number)


def source_octets(name: str, exchange: str, routing_key: str) -> bytes:
    """Where a message was published, as a user property; none where that is longer than MQTT can
    say, as keys of other protocols may be."""
    source = source_topic(name, exchange, routing_key).encode()
    return SOURCE + wire.binary(source) if len(source) <= wire.MAX_LENGTH else b""


class QueueFrames:
    """Measured on messages of 100 bytes from AMQP 0.9.1, for MQTT 5: see `QueueSink.deliver`."""

    def __init__(
        self, name: str, group: bytes, identifiers: tuple[int, ...], queues: Container[str]
    ) -> None:
        self._name = name
        self._queues = queues
        self._topic = topic_octets(QUEUE_PREFIX + name)
        self._identifiers = identifier_octets(identifiers)
        octets = name.encode()
        # What stands before the message id and before the offset, by the digits of the offset.
        self._before = [
            (
                self._identifiers
                + MESSAGE_ID
                + (len(octets) + 1 + digits).to_bytes(2, "big")
                + octets
                + b":",
                group + OFFSET + digits.to_bytes(2, "big"),
            )
            for digits in range(20)
        ]
        self._sources: dict[tuple[str, str], bytes] = {}

    def frame(self, delivery: Delivery, packet_id: int) -> bytes:
        """For 5.0."""
        message = delivery.message
        digits = b"%d" % delivery.offset
        before_id, before_offset = self._before[len(digits)]
        behind = self._sources.get((message.exchange, message.routing_key))
        if behind is None:
            behind = self._keep_source(message.exchange, message.routing_key)
        said = property_octets(message, self._queues)
        size = len(said) + len(before_id) + len(before_offset) + 2 * len(digits) + len(behind)
        size_octets = _varint(size)
        topic, body = self._topic, message.body
        length = len(topic) + 2 + len(size_octets) + size + len(body)
        return b"".join(
            (
                PUBLISH_1,
                _varint(length),
                topic,
                packet_id.to_bytes(2, "big"),
                size_octets,
                said,
                before_id,
                digits,
                before_offset,
                digits,
                behind,
                body,
            )
        )

    def plain_frame(self, delivery: Delivery, packet_id: int) -> bytes:
        """For 3.x."""
        topic, body = self._topic, delivery.message.body
        length = _varint(len(topic) + 2 + len(body))
        return b"".join((PUBLISH_1, length, topic, packet_id.to_bytes(2, "big"), body))

    def _keep_source(self, exchange: str, routing_key: str) -> bytes:
        source = source_octets(self._name, exchange, routing_key) + NEVER_FAILED
        if len(routing_key) <= MAX_KEY_KEPT:
            if len(self._sources) >= MAX_SOURCES:
                self._sources.clear()
            self._sources[exchange, routing_key] = source
        return source
