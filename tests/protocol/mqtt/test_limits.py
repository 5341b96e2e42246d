"""Limits of what either side takes at once: open messages, and the size of a packet."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    Connect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
)
from protocols.mqtt.wire.property_set import PropertySet as P
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, lasting
from tests.support.names import fresh

# --- the receive maximum that the gateway announces


async def test_mqtt_3_3_4_7_a_client_may_use_all_of_the_receive_maximum_at_qos_2(
    mqtt: Mqtt,
) -> None:
    """Also while none of it is committed yet."""
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as away:
        await away.subscribe(topic, 2)
        await away.disconnect()
    async with mqtt.client() as publisher:
        most = publisher.connack.properties.receive_maximum or 0
        await publisher.publish(topic, b"known", 2)  # the rest takes the short way
        ids = range(1001, 1001 + most)
        publisher.send(*(Publish(topic, b"x", 2, packet_id=each) for each in ids))
        assert [(await publisher.expect(PubRec)).packet_id for _ in ids] == list(ids)


async def test_mqtt_4_9_0_1_a_new_connection_has_all_of_the_receive_maximum(mqtt: Mqtt) -> None:
    """Messages that the earlier connection left open belong to that one."""
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client:
        most = client.connack.properties.receive_maximum or 0
        client.send(*(Publish(topic, b"x", 2, packet_id=each) for each in range(1, most)))
        for _ in range(1, most):
            await client.expect(PubRec)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        ids = range(10_001, 10_001 + most)
        client.send(*(Publish(topic, b"x", 2, packet_id=each) for each in ids))
        assert [(await client.expect(PubRec)).packet_id for _ in ids] == list(ids)
        client.send(PubRel(1), PubRel(10_001))  # the old and the new are ended alike
        assert [(await client.expect(PubComp)).packet_id for _ in "12"] == [1, 10_001]
        client.send(Publish(topic, b"x", 2, packet_id=5))  # open: not published again
        assert (await client.expect(PubRec)).packet_id == 5


# --- the largest packet that the client takes


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("is_plain", [True, False])
async def test_mqtt_3_1_2_25_what_just_fits_is_sent(mqtt: Mqtt, qos: int, is_plain: bool) -> None:
    topic, most = fresh("t"), 100
    said = P() if is_plain else P(subscription_identifiers=(1,))
    async with mqtt.client(properties=P(maximum_packet_size=most)) as client:
        await client.subscribe(topic, qos, said)
        beside = 2 + 2 + len(topic) + (2 if qos else 0) + (1 if is_plain else 3)
        async with mqtt.client() as publisher:
            for size in (most - beside, most - beside + 1, 0):
                await publisher.publish(topic, b"x" * size, qos)
        sizes = [len(message.payload) for message in await client.messages(2)]
        assert sizes == [most - beside, 0]


@pytest.mark.parametrize("said", [P(), P(user=(("ack", "manual"),))])
async def test_a_queues_message_that_fits_into_no_packet_of_its_consumer_is_rejected(
    mqtt: Mqtt, shared_gateway: GatewayProcess, said: P
) -> None:
    """The message becomes a dead letter and holds up nobody: its consumer never saw it."""
    name, dead = fresh("q"), fresh("dead")
    letters = ("-a", "x-dead-letter-exchange=", "-a", f"x-dead-letter-routing-key={dead}")
    for words in ((name, *letters), (dead,)):
        assert shared_gateway.run("queue", "declare", *words).returncode == 0
    narrow = P(maximum_packet_size=400, receive_maximum=1)
    async with mqtt.client(properties=narrow) as worker, mqtt.client() as publisher:
        await worker.subscribe(f"$queue/{name}", 1, said)
        for payload in (b"x" * 1000, b"small"):
            await publisher.publish(f"$queue/{name}", payload, 1)
        assert (await worker.message()).payload == b"small"
        await publisher.subscribe(f"$queue/{dead}", 1)
        assert (await publisher.message()).payload == b"x" * 1000


async def test_mqtt_3_1_2_24_what_cannot_be_answered_is_not_done(mqtt: Mqtt) -> None:
    topics = tuple(fresh("t") for _ in range(60))
    requests = tuple(SubscribeRequest(topic) for topic in topics)
    for packet in (Subscribe(7, requests), Unsubscribe(7, topics)):
        client = await mqtt.connected(properties=P(maximum_packet_size=64))
        client.send(packet)
        assert await client.disconnected() == 0x95
    async with mqtt.client(properties=P(maximum_packet_size=65)) as client:
        client.send(Subscribe(7, requests))
        assert len((await client.expect(SubAck)).reasons) == 60


async def test_mqtt_3_1_2_24_not_even_the_refusal_is_larger(mqtt: Mqtt) -> None:
    for most, hears in ((5, True), (4, False)):
        client = await mqtt.open()
        connect = Connect(fresh(), properties=P(maximum_packet_size=most))
        if hears:
            assert (await client.connect(connect)).reason == 0x95
        else:
            client.send(connect)
        assert await client.is_closed()


# --- the receive maximum of the client, with what an earlier connection left in flight


async def test_mqtt_3_3_4_9_a_smaller_receive_maximum_holds_for_what_was_in_flight(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as client, mqtt.client() as publisher:
        await client.subscribe(topic, 1)
        for i in range(4):
            await publisher.publish(topic, b"%d" % i, 1)
        first = [await client.expect(Publish) for _ in range(4)]
    narrow = P(session_expiry=300, receive_maximum=1)
    async with mqtt.client(name, clean=False, properties=narrow) as client:
        for message in first:
            again = await client.expect(Publish)
            assert (again.payload, again.packet_id, again.dup) == (
                message.payload,
                message.packet_id,
                True,
            )
            assert await client.hears_nothing()
            client.send(PubAck(again.packet_id))


async def test_the_filters_of_a_session_take_a_bounded_memory(mqtt: Mqtt) -> None:
    """A thousand filters of 64 KiB are 60 MB, and a stranger to nobody's account."""
    async with mqtt.client() as client:
        long = [fresh("t") + "x" * 60_000 for _ in range(8)]
        requests = tuple(SubscribeRequest(each, 0) for each in long)
        client.send(Subscribe(7, requests))
        reasons = (await client.expect(SubAck)).reasons
        assert reasons[:4] == (0, 0, 0, 0)
        assert set(reasons[5:]) == {0x97}
        client.send(Unsubscribe(8, (long[0],)))
        await client.expect(UnsubAck)
        await client.subscribe(long[7])
