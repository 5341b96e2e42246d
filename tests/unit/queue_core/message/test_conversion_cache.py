"""A conversion kept for many messages is what each of them would have been by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import protocols.amqp091.conversion.properties as amqp091
import protocols.amqp10.conversion.properties as amqp10
from protocols.amqp091.conversion import from_canonical as to_amqp091
from protocols.amqp091.wire.content import encode_properties
from protocols.amqp10.conversion import from_canonical as to_amqp10
from protocols.mqtt.conversion.from_canonical import built_properties
from protocols.mqtt.conversion.properties import MQTT5
from protocols.mqtt.deliver import frames
from protocols.mqtt.wire.property_set import PropertySet, encode_property_bytes
from queue_core.message.conversion_cache import MAX_KEPT, MAX_NATIVE_BYTES, Writings
from queue_core.message.message import Death, Form, Message

BODIES = [b"text", b"", b"\xff\x00", b"\x00\x53\x75\xa0\x01x"]
SAID: list[tuple[Form, bytes]] = [
    (MQTT5, b""),
    *(
        (MQTT5, encode_property_bytes(said))
        for said in (
            PropertySet(content_type="application/json", user=(("unit", "K"), ("unit", "C"))),
            PropertySet(payload_format=1, content_type="text/plain; charset=utf-8"),
            PropertySet(payload_format=1),
            PropertySet(content_type="application/vnd.howdah.amqp-value"),
            PropertySet(response_topic="a/b.c", correlation_data=b"\xff"),
            PropertySet(user=(("x-amqp10-data", "[1, 3]"), ("message-id", "m"))),
        )
    ),
    (amqp091.FORM, encode_properties({"headers": {"n": 1, "nested": {"a": [1]}}, "priority": 3})),
    (amqp091.FORM, encode_properties({"content_type": "text/plain", "reply_to": "q"})),
]
Write = Callable[[Message], bytes]
TARGETS: list[tuple[Form, Write, Write]] = [
    (
        amqp091.FORM,
        lambda message: amqp091.native_of(message, 0.0),
        lambda message: to_amqp091.encode(to_amqp091.build(message), None, 0.0),
    ),
    (
        amqp10.FORM,
        lambda message: amqp10.native_of(message, ()),
        lambda message: to_amqp10.build(message, ()).native,
    ),
    (
        MQTT5,
        lambda message: frames.property_octets(message, {"q"}),
        lambda message: built_properties(message, True),
    ),
]


@pytest.mark.parametrize(("form", "kept", "alone"), TARGETS, ids=["0.9.1", "1.0", "MQTT 5"])
@pytest.mark.parametrize("said", SAID)
def test_what_is_kept_is_what_each_would_have_been_alone(
    said: tuple[Form, bytes], form: Form, kept: Write, alone: Write
) -> None:
    for body in [*BODIES, *BODIES]:
        for publisher in (None, "sensor"):
            for durable, priority, key in ((True, None, "k"), (False, 4, "k" * 300)):
                message = Message(
                    body,
                    routing_key=key,
                    durable=durable,
                    form=said[0],
                    native=said[1],
                    priority=priority,
                    publisher=publisher,
                )
                if message.form is not form:
                    assert kept(message) == alone(message)


def test_what_died_or_is_large_is_written_by_itself() -> None:
    writings = Writings(lambda message: message.native)
    death = Death(queue="q", reason="rejected")
    assert writings.of(Message(b"", form=MQTT5, deaths=(death,))) is None
    assert writings.of(Message(b"", form=None)) is None
    assert writings.of(Message(b"", form=MQTT5, native=bytes(MAX_NATIVE_BYTES + 1))) is None
    assert len(writings) == 0


def test_it_keeps_no_more_than_its_bound() -> None:
    writings = Writings(lambda message: message.native)
    for number in range(MAX_KEPT + 10):
        user = encode_property_bytes(PropertySet(user=(("n", str(number)),)))
        assert writings.of(Message(b"", form=MQTT5, native=user)) == user
    assert len(writings) <= MAX_KEPT
