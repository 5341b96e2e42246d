"""AMQP 0.9.1 with pika's blocking client."""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.matrix.letters import (
    ALL,
    PREFETCH,
    Actor,
    Kind,
    Letter,
    Place,
    Received,
    Verdict,
    told,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS


class Amqp091(Actor):
    says = hears = ALL
    verdicts = frozenset(Verdict)

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        super().__init__(gateway, credit)
        parameters = pika.URLParameters(gateway.amqp_url())
        parameters.heartbeat = 0  # a blocking client is silent while the test is elsewhere
        self.connection = pika.BlockingConnection(parameters)
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        self._tag = ""
        self.came: deque[tuple[Any, Any, bytes]] = deque()

    def declare(self, name: str, **arguments: Any) -> Place:
        """A durable queue; words as `x_queue_type` become arguments."""
        given = {word.replace("_", "-"): value for word, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=given)
        is_stream = given.get("x-queue-type") == "stream"
        return Place(Kind.STREAM if is_stream else Kind.CLASSIC, name)

    def publish(self, place: Place, letter: Letter) -> None:
        properties = pika.BasicProperties(
            content_type=letter.content_type,
            content_encoding=letter.content_encoding,
            correlation_id=letter.correlation_id,
            reply_to=letter.reply_to,
            message_id=letter.message_id,
            type=letter.subject,
            priority=letter.priority,
            headers=dict(letter.headers) or None,
            delivery_mode=2,
        )
        is_topic = place.kind is Kind.TOPIC
        exchange, key = ("amq.topic", place.key) if is_topic else ("", place.name)
        self.channel.basic_publish(exchange, key, letter.body, properties)

    def consume(self, place: Place) -> None:
        arguments = {"x-stream-offset": "first"} if place.kind is Kind.STREAM else None
        name = self.bound(place.key) if place.kind is Kind.TOPIC else place.name
        self.channel.basic_qos(prefetch_count=self.credit)
        self._tag = self.channel.basic_consume(name, self._on_message, arguments=arguments)

    def bound(self, *keys: str) -> str:
        """A queue of this connection alone that takes these topics."""
        name = str(self.channel.queue_declare("", exclusive=True).method.queue)
        for key in keys:
            self.channel.queue_bind(name, "amq.topic", key)
        return name

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.came.append((method, properties, body))

    def next(self) -> tuple[Any, Any, bytes]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.came:
            assert time.monotonic() < deadline, "nothing came"
            self.connection.process_data_events(0.2)
        return self.came.popleft()

    def receive(self) -> Received:
        method, properties, body = self.next()
        said = properties.headers or {}
        letter = Letter(
            body,
            properties.content_type,
            properties.content_encoding,
            properties.correlation_id,
            properties.reply_to,
            properties.message_id,
            properties.type,
            properties.priority,
            told(said.items()),
        )
        death = (said.get("x-death") or [{}])[0]
        failures = said.get("x-delivery-count", 0)
        return Received(
            letter,
            method.redelivered,
            failures,
            method.delivery_tag,
            death.get("queue"),
            death.get("reason"),
        )

    def settle(self, received: Received, verdict: Verdict) -> None:
        tag = received.token
        match verdict:
            case Verdict.ACCEPT:
                self.channel.basic_ack(tag)
            case Verdict.RELEASE:
                self.channel.basic_nack(tag, requeue=True)
            case Verdict.FAIL:
                self.channel.basic_reject(tag, requeue=True)
            case Verdict.REJECT:
                self.channel.basic_nack(tag, requeue=False)
            case Verdict.CUT:
                raise ValueError("that is `cut`")

    def stop(self) -> None:
        self.channel.basic_cancel(self._tag)

    def settled(self) -> None:
        self.channel.exchange_declare("amq.topic", passive=True)  # its answer comes behind them

    def cut(self) -> None:
        # The blocking connection has no way to end without a word: its socket does.
        self.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.connection.is_open:
            with suppress(pika.exceptions.AMQPError):
                self.connection.close()
