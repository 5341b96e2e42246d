"""MQTT sessions through crashes: QoS 1 at least once, QoS 2 exactly once."""

from __future__ import annotations

import pytest

from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpPublisher
from tests.faults.crashes import crash
from tests.faults.history import History
from tests.faults.mqtt_clients import MqttPublisher, MqttSubscriber
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess

WAYS = [
    pytest.param(1, "$queue/orders", id="QoS 1, a queue topic"),
    pytest.param(2, "$queue/orders", id="QoS 2, a queue topic"),
    pytest.param(2, "orders", id="QoS 2, a topic to which the queue is bound"),
]


@pytest.mark.parametrize(("qos", "topic"), WAYS)
async def test_what_a_session_publishes_enters_the_queue_whatever_crashes(
    guest: GatewayProcess, server: Server, database: str, history: History, qos: int, topic: str
) -> None:
    consumer = AmqpConsumer(history, "c", guest.amqp_url, "orders")
    publishers = [
        MqttPublisher(
            history, f"p{n}", lambda: guest.ports["mqtt"], qos, queue="orders", topic=topic
        )
        for n in range(2)
    ]
    async with acting(consumer):
        await consumer.is_consuming.wait()
        async with acting(*publishers):
            for _ in range(qos):
                await history.grow(100, of="settled")
                await server.cut(database)
                await history.grow(100, of="settled")
                await crash(guest, history)
            await history.grow(100, of="settled")
            await drained(guest, *publishers)
    assert_promises_hold(history)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_a_session_subscribes_to_reaches_it_whatever_crashes(
    guest: GatewayProcess, server: Server, database: str, history: History, qos: int
) -> None:
    def port() -> int:
        return guest.ports["mqtt"]

    subscriber = MqttSubscriber(history, "s", port, qos, topic="orders")
    publisher = MqttPublisher(history, "p", port, qos, queue="orders")
    async with acting(subscriber):
        await subscriber.is_subscribed.wait()
        async with acting(publisher):
            for _ in range(qos):
                await history.grow(100, of="delivered")
                await server.cut(database)
                await history.grow(100, of="delivered")
                await crash(guest, history)
            await history.grow(100, of="delivered")
            await publisher.stop()
            await history.until(lambda: history.confirmed <= history.delivered, "all delivered")
    assert_promises_hold(history)


async def test_a_session_that_was_away_finds_what_came_meanwhile(
    guest: GatewayProcess, history: History
) -> None:
    def port() -> int:
        return guest.ports["mqtt"]

    def subscriber() -> MqttSubscriber:
        return MqttSubscriber(history, "s", port, 1, topic="orders")

    async with acting(first := subscriber()):
        await first.is_subscribed.wait()
    publisher = AmqpPublisher(history, "p", guest.amqp_url, "orders", exchange="amq.topic")
    async with acting(publisher):
        await history.grow(300)
        await crash(guest, history)
        await history.grow(300)
    async with acting(subscriber()):
        await history.until(lambda: history.confirmed <= history.delivered, "all delivered")
    assert_promises_hold(history)
