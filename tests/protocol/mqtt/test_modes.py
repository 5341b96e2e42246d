"""Modes that an operator may choose: fan-out, overflow of the window, limits, the highest QoS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocols.mqtt.wire.packets import (
    Connect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess, running
from tests.support.mqtt_raw_client import Mqtt, RawClient, lasting
from tests.support.names import fresh

P = PropertySet


@asynccontextmanager
async def gateway_with(folder: Path, settings: Mapping[str, Any]) -> AsyncIterator[Mqtt]:
    with running(folder / "gateway", settings) as process:
        mqtt = Mqtt(process.ports["mqtt"])
        yield mqtt
        await mqtt.close()


@pytest.fixture
async def async_fan_out(tmp_path: Path) -> AsyncIterator[Mqtt]:
    settings = {"broker": {"async_fan_out": True, "fan_out_workers": 2}}
    async with gateway_with(tmp_path, settings) as mqtt:
        yield mqtt


async def test_asynchronous_fan_out_delivers_everything_in_order(async_fan_out: Mqtt) -> None:
    mqtt = async_fan_out
    subscribers = [await mqtt.connected() for _ in range(5)]
    for subscriber in subscribers:
        await subscriber.subscribe("news", 1)
    publisher = await mqtt.connected()
    for start in range(0, 500, 100):
        packets = [
            Publish("news", b"%d" % i, 1, packet_id=i + 1) for i in range(start, start + 100)
        ]
        publisher.send(*packets)
        for _ in packets:
            assert (await publisher.find(PubAck)).reason == 0
    for subscriber in subscribers:
        received = await subscriber.messages(500)
        assert [m.payload for m in received] == [b"%d" % i for i in range(500)]


async def test_asynchronous_fan_out_still_commits_before_it_acknowledges(
    async_fan_out: Mqtt,
) -> None:
    mqtt = async_fan_out
    away = await mqtt.connected("away", properties=lasting())
    await away.subscribe("news", 1)
    await away.disconnect()
    live = await mqtt.connected()
    await live.subscribe("news", 1)
    publisher = await mqtt.connected()
    assert await publisher.publish("news", b"both", 1) == 0
    assert await publisher.publish("nobody", b"", 1) == 0x10
    assert (await live.message()).payload == b"both"
    away = await mqtt.connected("away", clean=False, properties=lasting())
    assert (await away.message()).payload == b"both"


async def test_a_pending_queue_takes_more_than_the_window_and_spills_when_its_client_goes(
    tmp_path: Path,
) -> None:
    settings = {
        "session": {
            "max_inflight_messages": 2,
            "inflight_overflow": "pending",
            "pending_queue_size": 5,
        }
    }
    async with gateway_with(tmp_path, settings) as mqtt:
        client = await mqtt.connected("slow", properties=lasting())
        await client.subscribe("t", 1)
        publisher = await mqtt.connected(version=Version.V311)
        for i in range(20):
            await publisher.publish("t", b"%d" % i, 1)
        first = [await client.expect(Publish) for _ in range(2)]
        assert [m.payload for m in first] == [b"0", b"1"]
        assert await client.hears_nothing()
        # what was pending goes back to the queue, with what was in flight
        client.abort()
        client = await mqtt.connected("slow", clean=False, properties=lasting())
        received = await client.messages(20)
        assert [m.payload for m in received] == [b"%d" % i for i in range(20)]
        assert [m.dup for m in received] == [True] * 2 + [False] * 18


@pytest.mark.parametrize("seconds", [0, 300])
@pytest.mark.parametrize("qos", [0, 1])
async def test_mqtt_3_3_1_9_all_retained_messages_come_however_few_find_room(
    narrow: Mqtt, qos: int, seconds: int
) -> None:
    """The session's queues have room for 20."""
    topic = fresh("t")
    publisher = await narrow.connected()
    packets = [
        Publish(f"{topic}/{i}", b"x" * 100_000, 1, True, packet_id=i + 1) for i in range(100)
    ]
    publisher.send(*packets)
    for _ in packets:
        await publisher.find(PubAck)
    limits = P(session_expiry=seconds, receive_maximum=2)
    client = await narrow.connected(properties=limits)
    assert await client.subscribe(f"{topic}/#", qos) == qos
    received = [message.topic for message in await client.messages(100)]
    assert sorted(received) == sorted(packet.topic for packet in packets)
    assert await client.hears_nothing()


async def test_what_is_left_of_retained_messages_is_not_for_who_unsubscribed(narrow: Mqtt) -> None:
    topic = fresh("t")
    publisher = await narrow.connected()
    for i in range(100):
        await publisher.publish(f"{topic}/{i}", b"x", 1, retain=True)
    client = await narrow.connected(properties=P(receive_maximum=1))
    await client.subscribe(f"{topic}/#", 1)
    client.send(Unsubscribe(9, (f"{topic}/#",)))
    await client.find(UnsubAck)
    received = 0
    client.send(PingReq())
    while isinstance(packet := await client.receive(), Publish):  # what had found room
        received += 1
        client.send(PubAck(packet.packet_id), PingReq())
        await client.find(PingResp)
    assert 0 < received < 100


@pytest.fixture(scope="module")
def narrow_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    session = {"max_live_queue_size": 20, "max_offline_queue_size": 20}
    with running(tmp_path_factory.mktemp("narrow"), {"session": session}) as process:
        yield process


@pytest.fixture
async def narrow(narrow_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(narrow_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()


@pytest.fixture(scope="module")
def pending_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = {
        "session": {
            "max_inflight_messages": 1,
            "inflight_overflow": "pending",
            "pending_queue_size": 10,
        }
    }
    with running(tmp_path_factory.mktemp("pending"), settings) as process:
        yield process


@pytest.fixture
async def pending(pending_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(pending_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()


async def test_a_pending_queue_lets_qos_0_pass_a_full_window(pending: Mqtt) -> None:
    client, topic = await pending.connected(), fresh("t")
    await client.subscribe(topic, 1)
    publisher = await pending.connected(version=Version.V311)
    for payload, qos in ((b"1", 1), (b"2", 1), (b"now", 0)):
        await publisher.publish(topic, payload, qos)
    assert (await client.expect(Publish)).payload == b"1"
    assert (await client.expect(Publish)).payload == b"now"
    assert await client.hears_nothing()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("kind", ["passing", "lasting", "group", "queue"])
async def test_mqtt_3_3_2_5_what_expires_while_it_is_pending_is_not_sent(
    pending: Mqtt, kind: str, qos: int
) -> None:
    """Nor does it hold up what comes after it."""
    name = fresh("t")
    address = {"group": f"$share/g/{name}", "queue": f"$queue/{name}"}.get(kind, name)
    topic = address if kind == "queue" else name
    client = await pending.connected(properties=lasting(300 if kind == "lasting" else 0))
    assert await client.subscribe(address, qos) == qos
    publisher = await pending.connected()
    for payload, said in ((b"1", P()), (b"late", P(message_expiry=1)), (b"2", P())):
        await publisher.publish(topic, payload, qos, properties=said)
    first = await client.expect(Publish)
    assert first.payload == b"1"
    await has_passed(pending, seconds=1)
    await client.acknowledge(first)
    assert (await client.message()).payload == b"2"
    assert await client.hears_nothing()


async def has_passed(mqtt: Mqtt, seconds: int) -> None:
    """By the gateway's clock: a retained message lives that long."""
    clock = await mqtt.connected()
    topic = fresh("clock")
    said = P(message_expiry=seconds)
    await clock.publish(topic, b"tick", 1, retain=True, properties=said)
    while await clock.subscribe(topic) == 0 and not await clock.hears_nothing():
        await clock.expect(PingResp)


@pytest.fixture(scope="module")
def strict_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = {
        "broker": {"max_qos": 1, "max_message_size": "2KiB"},
        "mqtt": {"max_topic_levels": 3},
        "session": {"max_subscriptions": 2},
    }
    with running(tmp_path_factory.mktemp("strict"), settings) as process:
        yield process


@pytest.fixture
async def strict(strict_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(strict_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()


async def test_the_highest_qos_is_announced_and_held(strict: Mqtt) -> None:
    client, topic = await strict.connected(), fresh("t")
    assert client.connack.properties.maximum_qos == 1
    assert await client.subscribe(topic, 2) == 1  # downgraded
    for qos in (0, 1):  # a topic that is known by now
        await client.publish(topic, b"", qos)
        await client.message()
    client.send(Publish(topic, b"", 2, packet_id=1))
    assert await client.disconnected() == 0x9B


async def test_mqtt_3_2_2_12_a_will_above_the_highest_qos_is_refused(strict: Mqtt) -> None:
    client: RawClient = await strict.open()
    answer = await client.connect(Connect(fresh(), will=Will("t", b"", 2)))
    assert answer.reason == 0x9B


async def test_the_largest_packet_is_announced_and_held(strict: Mqtt) -> None:
    client, topic = await strict.connected(), fresh("t")
    assert client.connack.properties.maximum_packet_size == 2048
    assert await client.publish(topic, b"x" * 2000, 1) == 0x10
    client.send(Publish(topic, b"x" * 3000, 1, packet_id=9))
    assert await client.disconnected() == 0x95


async def test_subscriptions_and_levels_are_as_many_as_the_operator_says(strict: Mqtt) -> None:
    client = await strict.connected()
    assert await client.publish("a/b/c", b"", 1) < 0x80
    assert await client.publish("a/b/c/d", b"", 1) == 0x90
    reasons = [await client.subscribe(each) for each in ("a/b/c/d", "a/b/#", "c", "d", "c")]
    assert reasons == [0x8F, 0, 0, 0x97, 0]
