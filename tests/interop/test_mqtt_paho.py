"""MQTT with paho-mqtt: three versions, over TCP and WebSocket."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, Literal, cast

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.gateway_process import GatewayProcess
from tests.interop.mqtt_names import fresh

SECONDS = 10
VERSIONS = [
    pytest.param(paho.MQTTv31, id="3.1"),
    pytest.param(paho.MQTTv311, id="3.1.1"),
    pytest.param(paho.MQTTv5, id="5.0"),
]
TRANSPORTS = ["tcp", "websockets"]


def properties_of(packet: int, **said: Any) -> Any:
    properties: Any = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in said.items():
        setattr(properties, name, value)
    return properties


class Client:
    """paho with its callbacks turned into things to wait for."""

    def __init__(
        self, gateway: GatewayProcess, version: int, transport: str, name: str | None = None
    ) -> None:
        self.version = version
        self.name = fresh("paho") if name is None else name
        self._port = gateway.ports["mqtt" if transport == "tcp" else "mqtt_ws"]
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.answers: queue.Queue[tuple[Any, Any]] = queue.Queue()  # to publishes
        self.ends: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._connected = threading.Event()
        self._subscribed: queue.Queue[list[Any]] = queue.Queue()
        self.session_present = False
        self.suback: Any = None
        options: dict[str, Any] = {}
        if version != paho.MQTTv5:
            options["clean_session"] = name is None
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            self.name,
            protocol=MQTTProtocolVersion(version),
            transport=cast(Literal["tcp", "websockets"], transport),
            **options,
        )
        if transport == "websockets":
            self.paho.ws_set_options("/mqtt")
        self.paho.on_connect = self._on_connect
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = self._on_subscribe
        self.paho.on_publish = lambda client, data, mid, reason, said: self.answers.put(
            (reason, said)
        )
        self.paho.on_disconnect = lambda client, data, flags, reason, said: self.ends.put(
            (reason, said)
        )

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.session_present = flags.session_present
        self.properties = properties
        if not reason.is_failure:
            self._connected.set()

    def _on_subscribe(
        self, client: Any, data: Any, number: int, reasons: list[Any], properties: Any
    ) -> None:
        self.suback = properties
        self._subscribed.put(reasons)

    def start(self, *, is_lasting: bool = False, **said: Any) -> Client:
        options: dict[str, Any] = {}
        if self.version == paho.MQTTv5:
            options["clean_start"] = not is_lasting
            said = {"SessionExpiryInterval": 300 if is_lasting else 0, **said}
            options["properties"] = properties_of(PacketTypes.CONNECT, **said)
        self.paho.connect("127.0.0.1", self._port, 60, **options)
        self.paho.loop_start()
        assert self._connected.wait(SECONDS)
        return self

    def subscribe(
        self, topic_filter: str, qos: int = 0, properties: Any = None, **options: Any
    ) -> int:
        if options or properties:
            chosen = SubscribeOptions(qos, **options)
            self.paho.subscribe(topic_filter, options=chosen, properties=properties)
        else:
            self.paho.subscribe(topic_filter, qos)
        return int(self._subscribed.get(timeout=SECONDS)[0].value)

    def publish(self, topic: str, payload: str, qos: int = 0, **options: Any) -> None:
        self.paho.publish(topic, payload, qos, **options).wait_for_publish(SECONDS)

    def message(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=SECONDS)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def lose(self) -> None:
        """As a client whose network is gone."""
        self.paho.loop_stop()
        sock = self.paho.socket()
        if sock is not None:
            sock.close()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def client(shared_gateway: GatewayProcess, version: int, transport: str) -> Iterator[Client]:
    client = Client(shared_gateway, version, transport).start()
    yield client
    client.stop()


def test_all_qos_come_through_in_order(client: Client) -> None:
    topic = fresh("paho/qos")
    assert client.subscribe(f"{topic}/#", 2) == 2
    for qos in (0, 1, 2):
        for i in range(20):
            client.publish(f"{topic}/{qos}", str(i), qos)
    received = [client.message() for _ in range(60)]
    for qos in (0, 1, 2):
        own = [m for m in received if m.topic == f"{topic}/{qos}"]
        assert [(m.payload, m.qos) for m in own] == [(b"%d" % i, qos) for i in range(20)]


def test_retained_messages_come_to_new_subscribers(client: Client) -> None:
    topic = fresh("paho/retained")
    client.publish(topic, "kept", 1, retain=True)
    client.subscribe(topic, 1)
    message = client.message()
    assert (message.payload, message.retain) == (b"kept", True)
    client.publish(topic, "", 1, retain=True)


def test_the_will_of_a_lost_client_is_published(
    shared_gateway: GatewayProcess, client: Client, version: int, transport: str
) -> None:
    topic = fresh("paho/will")
    client.subscribe(topic, 1)
    lost = Client(shared_gateway, version, transport)
    lost.paho.will_set(topic, "gone", 1)
    lost.start().lose()
    assert client.message().payload == b"gone"


def test_a_session_is_resumed(
    shared_gateway: GatewayProcess, client: Client, version: int, transport: str
) -> None:
    name, topic = fresh("paho"), fresh("paho/session")
    away = Client(shared_gateway, version, transport, name).start(is_lasting=True)
    away.subscribe(topic, 2)
    away.stop()
    for qos in (1, 2):
        client.publish(topic, f"while away {qos}", qos)
    back = Client(shared_gateway, version, transport, name).start(is_lasting=True)
    assert back.session_present or version == paho.MQTTv31  # 3.1 has no such flag
    assert [back.message().payload for _ in "12"] == [b"while away 1", b"while away 2"]
    back.stop()


def test_a_shared_subscription_divides_the_work(
    shared_gateway: GatewayProcess, client: Client, version: int, transport: str
) -> None:
    topic = fresh("paho/shared")
    members = [Client(shared_gateway, version, transport).start() for _ in range(2)]
    for member in members:
        member.subscribe(f"$share/workers/{topic}", 1)
    for i in range(20):
        client.publish(topic, str(i), 1)
    shares = [[int(m.message().payload) for _ in range(10)] for m in members]
    assert sorted(shares[0] + shares[1]) == list(range(20))
    for member in members:
        member.stop()


def test_a_queue_is_filled_and_emptied(client: Client) -> None:
    name = fresh("$queue/paho")
    for i in range(5):
        client.publish(name, str(i), 1)
    client.subscribe(name, 1)
    assert [client.message().payload for _ in range(5)] == [b"%d" % i for i in range(5)]


# --- 5.0: every property, of every packet that has it

SAID: dict[str, Any] = {
    "PayloadFormatIndicator": 1,
    "ContentType": "text/plain",
    "ResponseTopic": "answers/here",
    "CorrelationData": b"\x00\x01",
    "UserProperty": [("a", "1"), ("b", "2"), ("a", "3")],
}


@pytest.fixture
def client_5(shared_gateway: GatewayProcess, transport: str) -> Iterator[Client]:
    client = Client(shared_gateway, paho.MQTTv5, transport).start()
    yield client
    client.stop()


def check_message(message: paho.MQTTMessage, expiry: int) -> None:
    heard: Any = message.properties
    for name, value in SAID.items():
        assert getattr(heard, name) == value, name
    assert expiry - 10 <= heard.MessageExpiryInterval <= expiry


def test_every_property_of_a_message_comes_through(client_5: Client) -> None:
    topic = fresh("paho/properties")
    chosen = properties_of(
        PacketTypes.SUBSCRIBE, SubscriptionIdentifier=268_435_455, UserProperty=[("why", "test")]
    )
    client_5.subscribe(topic, 1, properties=chosen, retainAsPublished=True)
    said = properties_of(PacketTypes.PUBLISH, MessageExpiryInterval=100, **SAID)
    client_5.publish(topic, "text", 1, properties=said, retain=True)
    message = client_5.message()
    assert message.retain
    check_message(message, 100)
    heard: Any = message.properties
    assert heard.SubscriptionIdentifier == [268_435_455]
    client_5.publish(topic, "", 1, retain=True)


def test_every_property_of_a_will_comes_through(
    shared_gateway: GatewayProcess, client_5: Client, transport: str
) -> None:
    topic = fresh("paho/will")
    client_5.subscribe(topic, 1)
    lost = Client(shared_gateway, paho.MQTTv5, transport)
    said = properties_of(
        PacketTypes.WILLMESSAGE, WillDelayInterval=1, MessageExpiryInterval=100, **SAID
    )
    lost.paho.will_set(topic, "gone", 1, properties=said)
    lost.start(is_lasting=True).lose()
    check_message(client_5.message(), 100)


def test_connect_and_connack_say_what_they_agree_on(
    shared_gateway: GatewayProcess, transport: str
) -> None:
    client = Client(shared_gateway, paho.MQTTv5, transport, name="").start(
        ReceiveMaximum=2,
        MaximumPacketSize=500,
        TopicAliasMaximum=0,
        RequestResponseInformation=1,
        RequestProblemInformation=1,
        UserProperty=[("kind", "test")],
    )
    heard: Any = client.properties
    assert heard.AssignedClientIdentifier
    assert heard.AssignedClientIdentifier in heard.ResponseInformation
    assert heard.ReceiveMaximum == 1000
    assert heard.MaximumPacketSize == 16 * 1024 * 1024
    assert heard.TopicAliasMaximum == 100
    # what is not said is available: any QoS, retain, wildcards, identifiers, shared subscriptions
    for name in ("MaximumQoS", "RetainAvailable", "WildcardSubscriptionAvailable"):
        assert not hasattr(heard, name)
    topic = fresh("paho/agreement")
    client.subscribe(topic, 1)
    client.publish(topic, "x" * 1000, 1)  # more than it takes
    for i in range(5):
        client.publish(topic, str(i), 1)
    assert [client.message().payload for _ in range(5)] == [b"%d" % i for i in range(5)]
    client.stop()


def test_a_topic_alias_stands_for_its_topic(client_5: Client) -> None:
    topic = fresh("paho/alias")
    client_5.subscribe(topic, 1)
    alias = properties_of(PacketTypes.PUBLISH, TopicAlias=7)
    client_5.publish(topic, "named", 1, properties=alias)
    client_5.publish("", "by alias", 1, properties=alias)
    received = [client_5.message() for _ in range(2)]
    assert [(m.topic, m.payload) for m in received] == [(topic, b"named"), (topic, b"by alias")]


def test_refusals_come_with_a_reason(client_5: Client) -> None:
    client_5.publish("$SYS/mine", "x", 1)
    reason, said = client_5.answers.get(timeout=SECONDS)
    assert reason.is_failure
    assert "own" in said.ReasonString
    assert client_5.subscribe(fresh("$queue/paho"), 0) >= 0x80
    assert "QoS 1" in client_5.suback.ReasonString


def test_both_sides_say_why_they_disconnect(
    shared_gateway: GatewayProcess, client_5: Client, transport: str
) -> None:
    name = fresh("paho")
    first = Client(shared_gateway, paho.MQTTv5, transport, name).start(is_lasting=True)
    first.paho.reconnect_delay_set(60, 60)
    second = Client(shared_gateway, paho.MQTTv5, transport, name).start(is_lasting=True)
    reason, said = first.ends.get(timeout=SECONDS)
    assert reason.value == 0x8E
    assert said.ReasonString
    first.stop()
    goodbye = properties_of(
        PacketTypes.DISCONNECT,
        SessionExpiryInterval=0,
        ReasonString="done",
        UserProperty=[("a", "b")],
    )
    second.paho.disconnect(properties=goodbye)
    second.ends.get(timeout=SECONDS)
    second.paho.loop_stop()
    third = Client(shared_gateway, paho.MQTTv5, transport, name).start(is_lasting=True)
    assert not third.session_present
    third.stop()
