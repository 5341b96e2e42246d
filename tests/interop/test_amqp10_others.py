"""AMQP 1.0 beside 0.9.1 and MQTT: one message, every protocol's own words for it, and back."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pika
import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as MqttProperties

from tests.support.amqp10_client import Connections, Message, content, data, symbol
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS


def get(channel: Any, queue: str) -> tuple[Any, bytes]:
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE_SECONDS):
        assert method is not None, "nothing came"
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        return properties, body
    raise AssertionError("nothing came")


def test_a_1_0_message_says_the_same_in_0_9_1(connect: Connections, channel: Any) -> None:
    queue = fresh("to-091")
    channel.queue_declare(queue, durable=True)
    message = data(
        b"body",
        durable=True,
        priority=7,
        ttl=60.0,
        id=UUID(int=5),
        correlation_id=7,
        subject="kind",
        reply_to="/queues/answers",
        content_type="a/b",
        content_encoding="gzip",
        user_id=b"guest",
        group_id="g",
        creation_time=1_700_000_000.0,
        properties={"n": 5, "flag": True, "text": "ü"},
        annotations={symbol("x-opt-note"): [1, 2]},
    )
    connect().create_sender(f"/queues/{queue}").send(message)
    properties, body = get(channel, queue)
    assert body == b"body"
    assert (properties.delivery_mode, properties.priority) == (2, 7)
    assert 50_000 < int(properties.expiration) <= 60_000
    assert properties.message_id == f"urn:uuid:{UUID(int=5)}"
    assert (properties.correlation_id, properties.type) == ("7", "kind")
    assert (properties.reply_to, properties.user_id) == ("answers", "guest")
    assert (properties.content_type, properties.content_encoding) == ("a/b", "gzip")
    assert properties.timestamp == 1_700_000_000
    assert {"n": 5, "flag": True, "text": "ü", "x-opt-note": [1, 2]}.items() <= (
        properties.headers.items()
    )


def test_a_0_9_1_message_says_the_same_in_1_0(connect: Connections, channel: Any) -> None:
    queue = fresh("from-091")
    channel.queue_declare(queue, durable=True)
    channel.basic_publish(
        "",
        queue,
        b"body",
        pika.BasicProperties(
            delivery_mode=2,
            priority=3,
            expiration="60000",
            message_id=f"urn:uuid:{UUID(int=5)}",
            correlation_id="c",
            type="kind",
            reply_to="answers",
            content_type="a/b",
            timestamp=1_700_000_000,
            app_id="app",
            headers={"n": 5, "deep": {"a": [1]}, "x-own": "y"},
        ),
    )
    message = connect().create_receiver(f"/queues/{queue}").receive()
    assert bytes(message.body) == b"body"
    assert (message.durable, message.priority) == (True, 3)
    assert 50 < message.ttl <= 60
    assert (message.id, message.correlation_id) == (UUID(int=5), "c")
    assert (message.subject, message.reply_to) == ("kind", "answers")
    assert (message.content_type, message.creation_time) == ("a/b", 1_700_000_000.0)
    assert message.properties == {"n": 5, "deep": {"a": [1]}}
    assert message.annotations[symbol("x-own")] == "y"
    assert message.annotations[symbol("x-app-id")] == "app"


@pytest.mark.parametrize("body", ["text", {"a": [1, 2.5]}, [1, None], None])
def test_an_amqp_value_survives_the_way_through_0_9_1(
    connect: Connections, channel: Any, body: object
) -> None:
    there, back = fresh("there"), fresh("back")
    for queue in (there, back):
        channel.queue_declare(queue, durable=True)
    connection = connect()
    connection.create_sender(f"/queues/{there}").send(Message(body=body, content_type="own/type"))
    properties, raw = get(channel, there)
    if body == "text":
        assert raw == b"text"
    else:
        assert properties.content_type == "application/vnd.howdah.amqp-value"
    properties.user_id = None
    channel.basic_publish("", back, raw, properties)
    message = connection.create_receiver(f"/queues/{back}").receive()
    assert (message.body, message.content_type) == (body, "own/type")


class MqttClient:
    """One MQTT 5 client, connected."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self.messages: list[Any] = []
        self.client.on_message = lambda client, userdata, message: self.messages.append(message)
        self.subscribed = False
        self.client.on_subscribe = self._on_subscribe
        self.client.connect("127.0.0.1", gateway.ports["mqtt"])

    def _on_subscribe(self, *_: Any) -> None:
        self.subscribed = True

    def until(self, holds: Any) -> None:
        """Runs the client's loop, which has no thread of its own, until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, "it did not come"
            self.client.loop(0.05)


def test_mqtt_and_1_0_share_the_topic_space(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    root, connection = fresh("plant"), connect()
    device = MqttClient(shared_gateway)
    device.client.subscribe(f"{root}/commands/#", qos=1)
    device.until(lambda: device.subscribed)
    receiver = connection.create_receiver(f"topic://{root}.*.temperature", credit=5)
    properties = MqttProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ContentType = "text/plain"
    properties.CorrelationData = b"\0\1"
    properties.UserProperty = [("a", "1"), ("a", "2")]
    info = device.client.publish(f"{root}/k1/temperature", b"21.5", 1, properties=properties)
    device.until(info.is_published)
    message = receiver.receive()
    assert (bytes(message.body), message.content_type) == (b"21.5", "text/plain")
    assert bytes(message.correlation_id) == b"\0\1"
    assert message.properties == {"a": "1"}
    assert message.annotations[symbol("x-routing-key")] == f"{root}.k1.temperature"
    connection.create_sender(f"topic://{root}/commands/heat").send(
        Message(body="on", subject="command", properties={"n": 5})
    )
    device.until(lambda: device.messages)
    (got,) = device.messages
    assert (got.topic, got.payload) == (f"{root}/commands/heat", b"on")
    assert got.properties.PayloadFormatIndicator == 1
    assert {("subject", "command"), ("n", "5")} <= set(got.properties.UserProperty)
    device.client.disconnect()


def test_a_classic_queue_competes_over_both_amqps(connect: Connections, channel: Any) -> None:
    queue = fresh("mixed")
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    connection = connect()
    receiver = connection.create_receiver(f"/queues/{queue}", credit=0)
    receiver.link.flow(1)
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body)
    connection.wait(lambda: receiver.fetcher.incoming)
    assert get(channel, queue)[1] == b"2"
    assert content(receiver) == b"1"
