"""paho-mqtt, over TCP and WebSocket."""

from __future__ import annotations

import queue
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from protocols.mqtt.wire.packets import Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.mqtt.plans import Answer, Facts, Heard, Message, Plan, Refused
from tests.interop.mqtt.wire import fields_of
from tests.support.until import PATIENCE_SECONDS

NAMES: Final = {
    "payload_format": "PayloadFormatIndicator",
    "message_expiry": "MessageExpiryInterval",
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "subscription_identifiers": "SubscriptionIdentifier",
    "session_expiry": "SessionExpiryInterval",
    "assigned_client_id": "AssignedClientIdentifier",
    "server_keep_alive": "ServerKeepAlive",
    "authentication_method": "AuthenticationMethod",
    "authentication_data": "AuthenticationData",
    "request_problem": "RequestProblemInformation",
    "will_delay": "WillDelayInterval",
    "request_response": "RequestResponseInformation",
    "response_information": "ResponseInformation",
    "server_reference": "ServerReference",
    "reason_string": "ReasonString",
    "receive_maximum": "ReceiveMaximum",
    "topic_alias_maximum": "TopicAliasMaximum",
    "topic_alias": "TopicAlias",
    "maximum_qos": "MaximumQoS",
    "retain_available": "RetainAvailable",
    "user": "UserProperty",
    "maximum_packet_size": "MaximumPacketSize",
    "wildcard_available": "WildcardSubscriptionAvailable",
    "identifiers_available": "SubscriptionIdentifierAvailable",
    "shared_available": "SharedSubscriptionAvailable",
}
SEVERAL: Final = ("user", "subscription_identifiers")


def written(properties: PropertySet, packet: int) -> Any:
    said: Any = Properties(packet)  # type: ignore[no-untyped-call]
    for field in fields_of(properties):
        value = getattr(properties, field)
        setattr(said, NAMES[field], list(value) if field in SEVERAL else value)
    return said


def read(properties: Any) -> Facts:
    facts: Facts = {}
    for field, name in NAMES.items():
        if hasattr(properties, name):
            value = getattr(properties, name)
            facts[field] = tuple(value) if field in SEVERAL else value
    return facts


class PahoSeat:
    def __init__(self, port: int, transport: str, plan: Plan) -> None:
        self.heard = Heard()
        self._plan = plan
        self._is_5 = plan.version is Version.V5
        self._messages: queue.Queue[Message] = queue.Queue()
        self._ends: queue.Queue[Answer] = queue.Queue()
        self._connected: queue.Queue[tuple[bool, Answer]] = queue.Queue()
        self._subscribed: queue.Queue[Answer] = queue.Queue()
        self._unsubscribed: queue.Queue[Answer] = queue.Queue()
        self._published: queue.Queue[Answer] = queue.Queue()
        self._client = self._made(transport, plan)
        self._start(port, plan)

    def _made(self, transport: str, plan: Plan) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            plan.client_id,
            protocol=MQTTProtocolVersion(int(plan.version)),
            transport="tcp" if transport == "tcp" else "websockets",
            reconnect_on_failure=False,
            clean_session=None if self._is_5 else plan.is_clean,
        )
        if transport == "ws":
            client.ws_set_options("/mqtt")
        client.on_connect = lambda c, d, flags, reason, said: self._connected.put(
            (flags.session_present, Answer(reason.value, read(said)))
        )
        client.on_message = self._on_message
        client.on_subscribe = lambda c, d, mid, reasons, said: self._subscribed.put(
            Answer(reasons[0].value, read(said))
        )
        client.on_unsubscribe = lambda c, d, mid, reasons, said: self._unsubscribed.put(
            Answer(reasons[0].value if reasons else 0, read(said))
        )
        client.on_publish = lambda c, d, mid, reason, said: self._published.put(
            Answer(reason.value, read(said))
        )
        client.on_disconnect = lambda c, d, flags, reason, said: self._ends.put(
            Answer(reason.value, read(said))
        )
        if plan.will is not None:
            will = plan.will
            said = written(will.properties, PacketTypes.WILLMESSAGE) if self._is_5 else None
            client.will_set(will.topic, will.payload, will.qos, will.retain, said)
        if plan.password is not None:
            client.username_pw_set("guest", plan.password)
        return client

    def _start(self, port: int, plan: Plan) -> None:
        options: dict[str, Any] = {}
        if self._is_5:
            options["clean_start"] = plan.is_clean
            options["properties"] = written(plan.connect, PacketTypes.CONNECT)
        self._client.connect("127.0.0.1", port, plan.keep_alive, **options)
        self._client.loop_start()
        self.heard.is_resumed, answer = self._connected.get(timeout=PATIENCE_SECONDS)
        self.heard.connack = answer.properties
        if answer.reason:
            self._client.loop_stop()
            raise Refused(*answer)
        for topic_filter in () if plan.resumes else plan.filters:
            self._client.subscribe(
                topic_filter,
                plan.qos,
                properties=written(plan.subscribe, PacketTypes.SUBSCRIBE) if self._is_5 else None,
            )
            self.heard.suback = self._subscribed.get(timeout=PATIENCE_SECONDS)
        if plan.unsubscribe_from:
            said = written(plan.unsubscribe, PacketTypes.UNSUBSCRIBE) if self._is_5 else None
            self._client.unsubscribe(plan.unsubscribe_from, properties=said)
            self.heard.unsuback = self._unsubscribed.get(timeout=PATIENCE_SECONDS)

    def _on_message(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        self._messages.put(
            Message(
                message.topic,
                bytes(message.payload),
                message.qos,
                message.retain,
                read(message.properties),
            )
        )

    def message(self) -> Message:
        return self._messages.get(timeout=PATIENCE_SECONDS)

    def ended(self) -> Answer:
        return self._ends.get(timeout=PATIENCE_SECONDS)

    def publish(self, message: Publish) -> Answer:
        said = written(message.properties, PacketTypes.PUBLISH) if self._is_5 else None
        self._client.publish(
            message.topic, bytes(message.payload), message.qos, message.retain, said
        )
        return self._published.get(timeout=PATIENCE_SECONDS)

    def leave(self) -> None:
        said = written(self._plan.disconnect, PacketTypes.DISCONNECT) if self._is_5 else None
        self._client.disconnect(properties=said)
        self._client.loop_stop()

    def lose(self) -> None:
        self._client.loop_stop()
        sock = self._client.socket()
        if sock is not None:
            sock.close()


class PahoPeer:
    def listen(self, port: int, transport: str, plan: Plan) -> PahoSeat:
        return PahoSeat(port, transport, plan)

    def publish(
        self, port: int, transport: str, plan: Plan, messages: tuple[Publish, ...]
    ) -> list[Answer]:
        seat = self.listen(port, transport, plan)
        answers = [seat.publish(each) for each in messages]
        seat.leave()
        return answers

    def close(self) -> None:
        """Nothing is left of it."""
