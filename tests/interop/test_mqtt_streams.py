"""Streams and queues that AMQP 0.9.1 declared, read and written over MQTT."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from protocols.mqtt.wire.packets import PingReq, PingResp, Publish
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt
from tests.support.names import fresh

P = PropertySet


@pytest.fixture
async def mqtt(shared_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(shared_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()


@pytest.fixture
def channel(shared_gateway: GatewayProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(shared_gateway.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def stream(channel: BlockingChannel) -> str:
    """A stream of ten messages."""
    name = fresh("stream")
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    for i in range(10):
        channel.basic_publish("", name, b"%d" % i)
    return name


def wishes(**said: str) -> PropertySet:
    return P(user=tuple((name.replace("_", "-"), value) for name, value in said.items()))


def facts(message: Publish) -> dict[str, str]:
    return dict(message.properties.user)


@pytest.mark.parametrize(
    ("offset", "first"), [("first", 0), ("last", 9), ("4", 4), ("2020-01-01T00:00:00Z", 0)]
)
async def test_a_stream_is_read_from_where_the_subscriber_says(
    mqtt: Mqtt, stream: str, offset: str, first: int
) -> None:
    async with mqtt.client() as client:
        assert await client.subscribe(f"$queue/{stream}", 0, wishes(offset=offset)) == 0
        received = await client.messages(10 - first)
        assert [m.payload for m in received] == [b"%d" % i for i in range(first, 10)]
        assert facts(received[0])["offset"] == str(first)


async def test_next_begins_with_what_comes(mqtt: Mqtt, stream: str) -> None:
    async with mqtt.client() as client:
        await client.subscribe(f"$queue/{stream}", 1, wishes(offset="next"))
        await client.publish(f"$queue/{stream}", b"new", 1)
        assert (await client.message()).payload == b"new"


async def test_a_group_goes_on_where_it_has_acknowledged(mqtt: Mqtt, stream: str) -> None:
    group = wishes(offset="first", consumer_group="readers")
    async with mqtt.client() as client:
        await client.subscribe(f"$queue/{stream}", 1, group)
        received = await client.messages(4)
        assert facts(received[0])["group-id"] == "readers"
        client.send(PingReq())
        await client.find(PingResp)  # so the acknowledgements have been heard
    async with mqtt.client() as client:
        await client.subscribe(f"$queue/{stream}", 1, group)
        assert facts(await client.message())["offset"] == "4"


async def test_a_cursor_is_committed_by_publishing(mqtt: Mqtt, stream: str) -> None:
    async with mqtt.client() as client:
        committed = wishes(group_id="jump", offset="6")
        assert await client.publish(f"$queue/{stream}/$commit", b"", 1, properties=committed) == 0
        await client.subscribe(f"$queue/{stream}", 1, wishes(consumer_group="jump"))
        assert (await client.message()).payload == b"7"


async def test_a_message_from_amqp_says_what_it_said(mqtt: Mqtt, channel: BlockingChannel) -> None:
    topic = fresh("amqp")
    async with mqtt.client() as client:
        await client.subscribe(f"{topic}/#", 1)
        properties = pika.BasicProperties(
            content_type="text/plain",
            correlation_id="c",
            reply_to="answers",
            message_id="m",
            delivery_mode=2,
            expiration="60000",
            headers={"a": "1", "n": 5},
        )
        channel.basic_publish("amq.topic", f"{topic}.x.y", b"hello", properties)
        message = await client.message()
        assert (message.topic, message.payload, message.qos) == (f"{topic}/x/y", b"hello", 1)
        said = message.properties
        assert (said.content_type, said.correlation_data) == ("text/plain", b"c")
        assert said.response_topic == "answers"
        assert 50 <= (said.message_expiry or 0) <= 60
        assert facts(message)["message-id"] == "m"
        assert (facts(message)["a"], facts(message)["n"]) == ("1", "5")


async def test_a_message_to_amqp_says_what_it_said(mqtt: Mqtt, channel: BlockingChannel) -> None:
    topic, queue = fresh("mqtt"), fresh("queue")
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, "amq.topic", f"{topic}.#")
    said = P(
        content_type="text/plain",
        correlation_data=b"c",
        response_topic="answers/here",
        user=(("a", "1"),),
    )
    async with mqtt.client() as client:
        assert await client.publish(f"{topic}/x", b"hello", 1, properties=said) == 0
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    assert properties is not None
    assert (method.routing_key, body) == (f"{topic}.x", b"hello")
    assert (properties.content_type, properties.correlation_id) == ("text/plain", "c")
    assert properties.reply_to == "answers.here"
    assert (properties.delivery_mode, properties.headers["a"]) == (2, "1")
