"""Between MQTT's properties and the canonical ones, both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from protocols.mqtt.conversion.properties import (
    FACTS,
    MQTT3,
    MQTT5,
    built_properties,
    native_of,
    published_qos,
    read_facts,
    reply_address,
    was_retained,
    written_properties,
)
from protocols.mqtt.deliver.frames import expiry_octets, property_octets
from protocols.mqtt.wire.property_set import (
    PacketType,
    PropertySet,
    decode_property_bytes,
    encode_property_bytes,
)
from protocols.mqtt.wire.reasons import MqttError
from queue_core.message.message import Death, Message, Properties

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def canonical(**said: object) -> Properties:
    return MQTT5.properties(encode_property_bytes(PropertySet(**said)))  # type: ignore[arg-type]


def built(properties: Properties, **facts: object) -> PropertySet:
    message = Message(b"", properties=properties, routing_key="k", **facts)  # type: ignore[arg-type]
    return decode_property_bytes(built_properties(message, False), PacketType.PUBLISH)


def test_what_mqtt_says_has_its_canonical_place() -> None:
    said = canonical(
        payload_format=1,
        content_type="text/plain",
        response_topic="a/b",
        correlation_data=b"\0\xff",
        user=(
            ("content-encoding", "gzip"),
            ("message-id", "m"),
            ("subject", "s"),
            ("app-id", "a"),
            ("user-id", "u"),
            ("group-id", "g"),
            ("created", "2026-01-31T12:00:00+00:00"),
            ("own", "1"),
            ("own", "2"),
            ("x-publisher-id", "forged"),
        ),
    )
    assert said == Properties(
        content_type="text/plain",
        content_encoding="gzip",
        message_id="m",
        correlation_id=b"\0\xff",
        reply_to="a.b",
        subject="s",
        app_id="a",
        user_id="u",
        group_id="g",
        created_at=WHEN,
        headers=(("own", "1"), ("own", "2"), ("x-payload-format", 1)),
    )


def test_what_others_say_has_its_place_in_mqtt() -> None:
    said = built(
        Properties(
            content_type="text/plain",
            content_encoding="gzip",
            message_id=UUID(int=7),
            correlation_id=42,
            reply_to="a.b",
            subject="s",
            created_at=WHEN,
            headers=(("n", 5), ("yes", True), ("deep", {"a": [1, None]}), ("raw", b"\xff")),
        ),
        priority=3,
        publisher="somebody",
    )
    assert said.content_type == "text/plain"
    assert said.correlation_data == b"42"
    assert said.response_topic == "a/b"
    assert said.user == (
        ("content-encoding", "gzip"),
        ("message-id", f"urn:uuid:{UUID(int=7)}"),
        ("subject", "s"),
        ("created", "2026-01-31T12:00:00+00:00"),
        ("priority", "3"),
        ("n", "5"),
        ("yes", "true"),
        ("deep", '{"a":[1,null]}'),
        ("raw", "\\xff"),
        ("x-publisher-id", "somebody"),
        (
            "x-types",
            (
                '[{"field":"correlation_id","type":"integer"},{"name":"n","type":"integer"},'
                '{"name":"yes","type":"boolean"},{"name":"deep","type":{}},'
                '{"name":"raw","type":"binary"}]'
            ),
        ),
    )


def test_the_way_to_mqtt_and_back_keeps_what_is_text() -> None:
    first = Properties(
        content_type="t",
        content_encoding="e",
        message_id="m",
        correlation_id=b"c",
        reply_to="queue-name",
        subject="s",
        app_id="a",
        user_id="u",
        group_id="g",
        created_at=WHEN,
        headers=(
            ("h", "1"),
            ("h", "2"),
            ("x-payload-format", 1),
            ("x-reply-address", "$queue/queue-name"),
        ),
    )
    message = Message(b"", properties=first, routing_key="k")
    assert MQTT5.properties(built_properties(message, True)) == first


def test_a_reply_address_is_a_key_that_leads_there() -> None:
    assert reply_address("$queue/orders") == "orders"
    assert reply_address("answers/here") == "answers.here"


def test_deaths_are_told() -> None:
    death = Death(queue="q", reason="rejected")
    said = dict(built(Properties(), deaths=(death,)).user)
    assert said["x-death"] == '[{"queue":"q","reason":"rejected"}]'


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("written", [b"", b"\x01\x01"])
def test_qos_and_retain_are_kept_beside_the_properties(
    qos: int, retain: bool, written: bytes
) -> None:
    for form in (MQTT3, MQTT5):
        native = native_of(written, qos, retain)
        message = Message(b"", topic="t", durable=qos > 0, form=form, native=native)
        assert published_qos(message) == qos
        assert was_retained(message) == retain
        assert written_properties(native) == written


def test_a_durable_message_from_elsewhere_has_qos_1() -> None:
    assert published_qos(Message(b"", topic="t", native=b"\x82")) == 1
    assert published_qos(Message(b"", topic="t", durable=False)) == 0


def test_what_belongs_to_one_hop_is_taken_off_and_the_rest_stays_byte_for_byte() -> None:
    """Also when they stand between others, in an order that we would not choose."""
    kept = bytes.fromhex("260001620001 32".replace(" ", "")) + bytes.fromhex("0101")
    raw = bytes.fromhex("260001620001 32".replace(" ", "")) + bytes.fromhex(
        "230005 0200000009 0101".replace(" ", "")
    )
    facts = read_facts(raw)
    assert (facts.alias, facts.expiry, facts.is_text) == (5, 9, True)
    assert facts.native == kept
    assert not facts.is_passing


def test_facts_are_kept_by_their_bytes() -> None:
    raw = encode_property_bytes(PropertySet(user=(("a", "b"),)))
    assert FACTS.of(raw) is FACTS.of(bytes(raw))
    assert FACTS.of(raw).is_passing


def test_mqtt_3_3_2_14_a_response_topic_has_no_wildcard() -> None:
    with pytest.raises(MqttError):
        read_facts(encode_property_bytes(PropertySet(response_topic="a/#")))


def test_what_is_too_long_or_has_a_character_that_mqtt_lacks_comes_back_all_the_same() -> None:
    said = Properties(
        subject="x" * 70_000,
        app_id="a\0b",
        correlation_id="y" * 70_000,
        content_type="\0",
        headers=(("\0name", "1"), ("\ufffdname", "2"), ("n" * 70_000, "ü" * 70_000)),
    )
    written = built(said)
    assert all(len(text.encode()) <= 65_535 for pair in written.user for text in pair)
    assert MQTT5.properties(encode_property_bytes(written)) == said


def test_properties_of_another_form_are_built_once() -> None:
    message = Message(b"", properties=Properties(subject="s"), routing_key="k")
    assert property_octets(message) is property_octets(message)
    assert property_octets(Message(b"", topic="t", form=MQTT3)) == b""


def test_what_is_left_of_a_life_is_never_less_than_nothing() -> None:
    message = Message(b"", topic="t", expires_at=100.0)
    assert expiry_octets(message, 40.5) == b"\x02" + (60).to_bytes(4, "big")
    assert expiry_octets(message, 500.0) == b"\x02\0\0\0\0"
    assert expiry_octets(Message(b"", topic="t"), 0.0) == b""


@pytest.mark.parametrize(
    ("given", "waited", "left"),
    [
        (100, 0, 100),
        (100, 0.4, 100),
        (100, 1, 99),
        (100, 2.2, 98),
        (1, 0.9, 1),
        (1, 1, 0),
        (0, 0, 0),
    ],
)
def test_mqtt_3_3_2_6_the_seconds_that_a_message_waited_are_taken_off(
    given: int, waited: float, left: int
) -> None:
    for since in (0.0, 1_700_000_000.1, 1_700_000_000.3, 1_999_999_999.7):
        message = Message(b"", topic="a", expires_at=since + given)
        assert expiry_octets(message, since + waited) == b"\x02" + left.to_bytes(4, "big")
