"""Request and reply across protocols: each worker knows its own protocol's convention and no other.

A requester waits for the answer where its protocol waits for answers; a worker takes requests from
a classic queue and answers to wherever the request says, with its correlation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import pika
import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.amqp10_actor import Amqp10
from tests.interop.matrix.letters import Actor, Cast, Kind, Place
from tests.interop.matrix.mqtt_actor import Mqtt5, Properties
from tests.support.amqp10_client import Message
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

A = TypeVar("A", bound=Actor)


class Requester(ABC, Generic[A]):
    def __init__(self, actor: A) -> None:
        self.actor = actor

    @abstractmethod
    def request(self, queue: str, body: bytes, correlation: str) -> None:
        """Asks the workers of a queue."""

    @abstractmethod
    def answer(self) -> tuple[bytes, str]:
        """The next answer, and the correlation that it has."""


class Worker(ABC, Generic[A]):
    def __init__(self, actor: A) -> None:
        self.actor = actor

    @abstractmethod
    def serve_one(self, queue: str) -> None:
        """Takes a request, and answers with its body in capitals."""


# --- MQTT 5: response-topic, correlation-data


class MqttRequester(Requester[Mqtt5]):
    def __init__(self, actor: Mqtt5) -> None:
        super().__init__(actor)
        self.topic = f"{fresh('answers')}/for.me"
        actor.subscribe(self.topic)

    def request(self, queue: str, body: bytes, correlation: str) -> None:
        said = Properties(PacketTypes.PUBLISH)
        said.ResponseTopic = self.topic
        said.CorrelationData = correlation.encode()
        self.actor.send(f"$queue/{queue}", body, said)

    def answer(self) -> tuple[bytes, str]:
        message = self.actor.next()
        assert message.topic == self.topic
        return bytes(message.payload), message.properties.CorrelationData.decode()  # type: ignore[union-attr]


class MqttQueueRequester(MqttRequester):
    """Waits on a queue for its answers, so that none is lost while it is away."""

    def __init__(self, actor: Mqtt5) -> None:
        Requester.__init__(self, actor)
        self.topic = f"$queue/{fresh('answers')}"
        actor.subscribe(self.topic)


class MqttWorker(Worker[Mqtt5]):
    def serve_one(self, queue: str) -> None:
        self.actor.subscribe(f"$queue/{queue}")
        message = self.actor.next()
        said: Any = message.properties
        back = Properties(PacketTypes.PUBLISH)
        back.CorrelationData = said.CorrelationData
        self.actor.send(said.ResponseTopic, bytes(message.payload).upper(), back)


# --- AMQP 0.9.1: reply_to, correlation_id


class Amqp091Requester(Requester[Amqp091]):
    """With a queue of its own for the answers."""

    def __init__(self, actor: Amqp091) -> None:
        super().__init__(actor)
        self.reply_to = self.answers()

    def answers(self) -> str:
        name = self.actor.bound()
        self.actor.consume(Place(Kind.CLASSIC, name))
        return name

    def request(self, queue: str, body: bytes, correlation: str) -> None:
        properties = pika.BasicProperties(reply_to=self.reply_to, correlation_id=correlation)
        self.actor.channel.basic_publish("", queue, body, properties)

    def answer(self) -> tuple[bytes, str]:
        _, properties, body = self.actor.next()
        return body, properties.correlation_id


class DirectRequester(Amqp091Requester):
    """Without one: direct reply-to."""

    def answers(self) -> str:
        channel = self.actor.channel
        channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda _c, *came: self.actor.came.append(came), auto_ack=True
        )
        return "amq.rabbitmq.reply-to"


class Amqp091Worker(Worker[Amqp091]):
    def serve_one(self, queue: str) -> None:
        self.actor.consume(Place(Kind.CLASSIC, queue))
        method, said, body = self.actor.next()
        back = pika.BasicProperties(correlation_id=said.correlation_id)
        self.actor.channel.basic_publish("", said.reply_to, body.upper(), back, mandatory=True)
        self.actor.channel.basic_ack(method.delivery_tag)


# --- AMQP 1.0: reply-to, correlation-id, a dynamic node


class Amqp10Requester(Requester[Amqp10]):
    def __init__(self, actor: Amqp10) -> None:
        super().__init__(actor)
        self.receiver = actor.connection.create_receiver(None, dynamic=True)
        self.reply_to = self.receiver.link.remote_source.address

    def request(self, queue: str, body: bytes, correlation: str) -> None:
        message = Message(body=body, inferred=True, durable=True)
        message.reply_to, message.correlation_id = self.reply_to, correlation
        self.actor.send(f"/queues/{queue}", message)

    def answer(self) -> tuple[bytes, str]:
        message = self.receiver.receive(timeout=PATIENCE_SECONDS)
        self.receiver.accept()
        correlation = _bytes(message.correlation_id)
        if isinstance(correlation, bytes):
            correlation = correlation.decode()
        return bytes(message.body), correlation


def _bytes(value: Any) -> Any:
    """proton hands out binary ids as views, and takes none back."""
    return bytes(value) if isinstance(value, memoryview) else value


class Amqp10TopicRequester(Amqp10Requester):
    """Waits on a topic for its answers."""

    def __init__(self, actor: Amqp10) -> None:
        Requester.__init__(self, actor)
        self.reply_to = f"topic://{fresh('answers')}/for.me"
        self.receiver = actor.connection.create_receiver(self.reply_to, credit=5)


class Amqp10Worker(Worker[Amqp10]):
    def serve_one(self, queue: str) -> None:
        connection = self.actor.connection
        receiver = connection.create_receiver(f"/queues/{queue}", credit=1)
        request = receiver.receive(timeout=PATIENCE_SECONDS)
        back = Message(body=bytes(request.body).upper(), inferred=True)
        back.address, back.correlation_id = request.reply_to, _bytes(request.correlation_id)
        connection.create_sender(None).send(back)  # the anonymous relay; released would raise
        receiver.accept()


REQUESTERS: dict[str, tuple[type[Actor], Any]] = {
    "mqtt5": (Mqtt5, MqttRequester),
    "mqtt5 with a queue": (Mqtt5, MqttQueueRequester),
    "amqp0.9.1": (Amqp091, Amqp091Requester),
    "amqp0.9.1 direct": (Amqp091, DirectRequester),
    "amqp1.0": (Amqp10, Amqp10Requester),
    "amqp1.0 with a topic": (Amqp10, Amqp10TopicRequester),
}
WORKERS: dict[str, tuple[type[Actor], Any]] = {
    "mqtt5": (Mqtt5, MqttWorker),
    "amqp0.9.1": (Amqp091, Amqp091Worker),
    "amqp1.0": (Amqp10, Amqp10Worker),
}


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("requester", REQUESTERS)
def test_an_answer_finds_its_way_back(
    cast: Cast, house: Amqp091, requester: str, worker: str
) -> None:
    """Also within one protocol: the gateway must not change what it has no reason to."""
    queue = house.declare(fresh("requests")).name
    actor_of, asks = REQUESTERS[requester]
    asking = asks(cast(actor_of))
    worker_of, serves = WORKERS[worker]
    asking.request(queue, b"what is it?", "c-17")
    serves(cast(worker_of)).serve_one(queue)
    assert asking.answer() == (b"WHAT IS IT?", "c-17")
