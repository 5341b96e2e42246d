"""RabbitMQ's tutorials with pika, unchanged in shape from how a user writes them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.amqp091_pika import Connect, connections, get_until, take
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh


@pytest.fixture
def connect(shared_gateway: GatewayProcess) -> Iterator[Connect]:
    with connections(shared_gateway.amqp_url()) as made:
        yield made


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    return connect().channel()


def test_tutorial_one_hello_world(channel: BlockingChannel) -> None:
    queue = fresh("hello")
    channel.queue_declare(queue=queue)
    channel.basic_publish(exchange="", routing_key=queue, body="Hello World!")
    received: list[bytes] = []

    def callback(ch: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        received.append(body)
        ch.stop_consuming()

    channel.basic_consume(queue=queue, auto_ack=True, on_message_callback=callback)
    channel.start_consuming()
    assert received == [b"Hello World!"]


def test_tutorial_two_work_queues_are_fair_with_a_prefetch_of_one(
    connect: Connect,
) -> None:
    queue = fresh("task_queue")
    sender = connect().channel()
    sender.queue_declare(queue=queue, durable=True)
    workers = [connect().channel() for _ in range(2)]
    done: list[tuple[int, bytes]] = []
    for number, worker in enumerate(workers):
        worker.basic_qos(prefetch_count=1)

        def callback(
            ch: BlockingChannel, method: Any, properties: Any, body: bytes, number: int = number
        ) -> None:
            done.append((number, body))
            if number == 0:
                return  # the slow one never finishes its first task
            ch.basic_ack(delivery_tag=method.delivery_tag)

        worker.basic_consume(queue=queue, on_message_callback=callback)
    for index in range(6):
        sender.basic_publish(
            exchange="",
            routing_key=queue,
            body=str(index),
            properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent),
        )
    deadline = time.monotonic() + 10
    while len(done) < 6 and time.monotonic() < deadline:
        for worker in workers:
            worker.connection.process_data_events(0.02)
    assert sorted(body for _, body in done) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [number for number, _ in done].count(0) == 1


def test_tutorial_three_publish_subscribe(
    connect: Connect,
) -> None:
    logs = fresh("logs")
    subscribers = []
    for _ in range(2):
        ch = connect().channel()
        ch.exchange_declare(exchange=logs, exchange_type="fanout")
        queue = ch.queue_declare(queue="", exclusive=True).method.queue
        assert queue.startswith("amq.gen-")
        ch.queue_bind(exchange=logs, queue=queue)
        subscribers.append((ch, queue))
    emitter = connect().channel()
    emitter.exchange_declare(exchange=logs, exchange_type="fanout")
    emitter.basic_publish(exchange=logs, routing_key="", body=b"info: Hello World!")
    for ch, queue in subscribers:
        assert get_until(ch, queue, auto_ack=True)[2] == b"info: Hello World!"


def test_tutorial_four_routing(channel: BlockingChannel) -> None:
    exchange = fresh("direct_logs")
    channel.exchange_declare(exchange=exchange, exchange_type="direct")
    queue = channel.queue_declare(queue="", exclusive=True).method.queue
    for severity in ("warning", "error"):
        channel.queue_bind(exchange=exchange, queue=queue, routing_key=severity)
    for severity in ("info", "warning", "error"):
        channel.basic_publish(exchange=exchange, routing_key=severity, body=severity.encode())
    assert [body for _, _, body in take(channel, queue, 2, auto_ack=True)] == [b"warning", b"error"]


def test_tutorial_five_topics(channel: BlockingChannel) -> None:
    exchange = fresh("topic_logs")
    channel.exchange_declare(exchange=exchange, exchange_type="topic")
    queue = channel.queue_declare(queue="", exclusive=True).method.queue
    for key in ("*.orange.*", "*.*.rabbit", "lazy.#"):
        channel.queue_bind(exchange=exchange, queue=queue, routing_key=key)
    keys = [
        "quick.orange.rabbit",
        "quick.brown.fox",
        "lazy.brown.fox",
        "lazy",
        "quick.orange.new.rabbit",
        "lazy.orange.new.rabbit",
    ]
    for key in keys:
        channel.basic_publish(exchange=exchange, routing_key=key, body=key.encode())
    found = [method.routing_key for method, _, _ in take(channel, queue, 4, auto_ack=True)]
    assert found == ["quick.orange.rabbit", "lazy.brown.fox", "lazy", "lazy.orange.new.rabbit"]


def test_tutorial_six_remote_procedure_call(
    connect: Connect,
) -> None:
    queue = fresh("rpc_queue")
    server, client = connect().channel(), connect().channel()
    server.queue_declare(queue=queue)

    def on_request(ch: BlockingChannel, method: Any, props: Any, body: bytes) -> None:
        ch.basic_publish(
            exchange="",
            routing_key=props.reply_to,
            properties=pika.BasicProperties(correlation_id=props.correlation_id),
            body=str(int(body) * 2),
        )
        ch.basic_ack(delivery_tag=method.delivery_tag)

    server.basic_qos(prefetch_count=1)
    server.basic_consume(queue=queue, on_message_callback=on_request)
    callback_queue = client.queue_declare(queue="", exclusive=True).method.queue
    responses: dict[str, bytes] = {}
    client.basic_consume(
        queue=callback_queue,
        on_message_callback=lambda ch, m, props, body: responses.update(
            {props.correlation_id: body}
        ),
        auto_ack=True,
    )
    asked = str(uuid.uuid4())
    client.basic_publish(
        exchange="",
        routing_key=queue,
        properties=pika.BasicProperties(reply_to=callback_queue, correlation_id=asked),
        body=b"21",
    )
    deadline = time.monotonic() + 10
    while asked not in responses and time.monotonic() < deadline:
        server.connection.process_data_events(0.02)
        client.connection.process_data_events(0.02)
    assert responses == {asked: b"42"}


def test_tutorial_seven_publisher_confirms(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    queue = channel.queue_declare(queue=fresh("confirms"), durable=True).method.queue
    for index in range(20):
        channel.basic_publish(
            exchange="",
            routing_key=queue,
            body=str(index),
            properties=pika.BasicProperties(delivery_mode=2),
        )
    assert channel.queue_declare(queue=queue, passive=True).method.message_count == 20
