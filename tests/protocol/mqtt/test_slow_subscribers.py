"""Subscribers that are connected and take less than is published: who waits, and what is lost.

In `backpressure` mode their publishers wait, nobody else does, and nothing is lost; one that takes
nothing at all is disconnected in the end. In `pending` mode the oldest goes, and that is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiormq
import asyncpg
import pytest

from protocols.mqtt.wire.packets import (
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
)
from tests.support.amqp10_client import data
from tests.support.amqp10_reactor import Client, run
from tests.support.gateway_process import GatewayProcess, running
from tests.support.mqtt_raw_client import Mqtt, RawClient, lasting
from tests.support.names import fresh
from tests.support.until import until

LIMITS = {"max_inflight_messages": 20, "max_live_queue_size": 5, "max_offline_queue_size": 5}
PUBLISHERS, EACH = 4, 20  # as many at once as the gateway's receive maximum lets a publisher have


@pytest.fixture(scope="module", params=["synchronous", "asynchronous"])
def holding(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    settings = {
        "session": {**LIMITS, "stall_timeout": "1h"},
        "broker": {"async_fan_out": request.param == "asynchronous"},
    }
    with running(tmp_path_factory.mktemp(request.param), settings) as process:
        yield process


@pytest.fixture
async def mqtt(holding: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(holding.ports["mqtt"])
    yield mqtt
    await mqtt.close()


async def burst(mqtt: Mqtt, topic: str, number: int, qos: int) -> RawClient:
    """A publisher that says everything in one write."""
    publisher = await mqtt.connected()
    publisher.send(
        *(
            Publish(topic, b"%d %d" % (number, i), qos, packet_id=i + 1 if qos else 0)
            for i in range(EACH)
        )
    )
    return publisher


async def answered(publisher: RawClient, qos: int) -> None:
    for _ in range(EACH):
        if qos == 1:
            assert (await publisher.find(PubAck)).reason == 0
        else:
            assert (await publisher.find(PubRec)).reason == 0


async def publish_many(publisher: RawClient, topic: str, count: int) -> set[int]:
    """One after the other; what was answered."""
    return {await publisher.publish(topic, b"", 1) for _ in range(count)}


@pytest.mark.parametrize("kind", ["passing", "lasting", "group", "lasting group"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_slow_subscriber_makes_its_publishers_wait_and_loses_nothing(
    mqtt: Mqtt, holding: GatewayProcess, qos: int, kind: str
) -> None:
    topic = fresh("t")
    slow = await mqtt.connected(properties=lasting(300 if "lasting" in kind else 0))
    address = f"$share/g/{topic}" if "group" in kind else topic
    assert await slow.subscribe(address, qos) == qos
    dropped = holding.metric("howdah_dropped_overflow_total")

    publishers = [await burst(mqtt, topic, number, qos) for number in range(PUBLISHERS)]
    bystander = await mqtt.connected()
    await bystander.subscribe(fresh("elsewhere"), 1)
    for _ in range(10):
        assert await bystander.publish(fresh("elsewhere"), b"", 1) < 0x80

    received = await slow.messages(PUBLISHERS * EACH)
    for publisher in publishers:
        await answered(publisher, qos)
    assert holding.metric("howdah_dropped_overflow_total") == dropped
    for number in range(PUBLISHERS):
        own = [m.payload for m in received if m.payload.startswith(b"%d " % number)]
        assert own == [b"%d %d" % (number, i) for i in range(EACH)]


async def test_a_publisher_over_amqp_0_9_1_waits_for_a_slow_subscriber(
    mqtt: Mqtt, holding: GatewayProcess
) -> None:
    topic = fresh("t")
    slow = await mqtt.connected()
    await slow.subscribe(topic, 1)
    connection = await aiormq.connect(holding.amqp_url())
    channel = await connection.channel()
    properties = aiormq.spec.Basic.Properties(delivery_mode=2)
    publishes = [
        asyncio.create_task(
            channel.basic_publish(
                b"%d" % i, exchange="amq.topic", routing_key=topic, properties=properties
            )
        )
        for i in range(200)
    ]
    received = await slow.messages(200)
    await asyncio.gather(*publishes)
    assert [int(each.payload) for each in received] == list(range(200))
    await connection.close()


async def test_who_publishes_in_transactions_waits_for_a_slow_subscriber(
    mqtt: Mqtt, holding: GatewayProcess
) -> None:
    topic = fresh("t")
    slow = await mqtt.connected()
    await slow.subscribe(topic, 1)
    connection = await aiormq.connect(holding.amqp_url())
    channel = await connection.channel(publisher_confirms=False)
    await channel.tx_select()
    properties = aiormq.spec.Basic.Properties(delivery_mode=2)
    held = holding.metric("howdah_amqp091_held_publishers_total")
    sent = 0
    while holding.metric("howdah_amqp091_held_publishers_total") == held:
        assert sent < 100, "nobody was held"
        await channel.basic_publish(
            b"%d" % sent, exchange="amq.topic", routing_key=topic, properties=properties
        )
        await channel.tx_commit()
        sent += 1
    assert [int(each.payload) for each in await slow.messages(sent)] == list(range(sent))
    await connection.close()


class Transactions(Client):
    """Sends one message in each of many transactions of AMQP 1.0, one after the other."""

    def __init__(self, gateway: GatewayProcess, topic: str, count: int) -> None:
        super().__init__(gateway)
        self.topic, self.count = topic, count
        self.sent = 0
        self.transaction: Any = None

    def begin(self, event: Any) -> None:
        self.sender = self.container.create_sender(
            self.connection, f"/exchanges/amq.topic/{self.topic}"
        )
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.send()

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        if self.transaction is not None and self.sender.credit:
            transaction, self.transaction = self.transaction, None
            transaction.send(self.sender, data(b"%d" % self.sent, durable=True))
            self.sent += 1
            transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        if self.sent == self.count:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)


async def test_who_publishes_in_transactions_of_amqp_1_0_waits_for_a_slow_subscriber(
    mqtt: Mqtt, holding: GatewayProcess
) -> None:
    topic, count = fresh("t"), 60
    slow = await mqtt.connected()
    await slow.subscribe(topic, 1)
    held = holding.metric("howdah_amqp10_held_publishers_total")
    client = Transactions(holding, topic, count)
    running_client = asyncio.create_task(asyncio.to_thread(run, client))

    def is_held() -> bool:
        assert not running_client.done(), "nobody was held"
        return holding.metric("howdah_amqp10_held_publishers_total") > held

    await until(is_held)
    assert client.sent < count
    assert [int(each.payload) for each in await slow.messages(count)] == list(range(count))
    await running_client


async def test_what_sql_publishes_waits_for_a_slow_subscriber(
    mqtt: Mqtt, holding: GatewayProcess
) -> None:
    topic = fresh("t")
    slow = await mqtt.connected()
    await slow.subscribe(topic, 1)
    connection = await asyncpg.connect(holding.database_url)
    statement = "SELECT count(howdah.publish_topic($1, i::text)) FROM generate_series(1, $2) i"
    for count in (100, 150):  # the second finds the queue full
        await connection.fetch(statement, topic, count)
    await connection.close()
    received = [int(each.payload) for each in await slow.messages(250)]
    assert received == [*range(1, 101), *range(1, 151)]


async def test_a_publisher_waits_while_its_subscriber_acknowledges_nothing(
    mqtt: Mqtt, holding: GatewayProcess
) -> None:
    topic = fresh("t")
    slow = await mqtt.connected()
    await slow.subscribe(topic, 1)
    held = holding.metric("howdah_mqtt_held_publishers_total")
    publisher = await mqtt.connected()
    sent = 0
    while holding.metric("howdah_mqtt_held_publishers_total") == held:
        sent += 1  # one more is answered, or held
        publisher.send(Publish(topic, b"%d" % sent, 1, packet_id=sent))
        assert sent < 1000, "nobody was held"
    received = await slow.messages(sent)
    assert [int(each.payload) for each in received] == list(range(1, sent + 1))
    assert [(await publisher.find(PubAck)).packet_id for _ in range(sent)][-1] == sent


async def fill(client: RawClient, topic: str) -> None:
    """Publishes until its subscriber's window is full, then as much again, for which there is no
    room."""
    client.send(*(Publish(topic, b"%d" % i, 1, packet_id=i + 1) for i in range(20)))
    for _ in range(20):
        await client.find(PubAck)
    client.send(*(Publish(topic, b"%d" % i, 1, packet_id=i + 1) for i in range(20, 40)))


async def acknowledge_all(client: RawClient, count: int) -> list[int]:
    found = []
    for _ in range(count):
        packet = await client.find(Publish)
        client.send(PubAck(packet.packet_id))
        found.append(int(packet.payload))
    return found


async def test_who_publishes_to_itself_is_not_kept_from_acknowledging(mqtt: Mqtt) -> None:
    topic = fresh("t")
    client = await mqtt.connected()
    await client.subscribe(topic, 1)
    await fill(client, topic)
    assert await acknowledge_all(client, 40) == list(range(40))
    for _ in range(20):
        await client.find(PubAck)


async def test_clients_that_publish_to_each_other_do_not_wait_for_each_other(mqtt: Mqtt) -> None:
    topics = [fresh("t"), fresh("t")]
    clients = [await mqtt.connected(), await mqtt.connected()]
    for client, topic in zip(clients, topics, strict=True):
        await client.subscribe(topic, 1)
    for client, topic in zip(clients, reversed(topics), strict=True):
        await fill(client, topic)
    found = await asyncio.gather(*(acknowledge_all(client, 40) for client in clients))
    assert found == [list(range(40)), list(range(40))]


async def test_a_publisher_that_waits_is_told_that_the_gateway_lives(mqtt: Mqtt) -> None:
    topic = fresh("t")
    slow, publisher = await mqtt.connected(), await mqtt.connected()
    await slow.subscribe(topic, 1)
    await fill(publisher, topic)
    publisher.send(PingReq())
    await publisher.find(PingResp)
    await slow.messages(40)


async def test_what_a_client_acknowledges_wrongly_ends_it_though_it_waits(mqtt: Mqtt) -> None:
    topic = fresh("t")
    client = await mqtt.connected()
    await client.subscribe(topic, 1)
    await fill(client, topic)
    packet = await client.find(Publish)
    client.send(PubComp(packet.packet_id))
    assert (await client.find(Disconnect)).reason == 0x82


async def test_a_subscriber_that_takes_nothing_is_disconnected_with_its_reason(
    tmp_path: Path,
) -> None:
    settings = {"session": {**LIMITS, "stall_timeout": "300ms"}}
    with running(tmp_path / "gateway", settings) as process:
        mqtt = Mqtt(process.ports["mqtt"])
        for kind in (0, 300):
            assert process.metric("howdah_dropped_overflow_total") == 0
            topic = fresh("t")
            stalled = await mqtt.connected("stalled", properties=lasting(kind))
            await stalled.subscribe(topic, 1)
            publisher = await mqtt.connected()
            answered = asyncio.create_task(publish_many(publisher, topic, 100))
            for _ in range(LIMITS["max_inflight_messages"]):
                await stalled.expect(Publish)
            assert await stalled.disconnected() == 0x97
            assert await answered <= {0, 0x10}  # it goes on, with or without somebody there
        # the queue of a client that is away keeps to its limit
        assert process.metric("howdah_dropped_overflow_total") > 0
        assert process.metric("howdah_stalled_consumers_total") == 2
        assert "took nothing for 0.3 s while publishers waited" in process.log()
        await mqtt.close()


async def test_in_pending_mode_what_a_clean_session_has_no_room_for_is_dropped_and_told(
    tmp_path: Path,
) -> None:
    settings = {"session": {**LIMITS, "inflight_overflow": "pending", "pending_queue_size": 1}}
    with running(tmp_path / "gateway", settings) as process:
        mqtt = Mqtt(process.ports["mqtt"])
        topic = fresh("t")
        slow = await mqtt.connected("slow")
        await slow.subscribe(topic, 1)
        publishers = [await burst(mqtt, topic, number, 1) for number in range(PUBLISHERS)]
        for publisher in publishers:
            await answered(publisher, 1)
        kept = LIMITS["max_inflight_messages"] + 1 + LIMITS["max_live_queue_size"]
        lost = PUBLISHERS * EACH - kept
        assert process.metric("howdah_dropped_overflow_total") == lost
        await slow.messages(kept)
        assert await slow.hears_nothing()
        assert process.log().count("is full, and drops its oldest messages") == 1
        await mqtt.close()
