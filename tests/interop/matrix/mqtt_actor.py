"""MQTT 3.1.1 and 5.0 with paho: PUBACK settles, and in 5.0 the settle topics of a queue."""

from __future__ import annotations

import json
import queue
import socket
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

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
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

NAMED = {  # fields that travel as user properties
    "content_encoding": "content-encoding",
    "message_id": "message-id",
    "subject": "subject",
    "priority": "priority",
}
CREATED = "created"
SETTLES = {Verdict.ACCEPT: "$ack", Verdict.RELEASE: "$nack", Verdict.REJECT: "$reject"}


# paho's own has no types
Properties: Any = import_module("paho.mqtt.properties").Properties


def address(place: Place) -> str:
    return place.name if place.kind is Kind.TOPIC else f"$queue/{place.name}"


class MqttActor(Actor):
    """The part that both MQTT versions share; settles by PUBACK."""

    version: ClassVar[int]
    is_manual: ClassVar[bool] = True

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        super().__init__(gateway, credit)
        self._came: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._granted: queue.Queue[list[Any]] = queue.Queue()
        self._refused: dict[int, Any] = {}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=fresh("matrix"),
            protocol=MQTTProtocolVersion(self.version),
            manual_ack=self.is_manual,
            reconnect_on_failure=False,
        )
        self.client.on_message = lambda _client, _data, message: self._came.put(message)
        self.client.on_subscribe = lambda _c, _d, _mid, codes, _p: self._granted.put(codes)
        self.client.on_publish = self._on_publish
        connected = threading.Event()
        self.client.on_connect = lambda *_: connected.set()
        self.client.connect("127.0.0.1", gateway.ports["mqtt"], **self._session())
        self.client.loop_start()
        assert connected.wait(PATIENCE_SECONDS)

    def _session(self) -> dict[str, Any]:
        return {}

    def _on_publish(self, _client: Any, _data: Any, mid: int, code: Any, _said: Any) -> None:
        if code.is_failure:
            self._refused[mid] = code

    def publish(self, place: Place, letter: Letter) -> None:
        self.send(address(place), letter.body, self._written(letter))

    def send(self, topic: str, body: bytes, properties: Any) -> None:
        sent = self.client.publish(topic, body, 1, properties=properties)
        sent.wait_for_publish(PATIENCE_SECONDS)
        assert sent.is_published()
        assert sent.mid not in self._refused, self._refused[sent.mid]

    def _written(self, letter: Letter) -> Any:
        return None

    def consume(self, place: Place) -> None:
        self.subscribe(address(place))

    def subscribe(self, topic_filter: str) -> None:
        self.client.subscribe(topic_filter, 1)
        self._check_granted()

    def _check_granted(self) -> None:
        codes = self._granted.get(timeout=PATIENCE_SECONDS)
        assert not any(code.is_failure for code in codes), codes

    def next(self) -> paho.MQTTMessage:
        return self._came.get(timeout=PATIENCE_SECONDS)

    def receive(self) -> Received:
        message = self.next()
        return Received(Letter(bytes(message.payload)), message.dup, None, message)

    def settle(self, received: Received, verdict: Verdict) -> None:
        assert verdict is Verdict.ACCEPT
        self.client.ack(received.token.mid, received.token.qos)

    def stop(self) -> None:
        """MQTT has no word for it: to unsubscribe gives back what is unsettled. What comes back
        to a client that leaves politely is released once more, which counts no more than once."""

    def settled(self) -> None:
        """Publishes and waits for PUBACK: packets sent before that publish have been heard."""
        self.send(fresh("matrix/barrier"), b"", None)

    def cut(self) -> None:
        sock = self.client.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()

    def close(self) -> None:
        with suppress(ValueError, OSError):
            self.client.disconnect()
        self.client.loop_stop()
        self.client._reset_sockets()  # which paho leaves to its finalizer


class Mqtt311(MqttActor):
    version = paho.MQTTv311
    says = hears = frozenset({"body"})
    verdicts = frozenset({Verdict.ACCEPT, Verdict.CUT})
    reads_back = False


class Mqtt5(MqttActor):
    """Subscribed to a queue with ack=manual: settles by publishing to its settle topics."""

    version = paho.MQTTv5
    is_manual = False
    says = hears = ALL
    verdicts = frozenset({Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.CUT})

    def _session(self) -> dict[str, Any]:
        said = Properties(PacketTypes.CONNECT)
        said.ReceiveMaximum = self.credit
        return {"properties": said}

    def _written(self, letter: Letter) -> Any:
        said = Properties(PacketTypes.PUBLISH)
        if letter.content_type is not None:
            said.ContentType = letter.content_type
        if letter.correlation_id is not None:
            said.CorrelationData = letter.correlation_id.encode()
        if letter.reply_to is not None:
            said.ResponseTopic = f"$queue/{letter.reply_to}"
        pairs = [
            (name, str(getattr(letter, field)))
            for field, name in NAMED.items()
            if getattr(letter, field) is not None
        ]
        if pairs or letter.headers:
            said.UserProperty = [*pairs, *letter.headers]
        return said

    def consume(self, place: Place) -> None:
        said = Properties(PacketTypes.SUBSCRIBE)
        if place.kind is Kind.CLASSIC:
            said.UserProperty = [("ack", "manual")]
        elif place.kind is Kind.STREAM:
            said.UserProperty = [("offset", "first"), ("ack", "manual")]
        self.client.subscribe(address(place), options=SubscribeOptions(1), properties=said)
        self._check_granted()

    def receive(self) -> Received:
        message = self.next()
        said = message.properties
        pairs = list(getattr(said, "UserProperty", []))
        facts: dict[str, str] = {}
        if message.topic.startswith("$queue/"):
            # the queue's own facts are the last of their names
            for name in ("message-id", "offset", "x-source-topic", "delivery-count"):
                at = max(i for i, pair in enumerate(pairs) if pair[0] == name)
                facts[name] = pairs.pop(at)[1]
        found = dict(reversed(pairs))
        headers = [pair for pair in pairs if pair[0] not in (*NAMED.values(), CREATED)]
        priority = found.get("priority")
        correlation = getattr(said, "CorrelationData", None)
        reply_to = getattr(said, "ResponseTopic", None)
        letter = Letter(
            bytes(message.payload),
            getattr(said, "ContentType", None),
            found.get("content-encoding"),
            None if correlation is None else correlation.decode(),
            None if reply_to is None else reply_to.removeprefix("$queue/"),
            found.get("message-id"),
            found.get("subject"),
            None if priority is None else int(priority),
            told(headers),
        )
        deaths = json.loads(found["x-death"]) if "x-death" in found else [{}]
        count = facts.get("delivery-count")
        return Received(
            letter,
            message.dup,
            None if count is None else int(count),
            (message.topic, facts.get("message-id")),
            deaths[0].get("queue"),
            deaths[0].get("reason"),
        )

    def settle(self, received: Received, verdict: Verdict) -> None:
        topic, message_id = received.token
        said = Properties(PacketTypes.PUBLISH)
        said.UserProperty = [("message-id", message_id)]
        self.send(f"{topic}/{SETTLES[verdict]}", b"", said)
