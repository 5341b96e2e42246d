"""PUBLISH in both directions: QoS, order, DUP, windows, aliases, sizes, expiry."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.mqtt_raw_client import Mqtt
from tests.support.names import fresh
from tests.support.until import turns

P = PropertySet


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
async def test_mqtt_3_8_4_8_a_message_comes_with_the_lower_of_both_qos(
    mqtt: Mqtt, version: Version, published: int, subscribed: int
) -> None:
    topic = fresh("topic")
    async with mqtt.client(version=version) as subscriber, mqtt.client() as publisher:
        assert await subscriber.subscribe(topic, subscribed) == subscribed
        await publisher.publish(topic, b"payload", published)
        message = await subscriber.message()
        assert (message.topic, message.payload) == (topic, b"payload")
        assert message.qos == min(published, subscribed)
        assert not message.dup
        assert not message.retain
        assert await subscriber.hears_nothing()


async def test_5_hears_that_nobody_is_subscribed(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        for qos in (1, 2):
            assert await client.publish(fresh("nobody"), b"", qos) == 0x10


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_mqtt_4_6_0_6_messages_of_a_topic_and_qos_come_in_order(mqtt: Mqtt, qos: int) -> None:
    topic = fresh("topic")
    count = 300
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, qos)
        packets = [
            Publish(topic, b"%d" % i, qos, packet_id=i + 1 if qos else 0) for i in range(count)
        ]
        publisher.send(*packets)
        received = await subscriber.messages(count)
        assert [message.payload for message in received] == [b"%d" % i for i in range(count)]


async def test_mqtt_4_6_0_2_acknowledgements_come_in_the_order_of_their_publishes(
    mqtt: Mqtt,
) -> None:
    """Also when the first waits for a commit, and the others wait for nothing."""
    queue, topic = fresh("$queue/orders"), fresh("topic")
    async with mqtt.client() as client:
        await client.publish(queue, b"made", 1)
        client.send(
            Publish(queue, b"stored", 1, packet_id=1001),
            Publish(topic, b"nobody", 1, packet_id=1002),
            Publish(queue, b"stored", 1, packet_id=1003),
            Publish(topic, b"nobody", 1, packet_id=1004),
        )
        answers = [(await client.expect(PubAck)).packet_id for _ in range(4)]
        assert answers == [1001, 1002, 1003, 1004]


async def test_mqtt_4_3_3_10_a_repeated_qos_2_publish_is_answered_and_not_published_again(
    mqtt: Mqtt,
) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 2)
        publisher.send(Publish(topic, b"once", 2, packet_id=7))
        assert await publisher.expect(PubRec) == PubRec(7)
        publisher.send(Publish(topic, b"once", 2, dup=True, packet_id=7))
        assert await publisher.expect(PubRec) == PubRec(7)
        publisher.send(PubRel(7))
        assert await publisher.expect(PubComp) == PubComp(7)
        assert (await subscriber.message()).payload == b"once"
        assert await subscriber.hears_nothing()
        # the identifier is free again
        publisher.send(Publish(topic, b"twice", 2, packet_id=7))
        await publisher.expect(PubRec)
        assert (await subscriber.message()).payload == b"twice"


async def test_pubrel_of_an_unknown_identifier_is_answered_with_0x92(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(PubRel(99))
        answer = await client.expect(PubComp)
        assert (answer.packet_id, answer.reason) == (99, 0x92)
        assert "no message" in (answer.properties.reason_string or "")


async def test_pubrec_of_an_unknown_identifier_is_answered_with_0x92(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(PubRec(99))
        assert await client.expect(PubRel) == PubRel(99, 0x92)


async def test_mqtt_3_3_1_3_dup_of_the_publisher_is_not_passed_on(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 1)
        publisher.send(Publish(topic, b"again", 1, dup=True, packet_id=3))
        assert not (await subscriber.message()).dup


# --- windows


async def test_mqtt_3_3_4_9_no_more_are_unacknowledged_than_the_client_takes(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with (
        mqtt.client(properties=P(receive_maximum=3)) as subscriber,
        mqtt.client() as publisher,
    ):
        await subscriber.subscribe(topic, 1)
        for i in range(10):
            await publisher.publish(topic, b"%d" % i, 1)
        first = [await subscriber.expect(Publish) for _ in range(3)]
        assert await subscriber.hears_nothing()
        subscriber.send(PubAck(first[1].packet_id))
        assert (await subscriber.expect(Publish)).payload == b"3"
        assert await subscriber.hears_nothing()


async def test_a_full_window_of_qos_2_is_free_at_pubcomp_only(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with (
        mqtt.client(properties=P(receive_maximum=1)) as subscriber,
        mqtt.client() as publisher,
    ):
        await subscriber.subscribe(topic, 2)
        for payload in (b"1", b"2"):
            await publisher.publish(topic, payload, 2)
        message = await subscriber.expect(Publish)
        subscriber.send(PubRec(message.packet_id))
        assert await subscriber.expect(PubRel) == PubRel(message.packet_id)
        assert await subscriber.hears_nothing()
        subscriber.send(PubComp(message.packet_id))
        assert (await subscriber.expect(Publish)).payload == b"2"


async def test_mqtt_3_3_4_7_more_than_the_receive_maximum_ends_the_connection(
    mqtt: Mqtt,
) -> None:
    async with mqtt.client() as client:
        topic = fresh("topic")
        maximum = client.connack.properties.receive_maximum or 0
        client.send(*(Publish(topic, b"", 2, packet_id=i + 1) for i in range(maximum + 1)))
        for _ in range(maximum):
            await client.expect(PubRec)
        assert await client.disconnected() == 0x93


async def test_a_slow_subscriber_does_not_stall_another(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with (
        mqtt.client() as slow,
        mqtt.client() as quick,
        mqtt.client() as publisher,
    ):
        await slow.subscribe(topic, 1)
        await quick.subscribe(topic, 1)
        payload = b"x" * 20_000
        for i in range(300):  # 6 MB, of which the slow one reads nothing
            await publisher.publish(topic, payload, 1)
            message = await quick.message()
            assert message.payload == payload, i


# --- aliases


async def test_a_client_may_use_topic_aliases(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic)
        publisher.send(
            Publish(topic, b"1", properties=P(topic_alias=5)),
            Publish("", b"2", properties=P(topic_alias=5)),
        )
        received = await subscriber.messages(2)
        assert [(m.topic, m.payload) for m in received] == [(topic, b"1"), (topic, b"2")]
        assert received[0].properties.topic_alias is None


@pytest.mark.parametrize("alias", [0, 60_000])
async def test_mqtt_3_3_2_8_an_alias_out_of_range_is_refused(mqtt: Mqtt, alias: int) -> None:
    async with mqtt.client() as client:
        client.send(Publish("a", properties=P(topic_alias=alias)))
        assert await client.disconnected() == 0x94


async def test_an_alias_that_was_never_given_a_topic_is_a_protocol_error(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(Publish("", properties=P(topic_alias=3)))
        assert await client.disconnected() == 0x82


async def test_mqtt_3_1_2_26_the_gateway_uses_aliases_where_the_client_allows(mqtt: Mqtt) -> None:
    one, other = fresh("topic"), fresh("topic")
    async with (
        mqtt.client(properties=P(topic_alias_maximum=1)) as subscriber,
        mqtt.client() as publisher,
    ):
        await subscriber.subscribe(one)
        await subscriber.subscribe(other)
        for topic in (one, one, other, one):
            await publisher.publish(topic, b"x")
        received = await subscriber.messages(4)
        assert [(m.topic, m.properties.topic_alias) for m in received] == [
            (one, 1),
            ("", 1),
            (other, None),
            ("", 1),
        ]


# --- sizes


async def test_mqtt_3_1_2_24_a_message_too_large_for_its_subscriber_is_not_sent(
    mqtt: Mqtt,
) -> None:
    topic = fresh("topic")
    async with (
        mqtt.client(properties=P(maximum_packet_size=100)) as subscriber,
        mqtt.client() as publisher,
    ):
        await subscriber.subscribe(topic, 1)
        await publisher.publish(topic, b"x" * 200, 1)
        await publisher.publish(topic, b"x" * 200, 0)
        await publisher.publish(topic, b"fits", 1)
        assert (await subscriber.message()).payload == b"fits"


async def test_a_packet_larger_than_the_gateway_takes_ends_the_connection(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send_bytes(bytes.fromhex("30ffffff7f"))  # 256 MB are declared, and never sent
        assert await client.disconnected() == 0x95


async def test_a_large_message_comes_through_whole(mqtt: Mqtt) -> None:
    topic, payload = fresh("topic"), bytes(range(256)) * 20_000
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 1)
        assert await publisher.publish(topic, payload, 1) == 0
        assert (await subscriber.message()).payload == payload


# --- properties


async def test_mqtt_3_3_2_4_properties_travel_unchanged(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    said = P(
        payload_format=1,
        content_type="text/plain",
        response_topic="a/b",
        correlation_data=b"\0\xff",
        user=(("one", "1"), ("two", "2"), ("one", "3")),
    )
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 1)
        await publisher.publish(topic, b"text", 1, properties=said)
        assert (await subscriber.message()).properties == said


async def test_mqtt_3_3_2_6_expiry_is_counted_down(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic)
        await publisher.publish(topic, b"x", properties=P(message_expiry=60))
        left = (await subscriber.message()).properties.message_expiry
        assert left is not None
        assert 55 <= left <= 60


async def test_a_publisher_id_cannot_be_forged(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    forged = P(user=(("a", "1"), ("x-publisher-id", "somebody else"), ("b", "2")))
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic)
        await publisher.publish(topic, b"x", properties=forged)
        assert (await subscriber.message()).properties.user == (("a", "1"), ("b", "2"))


async def test_text_that_is_none_is_refused(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        reason = await client.publish(fresh(), b"\xff", 1, properties=P(payload_format=1))
        assert reason == 0x99


async def test_mqtt_3_3_4_6_a_client_cannot_send_a_subscription_identifier(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(Publish("a", properties=P(subscription_identifiers=(1,))))
        assert await client.disconnected() == 0x82


async def test_the_gateways_own_topics_cannot_be_published_to(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        assert await client.publish("$SYS/broker/uptime", b"0", 1) == 0x87
    async with mqtt.client(version=Version.V311) as client:
        client.send(Publish("$SYS/broker/uptime", b"0", 1, packet_id=1))
        assert await client.is_closed()


async def test_a_topic_of_endless_levels_is_refused(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        assert await client.publish("/".join("a" * 10_000), b"", 1) == 0x90
        assert await client.subscribe("/".join("a" * 10_000)) == 0x8F


async def test_a_qos_1_flood_in_small_pieces_is_answered_in_full(mqtt: Mqtt) -> None:
    """The hot path and the codec take turns within one stream, cut anywhere."""
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 1)
        stream = b"".join(
            encode(Publish(topic, b"%d" % i, i % 2, packet_id=i + 1 if i % 2 else 0), 5)
            for i in range(200)
        )
        for start in range(0, len(stream), 7):
            publisher.send_bytes(stream[start : start + 7])
            await turns()  # each piece is written by itself
        answers = [(await publisher.expect(PubAck)).packet_id for _ in range(100)]
        assert answers == list(range(2, 202, 2))
        payloads = [m.payload for m in await subscriber.messages(200)]
        assert payloads == [b"%d" % i for i in range(200)]


async def test_mqtt_3_3_2_7_aliases_end_with_the_connection(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name) as client:
        await client.publish("a", b"", properties=P(topic_alias=1))
    async with mqtt.client(name) as client:
        client.send(Publish("", b"", properties=P(topic_alias=1)))
        assert await client.disconnected() == 0x82


async def test_mqtt_4_3_2_5_after_puback_the_same_identifier_is_a_new_message(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber, mqtt.client() as publisher:
        await subscriber.subscribe(topic, 1)
        for payload, dup in ((b"one", False), (b"two", True)):
            publisher.send(Publish(topic, payload, 1, dup=dup, packet_id=9))
            assert await publisher.expect(PubAck) == PubAck(9)
        assert [m.payload for m in await subscriber.messages(2)] == [b"one", b"two"]
