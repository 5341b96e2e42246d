"""Packets that are small for their size and long to handle: how much one of them may hold."""

from __future__ import annotations

import pytest

from protocols.mqtt.publish.topic_aliases import (
    EMPTY_TOPIC,
    MOST_ALIASED_CHARACTERS,
    IncomingAliases,
    OutgoingAliases,
)
from protocols.mqtt.wire.codec import MOST_FILTERS, decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Connect,
    Packet,
    Publish,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import (
    MOST_PROPERTIES,
    PacketType,
    PropertySet,
    decode_property_bytes,
    encode_properties,
)
from protocols.mqtt.wire.reasons import MqttError, ReasonCode


def many(count: int) -> PropertySet:
    return PropertySet(user=(("a", "b"),) * count)


def decoded(packet: Packet, version: Version) -> Packet:
    raw = encode(packet, version)
    frame = split(raw, 0, len(raw))
    assert frame is not None
    return decode(frame.head, raw[frame.start : frame.end], version)


@pytest.mark.parametrize("kind", ["PUBLISH", "CONNECT", "its will", "SUBSCRIBE"])
def test_a_packet_has_so_many_properties_and_no_more(kind: str) -> None:
    def packet(count: int) -> Packet:
        said = many(count)
        packets: dict[str, Packet] = {
            "PUBLISH": Publish("t", b"", properties=said, raw_properties=encode_properties(said)),
            "CONNECT": Connect("c", properties=said),
            "its will": Connect("c", will=Will("t", b"", properties=said)),
            "SUBSCRIBE": Subscribe(1, (SubscribeRequest("t"),), said),
        }
        return packets[kind]

    decoded(packet(MOST_PROPERTIES), Version.V5)
    with pytest.raises(MqttError) as caught:
        decoded(packet(MOST_PROPERTIES + 1), Version.V5)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED


def test_subscription_identifiers_count_as_much_as_user_properties() -> None:
    raw = b"\0\1t" + b"\x82\x10" + b"\x0b\1" * (MOST_PROPERTIES + 1)
    with pytest.raises(MqttError) as caught:
        decode(PacketType.PUBLISH << 4, raw, Version.V5)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED


def test_a_stored_message_is_read_whatever_it_has() -> None:
    raw = encode_properties(many(2 * MOST_PROPERTIES))
    length = 2  # of their length
    found = decode_property_bytes(raw[length:], PacketType.PUBLISH)
    assert len(found.user) == 2 * MOST_PROPERTIES


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_a_packet_names_so_many_filters_and_no_more(version: Version, kind: type[Packet]) -> None:
    def packet(count: int) -> Packet:
        if kind is Subscribe:
            return Subscribe(1, (SubscribeRequest("t"),) * count)
        return Unsubscribe(1, ("t",) * count)

    decoded(packet(MOST_FILTERS), version)
    with pytest.raises(MqttError) as caught:
        decoded(packet(MOST_FILTERS + 1), version)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED


def test_topics_with_a_number_take_a_bounded_memory() -> None:
    incoming, outgoing = IncomingAliases(100), OutgoingAliases(100)
    long = "x" * (MOST_ALIASED_CHARACTERS // 8)
    for number in range(1, 9):
        assert incoming.resolve(number, str(number) + long[1:]) == incoming.resolve(number, "")
        assert outgoing.write(str(number) + long[1:])[1]
    assert incoming.resolve(8, "9" + long[1:])  # in place of another
    with pytest.raises(MqttError) as refusal:
        incoming.resolve(9, "short")
    assert refusal.value.reason is ReasonCode.QUOTA_EXCEEDED
    assert outgoing.write("short")[1] == b""
    assert outgoing.write("8" + long[1:])[0] == EMPTY_TOPIC
    outgoing.take_back("8" + long[1:])
    assert outgoing.write("short")[1]
