"""Exchanges that RabbitMQ has by plugins, as pika's users declare them, and over a restart."""

from __future__ import annotations

import pika

from tests.gateway_process import GatewayProcess
from tests.interop.amqp091_pika import get_until, take

HELD = 4000  # ms


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
