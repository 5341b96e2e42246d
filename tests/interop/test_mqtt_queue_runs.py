"""Many messages in a row, from paho into a queue and from pika out of it, and the other way round:
each is answered, in its place, and arrives with what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

COUNT = 600


class Client:
    """A paho client that remembers, and tells when it has enough."""

    def __init__(self, port: int) -> None:
        self.answered: list[tuple[int, int]] = []  # mid and reason
        self.received: list[paho.MQTTMessage] = []
        self._changed = threading.Condition()
        self._is_subscribed = False
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, fresh("paho"), protocol=paho.MQTTv5)
        self.paho.max_inflight_messages_set(COUNT)
        self.paho.on_publish = self._on_publish
        self.paho.on_message = self._on_message
        self.paho.on_subscribe = self._on_subscribe
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()

    def _on_publish(self, _c: Any, _d: Any, mid: int, reason: Any, _p: Any) -> None:
        with self._changed:
            self.answered.append((mid, reason.value))
            self._changed.notify_all()

    def _on_message(self, _c: Any, _d: Any, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.received.append(message)
            self._changed.notify_all()

    def _on_subscribe(self, *_: Any) -> None:
        with self._changed:
            self._is_subscribed = True
            self._changed.notify_all()

    def subscribe(self, topic_filter: str) -> None:
        self.paho.subscribe(topic_filter, 1)
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_subscribed, PATIENCE_SECONDS)

    def has_answers(self, count: int) -> list[tuple[int, int]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.answered) >= count, PATIENCE_SECONDS)
        return self.answered

    def has_messages(self, count: int) -> list[paho.MQTTMessage]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, PATIENCE_SECONDS)
        return self.received

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def client(shared_gateway: GatewayProcess) -> Iterator[Client]:
    client = Client(shared_gateway.ports["mqtt"])
    yield client
    client.close()


@pytest.fixture
def channel(shared_gateway: GatewayProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(shared_gateway.amqp_url()))
    yield connection.channel()
    connection.close()


def said(unit: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ContentType = "text/csv"
    properties.UserProperty = [("unit", unit)]
    return properties


def test_from_mqtt_to_amqp(client: Client, channel: BlockingChannel) -> None:
    queue = fresh("runs")
    channel.queue_declare(queue, durable=True)
    mids = []
    for i in range(COUNT):  # those in the last third are unlike the others
        unit = "K" if i < 400 else str(i % 2)
        mids.append(client.paho.publish(f"$queue/{queue}", b"%d" % i, 1, properties=said(unit)).mid)
    assert client.has_answers(COUNT) == [(mid, 0) for mid in mids]
    for i in range(COUNT):
        _, header, body = channel.basic_get(queue, auto_ack=True)
        assert body == b"%d" % i
        assert header is not None
        assert header.content_type == "text/csv"
        assert header.headers["unit"] == ("K" if i < 400 else str(i % 2))


def test_from_amqp_to_mqtt(client: Client, channel: BlockingChannel) -> None:
    queue = fresh("runs")
    channel.queue_declare(queue, durable=True)
    client.subscribe(f"$queue/{queue}")
    for i in range(COUNT):
        headers = {"unit": "K" if i < 400 else str(i % 2)}
        properties = pika.BasicProperties("text/csv", headers=headers, delivery_mode=2)
        channel.basic_publish("", queue, b"%d" % i, properties)
    received = client.has_messages(COUNT)
    assert [message.payload for message in received] == [b"%d" % i for i in range(COUNT)]
    for i, message in enumerate(received):
        user = dict(message.properties.UserProperty)  # type: ignore[union-attr]
        assert user["unit"] == ("K" if i < 400 else str(i % 2))
        assert user["message-id"] == f"{queue}:{i}"
        assert message.properties.ContentType == "text/csv"  # type: ignore[union-attr]


def test_a_full_queue_refuses_those_that_do_not_fit(
    client: Client, channel: BlockingChannel
) -> None:
    queue = fresh("full")
    limits = {"x-max-length": 100, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, durable=True, arguments=limits)
    mids = [client.paho.publish(f"$queue/{queue}", b"%d" % i, 1).mid for i in range(150)]
    reasons = [0 if i < 100 else 0x97 for i in range(150)]
    assert client.has_answers(150) == list(zip(mids, reasons, strict=True))
    assert channel.queue_declare(queue, passive=True).method.message_count == 100
