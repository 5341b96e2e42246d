"""MQTT 5.0 and 3.1.1 with gmqtt, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import gmqtt
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from tests.gateway_process import GatewayProcess
from tests.interop.mqtt_names import fresh

SECONDS = 10
Message = tuple[str, bytes, int, dict[str, Any]]


class Client:
    def __init__(self, name: str | None = None, **options: Any) -> None:
        self.name = fresh("gmqtt") if name is None else name
        will = options.pop("will", None)
        clean = options.pop("clean", True)
        self.gmqtt = gmqtt.Client(self.name, clean_session=clean, will_message=will, **options)
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self._subscribed: asyncio.Queue[Any] = asyncio.Queue()
        self.connack: dict[str, Any] = {}
        self.gmqtt.on_connect = self._on_connect
        self.gmqtt.on_message = self._on_message
        self.gmqtt.on_subscribe = self._on_subscribe

    def _on_connect(self, client: Any, flags: int, rc: int, properties: dict[str, Any]) -> None:
        self.connack = properties

    def _on_message(
        self, client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.messages.put_nowait((topic, payload, qos, properties))
        return 0

    def _on_subscribe(self, client: Any, number: int, qos: Any, properties: Any) -> None:
        self._subscribed.put_nowait(qos)

    async def start(self, gateway: GatewayProcess, version: int) -> Client:
        await self.gmqtt.connect("127.0.0.1", gateway.ports["mqtt"], version=version)
        return self

    async def subscribe(self, topic_filter: str, qos: int, **options: Any) -> None:
        self.gmqtt.subscribe(topic_filter, qos, **options)
        await asyncio.wait_for(self._subscribed.get(), SECONDS)

    async def message(self) -> Message:
        return await asyncio.wait_for(self.messages.get(), SECONDS)

    async def stop(self) -> None:
        await self.gmqtt.disconnect()


@pytest.fixture(params=[MQTTv311, MQTTv50], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def client(shared_gateway: GatewayProcess, version: int) -> AsyncIterator[Client]:
    client = await Client().start(shared_gateway, version)
    yield client
    await client.stop()


async def test_all_qos_come_through(client: Client) -> None:
    topic = fresh("gmqtt/qos")
    await client.subscribe(f"{topic}/#", 2)
    for qos in (0, 1, 2):
        client.gmqtt.publish(f"{topic}/{qos}", f"payload {qos}", qos=qos)
    received = sorted([(await client.message())[:3] for _ in range(3)])
    assert received == [(f"{topic}/{q}", f"payload {q}".encode(), q) for q in (0, 1, 2)]


async def test_retained_messages_come_to_new_subscribers(client: Client) -> None:
    topic = fresh("gmqtt/retained")
    await client.subscribe(topic, 1)
    client.gmqtt.publish(topic, "kept", qos=1, retain=True)
    await client.message()
    barrier = fresh("$queue/gmqtt")
    await client.subscribe(barrier, 1)
    client.gmqtt.publish(barrier, "committed behind it", qos=1)
    await client.message()
    later_topic = topic
    await client.subscribe(later_topic, 1)
    _, payload, _, properties = await client.message()
    assert (payload, properties["retain"]) == (b"kept", 1)


async def test_the_will_of_a_lost_client_is_published(
    shared_gateway: GatewayProcess, client: Client, version: int
) -> None:
    topic = fresh("gmqtt/will")
    await client.subscribe(topic, 1)
    lost = await Client(will=gmqtt.Message(topic, "gone", qos=1)).start(shared_gateway, version)
    lost.gmqtt.set_config({"reconnect_retries": 0})
    lost.gmqtt._connection._transport.abort()
    assert (await client.message())[1] == b"gone"


async def test_a_session_is_resumed(shared_gateway: GatewayProcess, client: Client) -> None:
    name, topic = fresh("gmqtt"), fresh("gmqtt/session")
    lasting = {"clean": False, "session_expiry_interval": 300}
    away = await Client(name, **lasting).start(shared_gateway, MQTTv50)
    await away.subscribe(topic, 2)
    await away.stop()
    barrier = fresh("gmqtt/barrier")
    await client.subscribe(barrier, 2)
    for qos in (1, 2):
        client.gmqtt.publish(topic, f"while away {qos}", qos=qos)
    client.gmqtt.publish(barrier, "", qos=2)
    await client.message()
    back = await Client(name, **lasting).start(shared_gateway, MQTTv50)
    received = [(await back.message())[1] for _ in range(2)]
    assert received == [b"while away 1", b"while away 2"]
    await back.stop()


async def test_a_shared_subscription_divides_the_work(
    shared_gateway: GatewayProcess, client: Client, version: int
) -> None:
    topic = fresh("gmqtt/shared")
    members = [await Client().start(shared_gateway, version) for _ in range(2)]
    for member in members:
        await member.subscribe(f"$share/workers/{topic}", 1)
    for i in range(20):
        client.gmqtt.publish(topic, str(i), qos=1)
    shares = [[int((await m.message())[1]) for _ in range(10)] for m in members]
    assert sorted(shares[0] + shares[1]) == list(range(20))
    for member in members:
        await member.stop()


# --- 5.0: every property that gmqtt can say or hear

SAID: dict[str, Any] = {
    "payload_format_id": 1,
    "content_type": "text/plain",
    "response_topic": "answers",
    "correlation_data": b"7",
    "message_expiry_interval": 60,
    "user_property": [("a", "1"), ("a", "2")],
}


def check_said(properties: dict[str, Any]) -> None:
    assert properties["payload_format_id"] == [1]
    assert properties["content_type"] == ["text/plain"]
    assert properties["response_topic"] == ["answers"]
    assert properties["correlation_data"] == [b"7"]
    assert 50 <= properties["message_expiry_interval"][0] <= 60
    assert properties["user_property"] == [("a", "1"), ("a", "2")]


async def test_every_property_of_a_message_comes_through(shared_gateway: GatewayProcess) -> None:
    client = await Client().start(shared_gateway, MQTTv50)
    topic = fresh("gmqtt/properties")
    await client.subscribe(topic, 1, subscription_identifier=42, user_property=("why", "test"))
    client.gmqtt.publish(topic, "text", qos=1, topic_alias=3, **SAID)
    client.gmqtt.publish("", "by alias", qos=1, topic_alias=3)
    properties = (await client.message())[3]
    check_said(properties)
    assert properties["subscription_identifier"] == [42]
    assert (await client.message())[:2] == (topic, b"by alias")
    await client.stop()


async def test_every_property_of_a_will_comes_through(shared_gateway: GatewayProcess) -> None:
    client = await Client().start(shared_gateway, MQTTv50)
    topic = fresh("gmqtt/will")
    await client.subscribe(topic, 1)
    will = gmqtt.Message(topic, "gone", qos=1, will_delay_interval=1, **SAID)
    lost = await Client(will=will, session_expiry_interval=60).start(shared_gateway, MQTTv50)
    lost.gmqtt.set_config({"reconnect_retries": 0})
    lost.gmqtt._connection._transport.abort()
    check_said((await client.message())[3])
    await client.stop()


async def test_connect_and_connack_say_what_they_agree_on(shared_gateway: GatewayProcess) -> None:
    client = await Client(
        session_expiry_interval=5,
        receive_maximum=20,
        maximum_packet_size=1000,
        request_response_info=1,
        request_problem_info=1,
        user_property=("kind", "test"),
    ).start(shared_gateway, MQTTv50)
    heard = client.connack
    assert client.name in heard["response_info"][0]  # it makes up a name itself if it has none
    assert heard["topic_alias_maximum"] == [100]
    await client.gmqtt.disconnect(reason_code=4, session_expiry_interval=0, reason_string="done")
    silent = await Client().start(shared_gateway, MQTTv50)  # what it says itself, it shows again
    assert silent.connack["receive_maximum"] == [1000]
    assert silent.connack["maximum_packet_size"] == [16 * 1024 * 1024]
    await silent.stop()
