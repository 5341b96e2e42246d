"""Exchanges that RabbitMQ has by plugins, as pika's users declare them, and over a restart."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import asyncpg
import pika
import pytest

from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.amqp091_pika import get_until, take
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt
from tests.support.names import fresh

HELD = 4000  # ms

Publishing = Callable[[GatewayProcess, str, list[str]], Awaitable[None]]


def connected(gateway: GatewayProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.ports["amqp"]))


def test_a_delay_outlives_the_gateway(gateway: GatewayProcess) -> None:
    channel = connected(gateway).channel()
    channel.confirm_delivery()
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_declare("late", durable=True)
    channel.queue_bind("late", "late", "k")
    properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": HELD})
    channel.basic_publish("late", "k", b"late", properties, mandatory=True)
    gateway.kill()
    gateway.start()
    channel = connected(gateway).channel()
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=arguments)
    _, _, body = get_until(channel, "late", 20)
    assert body == b"late"


def test_work_is_shared_by_the_hash_of_a_header(shared_gateway: GatewayProcess) -> None:
    channel = connected(shared_gateway).channel()
    channel.exchange_declare("shared-out", "x-consistent-hash", arguments={"hash-header": "part"})
    names = [channel.queue_declare("", exclusive=True).method.queue for _ in range(2)]
    for name in names:
        channel.queue_bind(name, "shared-out", "1")
    for number in range(200):
        headers = {"part": f"p{number % 50}"}
        channel.basic_publish("shared-out", "", b"x", pika.BasicProperties(headers=headers))
    counts = [channel.queue_declare(name, passive=True).method.message_count for name in names]
    assert sum(counts) == 200
    parts = []
    for name, count in zip(names, counts, strict=True):
        assert count
        found = [said.headers["part"] for _, said, _ in take(channel, name, count)]
        channel.cancel()
        assert len(found) == 4 * len(set(found))  # each part is here as a whole
        parts.append(set(found))
    assert not parts[0] & parts[1]


async def publish_by_sql(gateway: GatewayProcess, topic: str, correlations: list[str]) -> None:
    connection = await asyncpg.connect(gateway.database_url)
    await connection.execute(
        "SELECT howdah.publish(howdah.dotted($1), c, exchange => 'amq.topic', correlation_id => c) "
        "FROM unnest($2::text[]) c",
        topic,
        correlations,
    )
    await connection.close()


async def publish_by_mqtt(gateway: GatewayProcess, topic: str, correlations: list[str]) -> None:
    mqtt = Mqtt(gateway.ports["mqtt"])
    client = await mqtt.connected()
    for text in correlations:
        data = text.encode()
        await client.publish(topic, data, 1, properties=PropertySet(correlation_data=data))
    await mqtt.close()


@pytest.mark.parametrize("publish", [publish_by_sql, publish_by_mqtt])
async def test_work_is_shared_by_a_property_whoever_publishes(
    shared_gateway: GatewayProcess, publish: Publishing
) -> None:
    """All with one topic, whose route therefore must not be remembered."""
    exchange, topic = fresh("hashed"), fresh("plant/7")
    connection = connected(shared_gateway)
    channel = connection.channel()
    arguments = {"hash-property": "correlation_id"}
    channel.exchange_declare(exchange, "x-consistent-hash", arguments=arguments)
    channel.exchange_bind(exchange, "amq.topic", topic.replace("/", "."))
    found: dict[str, list[str]] = {}
    for _ in range(2):
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(name, exchange, "1")
        bodies = found.setdefault(name, [])
        channel.basic_consume(
            name, lambda _c, _m, _p, body, into=bodies: into.append(body.decode()), auto_ack=True
        )
    await publish(shared_gateway, topic, [f"c{number % 25}" for number in range(100)])
    deadline = time.monotonic() + 20
    while sum(map(len, found.values())) < 100 and time.monotonic() < deadline:
        connection.process_data_events(time_limit=1)
    first, second = found.values()
    assert len(first) + len(second) == 100
    assert len(set(first)) + len(set(second)) == 25  # each is in one of them as a whole
    assert first
    assert second
    connection.close()
