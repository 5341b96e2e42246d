"""`$queue/...`: publish into a queue, compete on it, settle by PUBACK or by settle topics."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    UnsubAck,
    Unsubscribe,
    Version,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, RawClient
from tests.support.names import fresh

P = PropertySet
LASTING = P(session_expiry=100)
MANUAL = P(user=(("ack", "manual"),))


def facts(message: Publish) -> dict[str, str]:
    return dict(message.properties.user)


async def settle(client: RawClient, queue: str, verb: str, **said: str) -> int:
    user = tuple((name.replace("_", "-"), value) for name, value in said.items())
    return await client.publish(f"{queue}/{verb}", b"", 1, properties=P(user=user))


async def test_a_queue_keeps_messages_until_somebody_acknowledges_them(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as publisher:
        for i in range(3):
            assert await publisher.publish(queue, b"%d" % i, 1) == 0
    async with mqtt.client() as worker:
        assert await worker.subscribe(queue, 1) == 1
        received = [await worker.expect(Publish) for _ in range(3)]
        assert [m.payload for m in received] == [b"0", b"1", b"2"]
        name = queue.removeprefix("$queue/")
        said = facts(received[1])
        assert said["message-id"] == f"{name}:1"
        assert (said["offset"], said["delivery-count"]) == ("1", "0")
        assert said["x-source-topic"] == queue
        worker.send(PubAck(received[0].packet_id))
        assert await worker.hears_nothing()
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 1)
        again = await worker.messages(2)
        assert [(m.payload, m.dup) for m in again] == [(b"1", True), (b"2", True)]
        assert [facts(m)["delivery-count"] for m in again] == ["1", "1"]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
async def test_many_at_once_are_answered_in_order_and_stored_in_order(
    mqtt: Mqtt, version: Version
) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client(version=version) as publisher, mqtt.client() as worker:
        await publisher.publish(queue, b"first", 1)
        count = 3000
        payloads = [b"%d" % i * (i % 7) for i in range(count)]
        for start in range(0, count, 500):
            packets = [
                Publish(queue, payloads[i], 1, packet_id=1000 + i)
                for i in range(start, start + 500)
            ]
            publisher.send(*packets)
            for packet in packets:
                assert await publisher.expect(PubAck) == PubAck(packet.packet_id)
        await worker.subscribe(queue, 1)
        received = await worker.messages(count + 1)
        assert [message.payload for message in received] == [b"first", *payloads]


async def test_a_queue_captures_many_at_once_from_a_topic(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    queue, topic = fresh("captured"), fresh("plant/temperature")
    assert shared_gateway.run("queue", "declare", queue).returncode == 0
    assert shared_gateway.run("queue", "bind", queue, "--topic", topic).returncode == 0
    said = P(content_type="text/plain", user=(("unit", "K"),))
    async with mqtt.client() as publisher, mqtt.client() as worker:
        await publisher.publish(topic, b"first", 1)
        packets = [
            Publish(topic, b"%d" % i, 1, packet_id=100 + i, properties=said) for i in range(200)
        ]
        publisher.send(*packets)
        for packet in packets:
            assert await publisher.expect(PubAck) == PubAck(packet.packet_id)
        await worker.subscribe(f"$queue/{queue}", 1)
        received = await worker.messages(201)
        assert [m.payload for m in received] == [b"first", *[b"%d" % i for i in range(200)]]
        assert {m.properties.content_type for m in received[1:]} == {"text/plain"}
        assert {facts(m)["unit"] for m in received[1:]} == {"K"}
        assert {facts(m)["x-source-topic"] for m in received} == {topic}


async def test_a_full_queue_refuses_those_of_many_that_do_not_fit(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    queue = fresh("q")
    words = ("--argument", "x-max-length=5", "--argument", "x-overflow=reject-publish")
    assert shared_gateway.run("queue", "declare", queue, *words).returncode == 0
    async with mqtt.client() as publisher:
        await publisher.publish(f"$queue/{queue}", b"0", 1)
        publisher.send(
            *[Publish(f"$queue/{queue}", b"%d" % i, 1, packet_id=100 + i) for i in range(1, 9)]
        )
        answers = [await publisher.expect(PubAck) for _ in range(8)]
        assert [each.packet_id for each in answers] == list(range(101, 109))
        assert [each.reason for each in answers] == [0] * 4 + [0x97] * 4
    async with mqtt.client() as worker:
        await worker.subscribe(f"$queue/{queue}", 1)
        received = await worker.messages(5)
        assert [message.payload for message in received] == [b"%d" % i for i in range(5)]


async def test_members_of_a_queue_compete(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as one, mqtt.client() as two, mqtt.client() as publisher:
        await one.subscribe(queue, 1)
        await two.subscribe(queue, 1)
        for i in range(10):
            await publisher.publish(queue, b"%d" % i, 1)
        halves = [[await w.message() for _ in range(5)] for w in (one, two)]
        payloads = sorted(m.payload for half in halves for m in half)
        assert payloads == [b"%d" % i for i in range(10)]


async def test_qos_0_on_a_classic_queue_is_refused(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        answer = await client.subscribe(fresh("$queue/q"), 0)
        assert answer == 0x83


async def test_receive_maximum_is_the_prefetch(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client(properties=P(receive_maximum=2)) as worker, mqtt.client() as publisher:
        await worker.subscribe(queue, 1)
        for i in range(5):
            await publisher.publish(queue, b"%d" % i, 1)
        first = await worker.expect(Publish)
        await worker.expect(Publish)
        assert await worker.hears_nothing()
        worker.send(PubAck(first.packet_id))
        assert (await worker.expect(Publish)).payload == b"2"


@pytest.mark.parametrize(("reason", "comes_back"), [(0x83, True), (0x80, True), (0x99, False)])
async def test_a_reason_code_is_a_verdict(mqtt: Mqtt, reason: int, comes_back: bool) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 1)
        await worker.publish(queue, b"x", 1)
        message = await worker.find(Publish)
        worker.send(PubAck(message.packet_id, reason))
        if comes_back:
            again = await worker.message()
            assert (again.payload, again.dup) == (b"x", True)
            assert facts(again)["delivery-count"] == "0"  # released, not failed
        else:
            assert await worker.hears_nothing()


async def test_qos_2_settles_at_pubcomp(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 2)
        await worker.publish(queue, b"x", 2)
        await worker.message()
        assert await worker.hears_nothing()
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 1)
        assert await worker.hears_nothing()


async def test_with_manual_acknowledgement_a_settle_topic_decides(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client(properties=P(receive_maximum=3)) as worker:
        await worker.subscribe(queue, 1, MANUAL)
        for i in range(4):
            await worker.publish(queue, b"%d" % i, 1)
        held = {m.payload: facts(m)["message-id"] for m in [await worker.message() for _ in "123"]}
        assert await worker.hears_nothing()  # PUBACK does not settle, so credit is used up
        assert await settle(worker, queue, "$ack", message_id=held[b"0"]) == 0
        assert (await worker.message()).payload == b"3"
        assert await settle(worker, queue, "$nack", message_id=held[b"1"]) == 0
        assert (await worker.message()).payload == b"1"
        assert await settle(worker, queue, "$reject", message_id=held[b"2"], reason="bad") == 0
        assert await worker.hears_nothing()


async def test_a_nack_may_ask_for_a_delay(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 1, MANUAL)
        await worker.publish(queue, b"later", 1)
        await worker.publish(queue, b"now", 1)
        first = await worker.message()
        await worker.message()
        said = facts(first)["message-id"]
        assert await settle(worker, queue, "$nack", message_id=said, delay="0.3") == 0
        assert await worker.hears_nothing()
        assert (await worker.message()).payload == b"later"


@pytest.mark.parametrize(
    "said",
    [{}, {"message_id": "other:1"}, {"message_id": "nonsense"}, {"message_id": "{queue}:99"}],
)
async def test_a_settlement_of_nothing_gets_an_error(mqtt: Mqtt, said: dict[str, str]) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as worker:
        await worker.subscribe(queue, 1, MANUAL)
        name = queue.removeprefix("$queue/")
        said = {key: value.format(queue=name) for key, value in said.items()}
        assert await settle(worker, queue, "$ack", **said) == 0x83


async def test_settle_topics_never_enter_ordinary_routing(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as worker:
        await worker.subscribe("$queue/+/$ack", 1)
        await worker.subscribe(queue, 1, MANUAL)
        await worker.publish(queue, b"x", 1)
        said = facts(await worker.message())["message-id"]
        await settle(worker, queue, "$ack", message_id=said)
        assert await worker.hears_nothing()


async def test_keys_are_filtered_and_seen(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client() as german, mqtt.client() as rest, mqtt.client() as publisher:
        await german.subscribe(f"{queue}/de/#", 1)
        await publisher.publish(f"{queue}/fr/paris", b"1", 1)
        await publisher.publish(f"{queue}/de/bonn", b"2", 1)
        message = await german.message()
        assert (message.payload, message.topic) == (b"2", f"{queue}/de/bonn")
        await rest.subscribe(queue, 1)
        message = await rest.message()
        assert (message.payload, message.topic) == (b"1", queue)
        assert facts(message)["x-source-topic"] == f"{queue}/fr/paris"


async def test_3_1_1_clients_use_queues_too(mqtt: Mqtt) -> None:
    queue = fresh("$queue/q")
    async with mqtt.client(version=Version.V311) as worker:
        assert await worker.subscribe(queue, 1) == 1
        await worker.publish(queue, b"x", 1)
        message = await worker.message()
        assert (message.topic, message.payload) == (queue, b"x")


async def test_a_lasting_session_goes_on_consuming(mqtt: Mqtt) -> None:
    queue, name = fresh("$queue/q"), fresh()
    lasting = P(session_expiry=100)
    async with mqtt.client(name, properties=lasting) as worker:
        await worker.subscribe(queue, 1)
        await worker.disconnect()
    async with mqtt.client() as publisher:
        await publisher.publish(queue, b"x", 1)
    async with mqtt.client(name, clean=False, properties=lasting) as worker:
        assert (await worker.message()).payload == b"x"


async def test_positions_and_groups_are_for_streams(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        queue = fresh("$queue/q")
        assert await client.subscribe(queue, 1, P(user=(("offset", "first"),))) == 0x83
        assert await client.subscribe(queue, 1, P(user=(("offset", "nowhere"),))) == 0x83
        assert await client.subscribe(queue, 1, P(user=(("ack", "perhaps"),))) == 0x83
        assert await client.publish(f"{queue}/$commit", b"", 1) != 0


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param(("offset", "9" * 30), id="an offset that is no number"),
        pytest.param(("offset", str(2**63 - 1)), id="an offset that no stream will have"),
        pytest.param(("consumer-group", "g" * 300), id="a group with too long a name"),
    ],
)
async def test_a_place_that_cannot_be_read_from_is_refused_and_the_client_goes_on(
    mqtt: Mqtt, shared_gateway: GatewayProcess, wish: tuple[str, str]
) -> None:
    name = fresh("log")
    arguments = ("-a", "x-queue-type=stream")
    assert shared_gateway.run("queue", "declare", name, *arguments).returncode == 0
    queue = f"$queue/{name}"
    client_id = fresh("reader")
    async with mqtt.client(client_id, properties=LASTING) as reader:
        assert await reader.subscribe(queue, 1, P(user=(wish,))) == 0x83
        reader.send(Unsubscribe(99, (queue,)))
        assert (await reader.find(UnsubAck)).reasons == (0x11,)  # there is no such subscription
        assert await reader.subscribe(queue, 1) == 1


async def test_mqtt_3_8_4_3_a_subscription_stays_as_it_was_when_it_is_not_replaced(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    name = fresh("log")
    arguments = ("-a", "x-queue-type=stream")
    assert shared_gateway.run("queue", "declare", name, *arguments).returncode == 0
    queue, client_id = f"$queue/{name}", fresh("reader")
    group, nowhere = ("consumer-group", "readers"), ("offset", str(2**63 - 1))
    async with mqtt.client(client_id, properties=LASTING) as reader:
        assert await reader.subscribe(queue, 1, P(user=(group,))) == 1
        await reader.publish(queue, b"1", 1)
        first = await reader.expect(Publish)
        for wish in (nowhere, ("consumer-group", "g" * 300), ("ack", "perhaps")):
            assert await reader.subscribe(queue, 1, P(user=(wish,))) == 0x83
        await reader.publish(queue, b"2", 1)
        second = await reader.message()  # and not the first one again
        assert (second.payload, facts(second)["group-id"]) == (b"2", "readers")
        reader.send(PubAck(first.packet_id))
        assert await reader.hears_nothing()
        await reader.disconnect()
    async with mqtt.client() as publisher:
        await publisher.publish(queue, b"3", 1)
    async with mqtt.client(client_id, clean=False, properties=LASTING) as reader:
        third = await reader.message()
        assert (third.payload, facts(third)["group-id"]) == (b"3", "readers")
        assert await reader.subscribe(queue, 1, P(user=(("offset", "first"),))) == 1
        replaced = await reader.messages(3)
        assert [m.payload for m in replaced] == [b"1", b"2", b"3"]
        assert await reader.hears_nothing()


async def test_what_a_filter_leaves_out_stays_in_its_place_for_others(mqtt: Mqtt) -> None:
    """Untouched: not flagged, not counted, and in order."""
    name = fresh("$queue/q")
    async with mqtt.client() as picky, mqtt.client() as publisher:
        await picky.subscribe(f"{name}/wanted/#", 1)
        for i in range(20):
            await publisher.publish(f"{name}/{'other' if i % 4 else 'wanted'}/x", b"%d" % i, 1)
        chosen = await picky.messages(5)
        assert [m.payload for m in chosen] == [b"0", b"4", b"8", b"12", b"16"]
        assert await picky.hears_nothing()
        async with mqtt.client() as other:
            await other.subscribe(name, 1)
            rest = await other.messages(15)
    assert [int(m.payload) for m in rest] == [i for i in range(20) if i % 4]
    assert not any(m.dup for m in rest)
    assert {dict(m.properties.user)["delivery-count"] for m in rest} == {"0"}


async def test_an_identifier_that_a_lost_client_keeps_is_released_before_it_is_used_again(
    mqtt: Mqtt,
) -> None:
    """Else the client would take the next message under it for one that it has."""
    name, queue = fresh(), fresh("$queue/q")
    packet_id = await received_half(mqtt, name, queue)
    await check_released(mqtt, name, queue, packet_id)


async def test_it_is_released_after_a_crash_as_well(gateway: GatewayProcess) -> None:
    mqtt = Mqtt(gateway.ports["mqtt"])
    packet_id = await received_half(mqtt, "worker", "$queue/q")
    gateway.kill()
    await mqtt.close()
    gateway.restart()
    await check_released(mqtt, "worker", "$queue/q", packet_id)
    await mqtt.close()


async def received_half(mqtt: Mqtt, name: str, queue: str) -> int:
    """The identifier of a QoS 2 message whose receiver was lost before PUBCOMP."""
    async with mqtt.client(name, properties=LASTING) as worker, mqtt.client() as publisher:
        await worker.subscribe(queue, 2)
        await publisher.publish(queue, b"first", 1)
        message = await worker.expect(Publish)
        worker.send(PubRec(message.packet_id))
        await worker.expect(PubRel)
    return message.packet_id


async def check_released(mqtt: Mqtt, name: str, queue: str, packet_id: int) -> None:
    async with mqtt.client() as other, mqtt.client() as publisher:
        await other.subscribe(queue, 1)
        assert (await other.message()).payload == b"first"  # it came back to its queue
        await other.disconnect()
        await publisher.publish(queue, b"second", 1)
    async with mqtt.client(name, clean=False, properties=LASTING) as worker:
        assert await worker.expect(PubRel) == PubRel(packet_id)
        second = await worker.expect(Publish)
        assert second.payload == b"second"
        assert second.packet_id != packet_id
        worker.send(PubComp(packet_id))
        await worker.acknowledge(second)
        assert await worker.hears_nothing()


async def test_what_the_active_consumer_had_comes_first_to_the_next_one(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    name = fresh("single")
    word = ("-a", "x-single-active-consumer=true")
    assert shared_gateway.run("queue", "declare", name, *word).returncode == 0
    queue = f"$queue/{name}"
    async with mqtt.client() as publisher, mqtt.client() as waiting:
        active = await mqtt.connected(properties=P(receive_maximum=2))
        await active.subscribe(queue, 1)
        await waiting.subscribe(queue, 1)
        for i in range(5):
            await publisher.publish(queue, b"%d" % i, 1)
        assert [(await active.expect(Publish)).payload for _ in range(2)] == [b"0", b"1"]
        active.abort()
        assert [m.payload for m in await waiting.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]
