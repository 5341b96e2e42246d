"""Exchanges that remember, as clients of every protocol meet them: pika, aiormq, Proton, paho."""

from __future__ import annotations

from collections.abc import Iterator

import aiormq
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as MqttProperties
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.amqp091_pika import connections, take
from tests.support.amqp10_client import Connections, Delivery, data
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

DURABLE = 2
KEY = "x-deduplication-header"


def channel_to(gateway: GatewayProcess) -> BlockingChannel:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.ports["amqp"])
    return pika.BlockingConnection(parameters).channel()


@pytest.fixture
def channel(shared_gateway: GatewayProcess) -> Iterator[BlockingChannel]:
    with connections(shared_gateway.amqp_url()) as connect:
        yield connect().channel()


def marked(value: object, **more: object) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=DURABLE, headers={KEY: value, **more})


def deduplicating(channel: BlockingChannel, **arguments: object) -> tuple[str, str]:
    """An exchange of that kind and a queue that is bound to it."""
    exchange, queue = fresh("dedup"), fresh("dedup")
    words = {"x-cache-size": 100} | {key.replace("_", "-"): v for key, v in arguments.items()}
    channel.exchange_declare(exchange, "x-message-deduplication", durable=True, arguments=words)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange)
    return exchange, queue


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_a_chat_that_one_joins_late_is_there_after_a_kill(gateway: GatewayProcess) -> None:
    channel = channel_to(gateway)
    channel.confirm_delivery()
    arguments = {"x-recent-history-length": 3}
    channel.exchange_declare("chat", "x-recent-history", durable=True, arguments=arguments)
    for number in range(5):
        channel.basic_publish("chat", "", str(number).encode())
    gateway.kill()
    gateway.start()
    channel = channel_to(gateway)
    channel.confirm_delivery()
    channel.exchange_declare("chat", "x-recent-history", durable=True, arguments=arguments)
    channel.basic_publish("chat", "", b"5")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "chat")
    assert [body for _, _, body in take(channel, queue, 3)] == [b"3", b"4", b"5"]


def test_what_was_confirmed_once_is_a_repetition_after_a_kill(gateway: GatewayProcess) -> None:
    channel = channel_to(gateway)
    channel.confirm_delivery()
    exchange, queue = deduplicating(channel)
    for number in range(20):
        channel.basic_publish(exchange, "", b"first", marked(number))
    gateway.kill()
    gateway.start()
    channel = channel_to(gateway)
    channel.confirm_delivery()
    for number in range(25):
        channel.basic_publish(exchange, "", b"again", marked(number))
    bodies = [body for _, _, body in take(channel, queue, 25)]
    assert bodies == [b"first"] * 20 + [b"again"] * 5


def test_a_mandatory_repetition_is_returned_and_confirmed(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    exchange, queue = deduplicating(channel)
    channel.basic_publish(exchange, "k", b"1", marked("a"), mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError) as returned:
        channel.basic_publish(exchange, "k", b"2", marked("a"), mandatory=True)
    assert [each.body for each in returned.value.messages] == [b"2"]
    channel.basic_publish(exchange, "k", b"3", marked("a"))
    assert count(channel, queue) == 1


def test_numbers_as_text_are_taken_as_the_plugins_own_example_has_them(
    channel: BlockingChannel,
) -> None:
    exchange, queue = deduplicating(channel, x_cache_size="5")
    for _ in range(100):
        channel.basic_publish(exchange, "", b"hello", marked("5eb63bbbe01eeed093cb22bb8f5acdc3"))
    assert count(channel, queue) == 1


def test_a_transaction_takes_a_value_once(channel: BlockingChannel) -> None:
    exchange, queue = deduplicating(channel)
    channel.tx_select()
    channel.basic_publish(exchange, "", b"undone", marked("a"))
    channel.tx_rollback()
    for body in (b"done", b"repeated"):
        channel.basic_publish(exchange, "", body, marked("a"))
    channel.tx_commit()
    assert [body for _, _, body in take(channel, queue, 1)] == [b"done"]
    channel.cancel()
    assert count(channel, queue) == 0


def test_a_queue_confirms_a_repetition_of_what_is_in_it(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    queue = fresh("dedup-queue")
    channel.queue_declare(queue, durable=True, arguments={"x-message-deduplication": True})
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body, marked("a"))
    ((method, _, body),) = take(channel, queue, 1)
    assert body == b"1"
    channel.basic_publish("", queue, b"3", marked("a"))  # the first is in our hands
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    channel.basic_publish("", queue, b"4", marked("a"))
    assert [body for _, _, body in take(channel, queue, 1)] == [b"4"]


async def test_a_thousand_repetitions_at_once_are_all_confirmed(
    shared_gateway: GatewayProcess, channel: BlockingChannel
) -> None:
    exchange, queue = deduplicating(channel)
    connection = await aiormq.connect(shared_gateway.amqp_url())
    try:
        publishing = await connection.channel()
        for number in range(1000):
            properties = aiormq.spec.Basic.Properties(delivery_mode=2, headers={KEY: number % 10})
            answer = await publishing.basic_publish(
                b"x", exchange=exchange, routing_key="", properties=properties
            )
            assert isinstance(answer, aiormq.spec.Basic.Ack)
    finally:
        await connection.close()
    assert count(channel, queue) == 10


def test_amqp_10_senders_are_told_accepted_for_repetitions(
    shared_gateway: GatewayProcess, channel: BlockingChannel
) -> None:
    exchange, queue = deduplicating(channel)
    connect = Connections(shared_gateway)
    try:
        sender = connect().create_sender(f"/exchanges/{exchange}/k")
        for body in (b"1", b"2"):
            delivery = sender.send(data(body, properties={KEY: "a"}))
            assert delivery.remote_state == Delivery.ACCEPTED
        channel.basic_publish(exchange, "", b"3", marked("a"))  # the same value in 0.9.1's words
    finally:
        connect.close()
    assert [body for _, _, body in take(channel, queue, 1)] == [b"1"]
    channel.cancel()
    assert count(channel, queue) == 0


def test_mqtt_clients_publish_each_value_once(
    shared_gateway: GatewayProcess, channel: BlockingChannel
) -> None:
    exchange, queue = deduplicating(channel)
    topic = fresh("dedup")
    channel.exchange_bind(exchange, "amq.topic", topic)
    properties = MqttProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = (KEY, "a")
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", shared_gateway.ports["mqtt"])
    client.loop_start()
    try:
        for qos, payload in ((1, b"1"), (2, b"2"), (1, b"3")):
            client.publish(topic, payload, qos, properties=properties).wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()
    assert [body for _, _, body in take(channel, queue, 1)] == [b"1"]
    channel.cancel()
    assert count(channel, queue) == 0
