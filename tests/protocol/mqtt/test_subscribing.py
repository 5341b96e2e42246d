"""SUBSCRIBE and its options, retained messages, shared subscriptions, $SYS."""

from __future__ import annotations

import asyncpg
import pytest

from protocols.mqtt.wire.packets import (
    PubAck,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
    Version,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, RawClient, lasting
from tests.support.names import fresh

P = PropertySet
SEGMENTS = """
    SELECT tablename FROM pg_tables WHERE schemaname = 'howdah' AND tablename ~ '^message_[0-9]+$'
"""


async def test_each_filter_has_its_reason_in_order(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        answer = await client.subscribe_all(
            (
                SubscribeRequest("a/+/b", 2),
                SubscribeRequest("$queue/", 1),
                SubscribeRequest("$share/g/x", 1),
                SubscribeRequest("$share/g/$queue/x", 1),
                SubscribeRequest("$share/g/$share/h/x", 1),
            )
        )
        assert answer.reasons == (2, 0x8F, 1, 0x8F, 0x8F)
        assert answer.properties.reason_string
    async with mqtt.client(version=Version.V311) as client:
        answer = await client.subscribe_all((SubscribeRequest("a"), SubscribeRequest("$share/g")))
        assert answer.reasons == (0, 0x80)


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "#b"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
async def test_mqtt_4_7_1_1_what_is_no_filter_ends_the_connection(
    mqtt: Mqtt, version: Version, topic_filter: str
) -> None:
    for packet in (
        Subscribe(1, (SubscribeRequest("a"), SubscribeRequest(topic_filter))),
        Unsubscribe(1, (topic_filter,)),
    ):
        async with mqtt.client(version=version) as client:
            client.send(packet)
            if version is Version.V5:
                assert await client.disconnected() == 0x81
            else:
                assert await client.is_closed()


@pytest.mark.parametrize("topic_filter", ["$share//x", "$share/g", "$share/g/", "$share/+/x"])
async def test_mqtt_4_8_2_1_a_share_without_a_group_or_a_filter_ends_the_connection(
    mqtt: Mqtt, topic_filter: str
) -> None:
    async with mqtt.client() as client:
        client.send(Subscribe(1, (SubscribeRequest(topic_filter),)))
        assert await client.disconnected() == 0x81


MATCHES = [
    ("{t}/#", "{t}", True),
    ("{t}/#", "{t}/a/b", True),
    ("{t}/+", "{t}/a", True),
    ("{t}/+", "{t}/a/b", False),
    ("{t}/+", "{t}/", True),
    ("{t}/a.b", "{t}/a.b", True),
    ("{t}/a.b", "{t}/a/b", False),
    ("+/{t}", "/{t}", True),
    ("#", "$x/{t}", False),
    ("+/{t}", "$x/{t}", False),
    ("$x/#", "$x/{t}", True),
]


@pytest.mark.parametrize(("topic_filter", "topic", "matches"), MATCHES)
async def test_mqtt_4_7_filters_match_as_the_standard_says(
    mqtt: Mqtt, topic_filter: str, topic: str, matches: bool
) -> None:
    name = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(topic_filter.format(t=name))
        await client.publish(topic.format(t=name), b"here")
        if matches:
            received = await client.message()
            while received.payload != b"here":  # what others say to everybody
                received = await client.message()
            assert received.topic == topic.format(t=name)
        else:
            await client.subscribe(name)
            await client.publish(name, b"end")
            received = await client.message()
            while received.topic != name:
                assert received.payload != b"here"
                received = await client.message()


async def test_mqtt_3_3_4_2_overlapping_subscriptions_bring_one_message_with_the_highest_qos(
    mqtt: Mqtt,
) -> None:
    name = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(f"{name}/+", 0, P(subscription_identifiers=(7,)))
        await client.subscribe(f"{name}/#", 2, P(subscription_identifiers=(300,)))
        await client.publish(f"{name}/x", b"1", 1)
        message = await client.message()
        assert message.qos == 1
        assert sorted(message.properties.subscription_identifiers) == [7, 300]
        assert await client.hears_nothing()


async def test_mqtt_3_8_4_3_subscribing_again_replaces_the_options(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(topic, 2, P(subscription_identifiers=(1,)))
        await client.subscribe(topic, 0)
        await client.publish(topic, b"x", 2)
        message = await client.message()
        assert (message.qos, message.properties.subscription_identifiers) == (0, ())
        assert await client.hears_nothing()


@pytest.mark.parametrize("seconds", [0, 300])
async def test_mqtt_3_8_4_5_a_filter_that_is_named_twice_is_asked_for_twice(
    mqtt: Mqtt, seconds: int
) -> None:
    """The second replaces the first, as if each came in a packet of its own, and is not new."""
    topic = fresh("t")
    async with mqtt.client(properties=lasting(seconds)) as client:
        await client.publish(topic, b"kept", 1, retain=True)
        requests = tuple(SubscribeRequest(topic, qos, retain_handling=1) for qos in (2, 1))
        assert (await client.subscribe_all(requests)).reasons == (2, 1)
        assert (await client.message()).payload == b"kept"
        assert await client.hears_nothing()
        await client.publish(topic, b"x", 2)
        assert (await client.message()).qos == 1
        client.send(Unsubscribe(99, (topic, topic)))
        assert (await client.expect(UnsubAck)).reasons == (0, 0x11)
        await client.publish(topic, b"", 1, retain=True)


async def test_mqtt_3_3_4_3_the_first_message_of_a_subscription_has_its_identifier(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    """Also where another filter of the same packet takes its time: a place in a stream is looked
    for in the database."""
    topic, stream = fresh("t"), fresh("log")
    arguments = ("-a", "x-queue-type=stream")
    assert shared_gateway.run("queue", "declare", stream, *arguments).returncode == 0
    requests = (SubscribeRequest(topic), SubscribeRequest(f"$queue/{stream}", 1))
    said = P(subscription_identifiers=(7,), user=(("offset", "2020-01-01T00:00:00Z"),))
    async with mqtt.client() as publisher, mqtt.client() as client:
        await publisher.publish(f"$queue/{stream}", b"old", 1)
        connection = await asyncpg.connect(shared_gateway.database_url)
        async with connection.transaction():
            for (table,) in await connection.fetch(SEGMENTS):
                await connection.execute(f"LOCK TABLE howdah.{table}")
            client.send(Subscribe(1, requests, said))
            for _ in range(50):
                await publisher.publish(topic, b"early")
                assert await publisher.hears_nothing()
        await connection.close()
        await client.find(SubAck)
        await publisher.publish(topic, b"last")
        payload = b""
        while payload != b"last":
            message = await client.expect(Publish)
            assert message.properties.subscription_identifiers == (7,)
            payload = message.payload


async def test_mqtt_3_8_3_3_no_local_keeps_a_clients_own_messages_away(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client, mqtt.client() as other:
        await client.subscribe(topic, 1, no_local=True)
        await client.publish(topic, b"own", 1)
        await other.publish(topic, b"other", 1)
        assert (await client.message()).payload == b"other"
        assert await client.hears_nothing()


async def test_mqtt_3_10_4_1_nothing_comes_after_unsubscribe(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(topic)
        client.send(Unsubscribe(9, (topic, "never")))
        answer = await client.expect(UnsubAck)
        assert (answer.packet_id, answer.reasons) == (9, (0x00, 0x11))
        await client.publish(topic, b"x")
        assert await client.hears_nothing()


async def test_too_many_subscriptions_are_refused(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        name = fresh("t")
        requests = tuple(SubscribeRequest(f"{name}/{i}") for i in range(1000))
        assert set((await client.subscribe_all(requests)).reasons) == {0}
        assert await client.subscribe(f"{name}/more") == 0x97
        assert await client.subscribe(f"{name}/1", 1) == 1  # it has that one


# --- retained


async def retained(client: RawClient, topic: str, payload: bytes, qos: int = 1) -> None:
    await client.publish(topic, payload, qos, retain=True)
    if qos == 0:
        await client.publish(fresh("$queue/barrier"), b"", 1)  # the same writer, behind it


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_mqtt_3_3_1_5_a_retained_message_waits_for_subscribers(mqtt: Mqtt, qos: int) -> None:
    name = fresh("t")
    async with mqtt.client() as publisher, mqtt.client() as subscriber:
        await retained(publisher, f"{name}/a", b"old", qos)
        await retained(publisher, f"{name}/a", b"new", qos)
        await subscriber.subscribe(f"{name}/#", 2)
        message = await subscriber.message()
        assert (message.payload, message.retain, message.qos) == (b"new", True, qos)
        assert await subscriber.hears_nothing()


async def test_mqtt_3_3_1_12_who_is_subscribed_gets_it_without_the_retain_flag(
    mqtt: Mqtt,
) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(topic, 1)
        client.send(Publish(topic, b"live", 1, retain=True, packet_id=50))
        received = [await client.receive(), await client.receive()]
        messages = [packet for packet in received if isinstance(packet, Publish)]
        assert [(m.payload, m.retain) for m in messages] == [(b"live", False)]


async def test_mqtt_3_3_1_13_retain_as_published_keeps_the_flag(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client, mqtt.client() as publisher:
        await client.subscribe(topic, 1, retain_as_published=True)
        await publisher.publish(topic, b"kept", 1, retain=True)
        assert (await client.message()).retain
        await publisher.publish(topic, b"passing", 1)
        assert not (await client.message()).retain


@pytest.mark.parametrize("lasts", [False, True], ids=["clean", "stored"])
async def test_a_retained_publish_reaches_who_is_subscribed_once_while_another_is_written(
    mqtt: Mqtt, lasts: bool
) -> None:
    said = lasting() if lasts else P()
    name = fresh("t")
    async with mqtt.client(properties=said) as client, mqtt.client() as other:
        for number in range(20):
            topic = f"{name}/{number}"
            other.send(Publish(f"{name}-elsewhere", b"%d" % number, retain=True))
            client.send(Subscribe(1, (SubscribeRequest(topic, 2),)))
            await client.find(SubAck)
            await other.publish(topic, b"once", 2, retain=True)
            packet = await client.message()
            assert (packet.payload, packet.qos, packet.retain) == (b"once", 2, False)
        assert await client.hears_nothing()


async def test_mqtt_3_3_1_6_an_empty_payload_clears_it(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await retained(client, topic, b"x")
        await retained(client, topic, b"")
        await client.subscribe(topic)
        assert await client.hears_nothing()


async def test_retain_handling_says_when_they_come(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await retained(client, topic, b"x")
        await client.subscribe(topic, retain_handling=2)
        assert await client.hears_nothing()
        await client.subscribe(topic, retain_handling=1)  # it is there already
        assert await client.hears_nothing()
        await client.subscribe(topic, retain_handling=0)
        assert (await client.message()).retain
        client.send(Unsubscribe(9, (topic,)))
        await client.expect(UnsubAck)
        await client.subscribe(topic, retain_handling=1)
        assert (await client.message()).retain


async def test_a_retained_message_carries_the_subscription_identifier_and_what_is_left(
    mqtt: Mqtt,
) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await client.publish(topic, b"x", 1, retain=True, properties=P(message_expiry=100))
        await client.subscribe(topic, 1, P(subscription_identifiers=(12,)))
        message = await client.message()
        assert message.properties.subscription_identifiers == (12,)
        assert 90 <= (message.properties.message_expiry or 0) <= 100


async def test_many_retained_messages_keep_to_the_window(mqtt: Mqtt) -> None:
    name = fresh("t")
    async with mqtt.client() as publisher:
        for i in range(20):
            await retained(publisher, f"{name}/{i}", b"x")
    async with mqtt.client(properties=P(receive_maximum=2)) as client:
        await client.subscribe(f"{name}/#", 1)
        first = [await client.expect(Publish) for _ in range(2)]
        assert await client.hears_nothing()
        for message in first:
            client.send(PubAck(message.packet_id))
        assert len(await client.messages(18)) == 18


async def test_a_lasting_session_gets_retained_messages_with_acknowledgement(mqtt: Mqtt) -> None:
    topic, name = fresh("t"), fresh()
    async with mqtt.client() as publisher:
        await retained(publisher, topic, b"kept")
    async with mqtt.client(name, properties=lasting()) as client:
        await client.subscribe(topic, 1)
        message = await client.expect(Publish)
        assert (message.retain, message.qos) == (True, 1)
    async with mqtt.client(name, clean=False, properties=lasting()) as client:
        again = await client.message()
        assert (again.payload, again.retain, again.dup) == (b"kept", True, True)
        assert again.packet_id == message.packet_id


# --- shared


async def test_mqtt_4_8_2_a_shared_message_goes_to_one_of_the_group(mqtt: Mqtt) -> None:
    name = fresh("t")
    async with (
        mqtt.client() as one,
        mqtt.client() as two,
        mqtt.client() as alone,
        mqtt.client() as publisher,
    ):
        await one.subscribe(f"$share/g/{name}/+", 1)
        await two.subscribe(f"$share/g/{name}/+", 1)
        await alone.subscribe(f"$share/h/{name}/+", 1)
        for i in range(20):
            await publisher.publish(f"{name}/x", b"%d" % i, 1)
        payloads = [m.payload for m in await alone.messages(20)]
        assert payloads == [b"%d" % i for i in range(20)]
        shares = [await drained(one), await drained(two)]
        assert sorted(int(p) for share in shares for p in share) == list(range(20))
        assert all(shares)


async def drained(client: RawClient) -> list[bytes]:
    """Everything that came, acknowledged."""
    from protocols.mqtt.wire.packets import PingReq, PingResp

    payloads = []
    client.send(PingReq())
    while not isinstance(packet := await client.receive(), PingResp):
        assert isinstance(packet, Publish)
        payloads.append(packet.payload)
        await client.acknowledge(packet)
    return payloads


async def test_a_member_that_is_lost_leaves_its_share_to_the_others(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as publisher, mqtt.client() as heir:
        lost = await mqtt.connected()
        await lost.subscribe(f"$share/g/{topic}", 1)
        for i in range(4):
            await publisher.publish(topic, b"%d" % i, 1)
        for _ in range(4):
            await lost.expect(Publish)  # and never acknowledges
        await heir.subscribe(f"$share/g/{topic}", 1)
        lost.abort()
        assert [m.payload for m in await heir.messages(4)] == [b"0", b"1", b"2", b"3"]


async def test_a_shared_subscription_has_no_retained_messages(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await retained(client, topic, b"x")
        await client.subscribe(f"$share/g/{topic}", 1)
        assert await client.hears_nothing()


async def test_3_1_1_may_share_too(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client(version=Version.V311) as client:
        await client.subscribe(f"$share/g/{topic}", 1)
        await client.publish(topic, b"x")
        assert (await client.message()).payload == b"x"


async def test_mqtt_4_8_2_6_a_refused_shared_message_goes_to_nobody_else(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as one, mqtt.client() as publisher:
        await one.subscribe(f"$share/g/{topic}", 1)
        await publisher.publish(topic, b"bad", 1)
        message = await one.expect(Publish)
        one.send(PubAck(message.packet_id, 0x83))
        assert await one.hears_nothing()


async def test_mqtt_4_8_2_4_qos_2_is_completed_with_the_member_it_was_begun_with(
    mqtt: Mqtt,
) -> None:
    name, topic = fresh(), fresh("t")
    async with mqtt.client(name, properties=lasting()) as one, mqtt.client() as publisher:
        await one.subscribe(f"$share/g/{topic}", 2)
        await publisher.publish(topic, b"begun", 2)
        first = await one.expect(Publish)
        assert (first.qos, first.dup) == (2, False)
        await one.disconnect()
    async with mqtt.client() as other:
        await other.subscribe(f"$share/g/{topic}", 2)
        assert await other.hears_nothing()
        async with mqtt.client(name, clean=False, properties=lasting()) as one:
            again = await one.expect(Publish)
            assert (again.payload, again.dup) == (b"begun", True)
            assert again.packet_id == first.packet_id
            await one.acknowledge(again)
            assert await one.hears_nothing()
        assert await other.hears_nothing()


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("waits_for", ["PUBREC", "PUBCOMP"])
async def test_mqtt_4_8_2_5_qos_2_that_was_begun_is_discarded_with_its_session(
    mqtt: Mqtt, is_lasting: bool, waits_for: str
) -> None:
    keeper, topic = fresh(), fresh("t")
    filter_ = f"$share/g/{topic}"
    async with mqtt.client(keeper, properties=lasting()) as away:  # so the group's queue is stored
        await away.subscribe(filter_, 2)
        await away.disconnect()
    expiry = lasting(300 if is_lasting else 0)
    async with mqtt.client(properties=expiry) as one, mqtt.client() as publisher:
        await one.subscribe(filter_, 2)
        await publisher.publish(topic, b"begun", 2)
        message = await one.expect(Publish)
        if waits_for == "PUBCOMP":
            one.send(PubRec(message.packet_id))
            await one.expect(PubRel)
        await one.disconnect(0, PropertySet(session_expiry=0))
        async with mqtt.client(keeper, clean=False, properties=lasting()) as back:
            assert await back.hears_nothing()
            await publisher.publish(topic, b"another", 2)
            assert (await back.message()).payload == b"another"


@pytest.mark.parametrize("expiry", [0, 300])
async def test_a_group_with_one_member_gets_qos_2_in_order(mqtt: Mqtt, expiry: int) -> None:
    topic = fresh("t")
    narrow = P(session_expiry=expiry, receive_maximum=3)
    async with mqtt.client(properties=narrow) as one, mqtt.client() as publisher:
        await one.subscribe(f"$share/g/{topic}", 2)
        for i in range(20):
            await publisher.publish(topic, b"%d" % i, 2)
        received = await one.messages(20)
        assert [m.payload for m in received] == [b"%d" % i for i in range(20)]
        assert await one.hears_nothing()


async def test_a_group_of_clean_sessions_discards_qos_2_with_its_member(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as one, mqtt.client() as other, mqtt.client() as publisher:
        await one.subscribe(f"$share/g/{topic}", 2)
        await publisher.publish(topic, b"begun", 2)
        await one.expect(Publish)
        await other.subscribe(f"$share/g/{topic}", 2)
        await one.disconnect()
        assert await other.hears_nothing()
        await publisher.publish(topic, b"another", 2)
        assert (await other.message()).payload == b"another"


# --- $SYS


async def test_sys_topics_tell_how_the_gateway_is(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        await client.subscribe("$SYS/broker/clients/connected")
        message = await client.message()
        assert message.topic == "$SYS/broker/clients/connected"
        assert int(message.payload) >= 1
        await client.subscribe("$SYS/broker/version")
        assert (await client.message()).payload.startswith(b"howdah")


async def test_mqtt_3_3_1_8_a_message_without_retain_leaves_the_retained_one_alone(
    mqtt: Mqtt,
) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await retained(client, topic, b"kept")
        await client.publish(topic, b"passing", 1)
        await client.subscribe(topic, 1)
        assert (await client.message()).payload == b"kept"


async def test_mqtt_3_10_4_3_what_was_begun_is_completed_after_unsubscribe(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client, mqtt.client() as publisher:
        await client.subscribe(topic, 2)
        await publisher.publish(topic, b"begun", 2)
        message = await client.expect(Publish)
        client.send(Unsubscribe(9, (topic,)))
        await client.expect(UnsubAck)
        await client.acknowledge(message)
        assert await client.hears_nothing()
