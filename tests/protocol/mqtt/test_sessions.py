"""Sessions that outlive their connection, and wills."""

from __future__ import annotations

import asyncio

import pytest

from protocols.mqtt.wire.packets import (
    Connect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, lasting
from tests.support.names import fresh

P = PropertySet


async def test_mqtt_3_1_2_5_a_lasting_session_keeps_subscriptions_and_messages(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client:
        await client.subscribe(topic, 2)
        await client.disconnect()
    async with mqtt.client() as publisher:
        for qos in (1, 2, 0, 1):
            await publisher.publish(topic, b"%d" % qos, qos)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert client.connack.session_present
        received = await client.messages(3)
        assert [(m.payload, m.qos, m.dup) for m in received] == [
            (b"1", 1, False),
            (b"2", 2, False),
            (b"1", 1, False),
        ]
        assert await client.hears_nothing()


async def test_a_3_1_1_session_that_is_not_clean_is_kept(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, Version.V311, clean=False) as client:
        assert not client.connack.session_present
        await client.subscribe(topic, 1)
        await client.disconnect()
    async with mqtt.client() as publisher:
        await publisher.publish(topic, b"waited", 1)
    async with mqtt.client(name, Version.V311, clean=False) as client:
        assert client.connack.session_present
        assert (await client.message()).payload == b"waited"


async def test_3_1_has_no_flag_for_a_session_that_is_present(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, Version.V31, clean=False) as client:
        await client.subscribe(topic, 1)
        await client.disconnect()
    async with mqtt.client(name, Version.V31, clean=False) as client:
        assert not client.connack.session_present  # and all the same it is
        await client.publish(topic, b"x", 1)
        assert (await client.message()).payload == b"x"


async def test_mqtt_3_1_2_4_a_clean_start_ends_the_session_before(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client:
        await client.subscribe(topic, 1)
        await client.disconnect()
    async with mqtt.client(name, clean=True, properties=lasting()) as client:
        assert not client.connack.session_present
        await client.publish(topic, b"x", 1)
        assert await client.hears_nothing()


async def test_a_session_with_expiry_0_ends_with_its_connection(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name) as client:
        await client.disconnect()
    async with mqtt.client(name, clean=False) as client:
        assert not client.connack.session_present


async def test_disconnect_may_change_the_expiry(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name, properties=lasting()) as client:
        await client.disconnect(0, P(session_expiry=0))
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert not client.connack.session_present


async def test_mqtt_4_4_0_1_unacknowledged_messages_come_again_with_dup_and_their_identifier(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        for qos in (1, 2, 1):
            await publisher.publish(topic, b"%d" % qos, qos)
        first = [await client.expect(Publish) for _ in range(3)]
        by_payload = sorted((m.payload, m.packet_id) for m in first)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        again = [await client.expect(Publish) for _ in range(3)]
        assert all(message.dup for message in again)
        assert sorted((m.payload, m.packet_id) for m in again) == by_payload
        for message in again:
            await client.acknowledge(message)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert await client.hears_nothing()


async def test_a_qos_2_message_that_was_received_goes_on_with_pubrel(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        await publisher.publish(topic, b"x", 2)
        message = await client.expect(Publish)
        client.send(PubRec(message.packet_id))
        await client.expect(PubRel)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert await client.expect(PubRel) == PubRel(message.packet_id)
        client.send(PubComp(message.packet_id))
        assert await client.hears_nothing()
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert await client.hears_nothing()


async def test_mqtt_4_6_0_4_pubrel_comes_again_in_the_order_of_pubrec(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        for i in range(3):
            await publisher.publish(topic, b"%d" % i, 2, properties=P(message_expiry=300))
        first, second, third = [(await client.expect(Publish)).packet_id for _ in range(3)]
        order = [third, first, second]
        for packet_id in order:
            client.send(PubRec(packet_id))
            assert await client.expect(PubRel) == PubRel(packet_id)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert [(await client.expect(PubRel)).packet_id for _ in order] == order


async def test_a_client_that_releases_nothing_gets_nothing_new(mqtt: Mqtt) -> None:
    """Packets that a client owes a PUBCOMP for count against its window, over connections."""
    name, topic = fresh(), fresh("t")
    narrow = P(session_expiry=300, receive_maximum=2)
    async with mqtt.client(name, properties=narrow) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        for i in range(3):
            await publisher.publish(topic, b"%d" % i, 2)
        for _ in range(2):
            client.send(PubRec((await client.expect(Publish)).packet_id))
        for _ in range(2):
            await client.expect(PubRel)
        assert await client.hears_nothing()
    async with mqtt.client(name, clean=False, properties=narrow) as client:
        owed = [(await client.expect(PubRel)).packet_id for _ in range(2)]
        assert await client.hears_nothing()
        client.send(PubComp(owed[0]))
        last = await client.message()
        assert (last.payload, last.dup) == (b"2", False)
        client.send(PubComp(owed[1]))
        assert await client.hears_nothing()


async def test_mqtt_4_3_3_7_what_was_sent_with_qos_2_does_not_expire(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    narrow = P(session_expiry=300, receive_maximum=1)
    async with mqtt.client(name, properties=narrow) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        for payload in (b"sent", b"not sent"):
            await publisher.publish(topic, payload, 2, properties=P(message_expiry=1))
        first = await client.expect(Publish)
        assert first.payload == b"sent"
        await client.disconnect()
    await asyncio.sleep(1.2)  # until both would have expired
    async with mqtt.client(name, clean=False, properties=narrow) as client:
        again = await client.expect(Publish)
        assert (again.payload, again.packet_id, again.dup) == (b"sent", first.packet_id, True)
        await client.acknowledge(again)
        assert await client.hears_nothing()


async def test_a_shared_qos_2_message_that_was_received_goes_on_with_pubrel(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client, mqtt.client() as publisher:
        await client.subscribe(f"$share/g/{topic}", 2)
        await publisher.publish(topic, b"x", 2)
        message = await client.expect(Publish)
        client.send(PubRec(message.packet_id))
        await client.expect(PubRel)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert await client.expect(PubRel) == PubRel(message.packet_id)
        client.send(PubComp(message.packet_id))
        assert await client.hears_nothing()


async def test_a_publishers_qos_2_identifier_outlives_its_connection(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic, 2)
        async with mqtt.client(name, properties=lasting()) as publisher:
            publisher.send(Publish(topic, b"once", 2, packet_id=5))
            await publisher.expect(PubRec)
        async with mqtt.client(name, clean=False, properties=lasting()) as publisher:
            publisher.send(Publish(topic, b"once", 2, dup=True, packet_id=5))
            assert await publisher.expect(PubRec) == PubRec(5)
            publisher.send(PubRel(5))
            assert await publisher.expect(PubComp) == PubComp(5)
        assert (await subscriber.message()).payload == b"once"
        assert await subscriber.hears_nothing()


async def test_messages_in_a_full_window_come_after_a_reconnect_in_order(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    small = P(session_expiry=300, receive_maximum=2)
    async with mqtt.client(name, properties=small) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 1)
        for i in range(6):
            await publisher.publish(topic, b"%d" % i, 1)
        first = await client.expect(Publish)
        client.send(PubAck(first.packet_id))
        await client.expect(Publish)
        await client.expect(Publish)
    async with mqtt.client(name, clean=False, properties=small) as client:
        received = await client.messages(5)
        assert [m.payload for m in received] == [b"1", b"2", b"3", b"4", b"5"]
        assert [m.dup for m in received] == [True, True, False, False, False]


async def test_an_offline_message_that_expires_is_not_delivered(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client:
        await client.subscribe(topic, 1)
        await client.disconnect()
    async with mqtt.client() as publisher:
        await publisher.publish(topic, b"short", 1, properties=P(message_expiry=0))
        await publisher.publish(topic, b"long", 1, properties=P(message_expiry=100))
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        assert (await client.message()).payload == b"long"
        assert await client.hears_nothing()


async def test_subscription_options_are_kept_with_the_session(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client:
        await client.subscribe(
            topic, 1, P(subscription_identifiers=(77,)), retain_as_published=True, no_local=True
        )
        await client.disconnect()
    async with mqtt.client() as publisher:
        await publisher.publish(topic, b"x", 1, retain=True)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        message = await client.message()
        assert message.properties.subscription_identifiers == (77,)
        assert message.retain


@pytest.mark.parametrize("ends_by_kill", [False, True])
async def test_everything_survives_a_restart_of_the_gateway(
    gateway: GatewayProcess, ends_by_kill: bool
) -> None:
    mqtt = Mqtt(gateway.ports["mqtt"])
    name, topic, last = fresh(), fresh("t"), fresh("r")
    client = await mqtt.connected(name, properties=lasting())
    await client.subscribe(topic, 2, P(subscription_identifiers=(5,)))
    publisher = await mqtt.connected("publisher", properties=lasting())
    await publisher.publish(last, b"retained", 1, retain=True)
    await publisher.publish(topic, b"in flight", 2)
    first = await client.expect(Publish)
    client.send(PubRec(first.packet_id))
    await client.expect(PubRel)
    await publisher.publish(topic, b"unacknowledged", 2)
    second = await client.expect(Publish)
    client.abort()
    await publisher.publish(topic, b"offline", 1)
    publisher.send(Publish(topic, b"half", 2, packet_id=900))
    await publisher.expect(PubRec)
    if ends_by_kill:
        gateway.kill()
    gateway.restart()
    client = await mqtt.connected(name, clean=False, properties=lasting())
    assert client.connack.session_present
    assert await client.expect(PubRel) == PubRel(first.packet_id)
    client.send(PubComp(first.packet_id))
    again = await client.expect(Publish)
    assert (again.payload, again.packet_id, again.dup) == (
        b"unacknowledged",
        second.packet_id,
        True,
    )
    await client.acknowledge(again)
    assert [m.payload for m in await client.messages(2)] == [b"offline", b"half"]
    publisher = await mqtt.connected("publisher", clean=False, properties=lasting())
    publisher.send(Publish(topic, b"half", 2, dup=True, packet_id=900))
    assert await publisher.expect(PubRec) == PubRec(900)
    publisher.send(PubRel(900))
    await publisher.expect(PubComp)
    assert await client.hears_nothing()
    await client.subscribe(last)
    assert (await client.message()).payload == b"retained"
    await mqtt.close()


# --- wills


async def test_mqtt_3_1_2_8_the_will_of_a_lost_client_is_published(mqtt: Mqtt) -> None:
    topic = fresh("t")
    said = P(content_type="text/plain", user=(("a", "b"),), message_expiry=100)
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic, 2)
        lost = await mqtt.connected(will=Will(topic, b"gone", 1, False, said))
        lost.abort()
        message = await subscriber.message()
        assert (message.payload, message.qos) == (b"gone", 1)
        assert message.properties.content_type == "text/plain"
        assert message.properties.user == (("a", "b"),)
        assert 90 <= (message.properties.message_expiry or 0) <= 100


async def test_mqtt_3_14_4_3_a_goodbye_takes_the_will_back(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        polite = await mqtt.connected(will=Will(topic, b"gone"))
        await polite.disconnect()
        assert await subscriber.hears_nothing()
        asking = await mqtt.connected(will=Will(topic, b"asked for"))
        await asking.disconnect(0x04)
        assert (await subscriber.message()).payload == b"asked for"


async def test_a_protocol_error_publishes_the_will(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        wrong = await mqtt.connected(will=Will(topic, b"gone"))
        wrong.send(Connect("again"))
        assert (await subscriber.message()).payload == b"gone"


async def test_a_retained_will_stays(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        lost = await mqtt.connected(will=Will(topic, b"gone", 1, True))
        lost.abort()
        await subscriber.message()
        async with mqtt.client() as later:
            await later.publish(fresh("$queue/barrier"), b"", 1)  # committed behind it
            await later.subscribe(topic)
            message = await later.message()
            assert (message.payload, message.retain) == (b"gone", True)


async def test_mqtt_3_1_3_9_a_delayed_will_is_not_published_when_its_client_comes_back(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        will = Will(topic, b"gone", properties=P(will_delay=60))
        lost = await mqtt.connected(name, properties=lasting(), will=will)
        lost.abort()
        async with mqtt.client(name, clean=False, properties=lasting()):
            assert await subscriber.hears_nothing()


async def test_a_delayed_will_comes_with_the_end_of_the_session(mqtt: Mqtt) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        will = Will(topic, b"gone", properties=P(will_delay=60))
        lost = await mqtt.connected(name, properties=lasting(1), will=will)
        lost.abort()
        assert (await subscriber.message()).payload == b"gone"
