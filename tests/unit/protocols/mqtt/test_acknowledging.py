"""Acknowledgements out of place, and what counts as a sign of life."""

from __future__ import annotations

import pytest

from protocols.mqtt.connection import HEARD_BYTES
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
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
    Version,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.unit.protocols.mqtt.wired import Broking, Wire


async def in_flight(here: Broking, qos: int, version: Version = Version.V5) -> tuple[Wire, int]:
    """A client that has been sent a message of that QoS, and its packet identifier."""
    client = await here.client("s", version)
    client.gets(Subscribe(1, (SubscribeRequest("a", qos),)))
    await client.until(SubAck)
    publisher = await here.client("p")
    publisher.gets(Publish("a", b"1", qos, packet_id=1))
    await client.until(Publish)
    return client, client.of(Publish)[0].packet_id


@pytest.mark.parametrize(
    ("qos", "kind"), [(1, PubRec), (1, PubComp), (2, PubAck), (2, PubComp)], ids=str
)
async def test_mqtt_4_13_1_1_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error(
    qos: int, kind: type[PubAck | PubRec | PubComp]
) -> None:
    client, packet_id = await in_flight(Broking(), qos)
    client.gets(kind(packet_id))
    await client.until(Disconnect)
    assert client.of(Disconnect)[0].reason == 0x82
    assert not client.is_open


@pytest.mark.parametrize("kind", [PubAck, PubRec, PubComp])
async def test_an_acknowledgement_of_the_wrong_kind_ends_a_connection_of_3_1_1(
    kind: type[PubAck | PubRec | PubComp],
) -> None:
    qos = 1 if kind is PubRec else 2
    client, packet_id = await in_flight(Broking(), qos, Version.V311)
    client.gets(kind(packet_id))
    assert not client.is_open


@pytest.mark.parametrize(
    ("packet", "answers"),
    [
        (PubAck(99), []),
        (PubComp(99), []),
        (PubRec(99), [PubRel(99, 0x92)]),
        (PubRec(99, 0x80), []),
        (PubRec(99, 0x97), []),
    ],
    ids=str,
)
async def test_an_acknowledgement_of_nothing_is_answered_where_its_sender_waits(
    packet: Packet, answers: list[Packet]
) -> None:
    here = Broking()
    client = await here.client("s")
    client.gets(packet, PingReq())
    await client.until(PingResp)
    assert client.heard[1:-1] == answers
    assert here.context.counters.stray_acknowledgements == 1


async def test_a_pubrec_that_came_twice_is_answered_twice() -> None:
    client, packet_id = await in_flight(Broking(), 2)
    client.gets(PubRec(packet_id))
    client.gets(PubRec(packet_id))
    client.gets(PubComp(packet_id))
    client.gets(PingReq())
    await client.until(PingResp)
    assert client.of(PubRel) == [PubRel(packet_id), PubRel(packet_id)]


async def test_mqtt_4_7_3_1_an_empty_response_topic_ends_the_connection() -> None:
    client = await Broking().client("s")
    client.gets(Publish("a", b"1", properties=PropertySet(response_topic="")))
    await client.until(Disconnect)
    assert client.of(Disconnect)[0].reason == 0x81


async def test_mqtt_3_1_2_22_single_bytes_are_no_sign_of_life_and_whole_packets_are() -> None:
    client = await Broking().client("s", keep_alive=10)
    connection = client.connection
    slow = encode(Publish("a", b"x" * 100_000), 5)
    client.gets_bytes(slow[:1])
    connection._heard -= 16  # the last packet was so long ago
    for octet in slow[1:100]:
        client.gets_bytes(bytes((octet,)))
    connection._on_silence()
    await client.until(Disconnect)
    assert client.of(Disconnect)[0].reason == 0x8D


@pytest.mark.parametrize("signs", [PingReq(), Publish("a", b"x")], ids=["ping", "publish"])
async def test_mqtt_3_1_2_22_a_packet_counts_when_its_last_byte_is_there(signs: Packet) -> None:
    client = await Broking().client("s", keep_alive=10)
    raw = encode(signs, 5)
    client.gets_bytes(raw[:1])
    client.connection._heard -= 16
    client.gets_bytes(raw[1:])
    client.connection._on_silence()
    assert client.is_open


async def test_a_large_packet_that_goes_on_is_a_sign_of_life() -> None:
    client = await Broking().client("s", keep_alive=10)
    slow = encode(Publish("a", b"x" * 10 * HEARD_BYTES), 5)
    client.gets_bytes(slow[:10])
    client.connection._heard -= 16
    client.gets_bytes(slow[10 : HEARD_BYTES + 10])
    client.connection._on_silence()
    assert client.is_open
