"""Virtual hosts: how each protocol names one, who may enter, and that nothing leaks between two.

`guest` may use `/`, and `tenant` the second one. Both use the same names everywhere.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiormq
import gmqtt
import pika
import pika.exceptions
import pytest
from aiormq.abc import AbstractChannel
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from yarl import URL

from tests import certificates
from tests.interop.conftest import PASSWORD, SECOND_VHOST, TENANT
from tests.support.amqp10_client import (
    BlockingConnection,
    Message,
    nothing_comes,
    proton,
    trusting,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

GUEST = ("guest", "guest")
LODGER = (TENANT, PASSWORD)
Login = tuple[str, str]


# --- AMQP 0.9.1: connection.open


@asynccontextmanager
async def channel(
    gateway: GatewayProcess, login: Login, vhost: str
) -> AsyncIterator[AbstractChannel]:
    url = URL.build(
        scheme="amqps",
        user=login[0],
        password=login[1],
        host="localhost",
        port=gateway.ports["amqp"],
        path=f"/{vhost}" if vhost != "/" else "//",
        query={"cafile": str(certificates.AUTHORITY)},
    )
    connection = await aiormq.connect(url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def test_queues_of_one_name_are_two_in_amqp_091(secured_gateway: GatewayProcess) -> None:
    queue = fresh("queue")
    async with (
        channel(secured_gateway, LODGER, SECOND_VHOST) as theirs,
        channel(secured_gateway, GUEST, "/") as ours,
    ):
        await theirs.queue_declare(queue)
        await theirs.basic_publish(b"theirs", routing_key=queue)
        await ours.queue_declare(queue)
        await ours.basic_publish(b"ours", routing_key=queue)
        for side, body in ((theirs, b"theirs"), (ours, b"ours")):
            assert (await side.basic_get(queue, no_ack=True)).body == body
            assert not (await side.basic_get(queue, no_ack=True)).body


async def test_a_queue_of_another_vhost_does_not_exist_in_amqp_091(
    secured_gateway: GatewayProcess,
) -> None:
    queue = fresh("queue")
    async with (
        channel(secured_gateway, LODGER, SECOND_VHOST) as theirs,
        channel(secured_gateway, GUEST, "/") as ours,
    ):
        await theirs.queue_declare(queue)
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await ours.queue_declare(queue, passive=True)


@pytest.mark.parametrize(
    ("login", "vhost"), [(LODGER, "/"), (GUEST, SECOND_VHOST), (LODGER, "nowhere")]
)
def test_a_vhost_that_is_not_the_users_is_refused_with_530(
    secured_gateway: GatewayProcess, login: Login, vhost: str
) -> None:
    context = ssl.create_default_context(cafile=certificates.AUTHORITY)
    parameters = pika.ConnectionParameters(
        "localhost",
        secured_gateway.ports["amqp"],
        vhost,
        pika.PlainCredentials(*login),
        ssl_options=pika.SSLOptions(context, "localhost"),
    )
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(parameters)


# --- AMQP 1.0: hostname of open


@contextmanager
def connected(gateway: GatewayProcess, login: Login, hostname: str | None) -> Iterator[Any]:
    domain = trusting(certificates.AUTHORITY, proton.SSLDomain.VERIFY_PEER)
    options = {} if hostname is None else {"virtual_host": hostname}
    connection = BlockingConnection(
        f"amqps://localhost:{gateway.ports['amqp']}",
        timeout=PATIENCE_SECONDS,
        ssl_domain=domain,
        allowed_mechs="PLAIN",
        user=login[0],
        password=login[1],
        **options,
    )
    try:
        yield connection
    finally:
        connection.close()


def test_queues_and_topics_of_one_name_are_two_in_amqp_10(secured_gateway: GatewayProcess) -> None:
    name = fresh("name")
    with (
        connected(secured_gateway, LODGER, f"vhost:{SECOND_VHOST}") as theirs,
        connected(secured_gateway, GUEST, None) as ours,
    ):
        for address in (f"queue://{name}", f"topic://{name}"):
            inboxes = [side.create_receiver(address, credit=10) for side in (theirs, ours)]
            for side, body in ((theirs, "theirs"), (ours, "ours")):
                side.create_sender(address).send(Message(body=body))
            for inbox, body in zip(inboxes, ("theirs", "ours"), strict=True):
                message = inbox.receive(PATIENCE_SECONDS)
                assert message.body == body
                inbox.accept()
                assert nothing_comes(inbox)


@pytest.mark.parametrize(
    ("login", "hostname"),
    [(LODGER, None), (GUEST, f"vhost:{SECOND_VHOST}"), (LODGER, "vhost:nowhere")],
)
def test_a_vhost_that_is_not_the_users_is_refused_in_amqp_10(
    secured_gateway: GatewayProcess, login: Login, hostname: str | None
) -> None:
    with (
        pytest.raises(proton.ProtonException, match=r"vhost"),
        connected(secured_gateway, login, hostname),
    ):
        pass


# --- MQTT: user name


class Device:
    """gmqtt, on asyncio."""

    def __init__(self, name: str, username: str, password: str) -> None:
        self._gmqtt = gmqtt.Client(name, clean_session=True)
        self._gmqtt.set_auth_credentials(username, password)
        self._gmqtt.set_config({"reconnect_retries": 0})
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._subscribed = asyncio.Event()
        self._gmqtt.on_message = self._on_message
        self._gmqtt.on_subscribe = lambda *_facts: self._subscribed.set()
        self._gmqtt.on_disconnect = lambda *_facts: self.ended.set()

    def _on_message(self, _client: Any, _topic: str, payload: bytes, *_facts: Any) -> int:
        self.messages.put_nowait(payload)
        return 0

    async def connect(self, gateway: GatewayProcess, version: int) -> None:
        context = ssl.create_default_context(cafile=certificates.AUTHORITY)
        port = gateway.ports["mqtt"]
        await self._gmqtt.connect("localhost", port, ssl=context, version=version)

    async def subscribe(self, topic_filter: str) -> None:
        self._subscribed.clear()
        self._gmqtt.subscribe(topic_filter, qos=1)
        await asyncio.wait_for(self._subscribed.wait(), PATIENCE_SECONDS)

    def publish(self, topic: str, payload: str, *, retain: bool = False) -> None:
        self._gmqtt.publish(topic, payload, qos=1, retain=retain)

    async def message(self) -> bytes:
        return await asyncio.wait_for(self.messages.get(), PATIENCE_SECONDS)

    async def retained(self, topic: str) -> bytes:
        """Asked for until it is there: subscribers hear a message before it is committed."""
        while True:
            await self.subscribe(topic)
            try:
                return await asyncio.wait_for(self.messages.get(), 1.0)
            except TimeoutError:
                pass

    async def close(self) -> None:
        await self._gmqtt.disconnect()


@asynccontextmanager
async def device(
    gateway: GatewayProcess, name: str, username: str, password: str, version: int
) -> AsyncIterator[Device]:
    made = Device(name, username, password)
    await made.connect(gateway, version)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("version", [MQTTv311, MQTTv50], ids=["3.1.1", "5.0"])
async def test_topics_retained_messages_and_client_ids_are_each_vhosts_own_in_mqtt(
    secured_gateway: GatewayProcess, version: int
) -> None:
    name, topic = fresh("device"), fresh("topic")
    username = f"{SECOND_VHOST}:{TENANT}"
    async with (
        device(secured_gateway, name, username, PASSWORD, version) as theirs,
        device(secured_gateway, name, *GUEST, version) as ours,
    ):
        for side, body in ((theirs, "theirs"), (ours, "ours")):
            await side.subscribe(f"{topic}/#")
            side.publish(f"{topic}/kept", body, retain=True)
        for side, heard in ((theirs, b"theirs"), (ours, b"ours")):
            assert await side.message() == heard
            assert await side.retained(f"{topic}/kept") == heard
            assert side.messages.empty()
            assert not side.ended.is_set()  # the same client id elsewhere is nobody's takeover


@pytest.mark.parametrize(
    ("username", "password"),
    [
        pytest.param(TENANT, PASSWORD, id="the default one is not its own"),
        pytest.param(f"/:{TENANT}", PASSWORD, id="by name"),
        pytest.param(f"{SECOND_VHOST}:guest", "guest", id="nor is the second one guest's"),
        pytest.param(f"nowhere:{TENANT}", PASSWORD, id="there is none of that name"),
        pytest.param(f"{SECOND_VHOST}:{TENANT}", "wrong", id="a wrong password"),
    ],
)
async def test_a_vhost_that_is_not_the_users_is_refused_in_mqtt(
    secured_gateway: GatewayProcess, username: str, password: str
) -> None:
    stranger = Device(fresh("device"), username, password)
    with pytest.raises(gmqtt.mqtt.handler.MQTTConnectError):
        await stranger.connect(secured_gateway, MQTTv50)
    await asyncio.wait_for(stranger.ended.wait(), PATIENCE_SECONDS)  # its socket is closed by then


# --- all together


async def test_the_topic_space_of_a_vhost_is_shared_by_its_protocols_and_by_nobody_else(
    secured_gateway: GatewayProcess,
) -> None:
    topic = fresh("topic")
    username = f"{SECOND_VHOST}:{TENANT}"
    async with (
        device(secured_gateway, fresh("device"), username, PASSWORD, MQTTv50) as publisher,
        channel(secured_gateway, LODGER, SECOND_VHOST) as theirs,
        channel(secured_gateway, GUEST, "/") as ours,
    ):
        inboxes = []
        for side in (theirs, ours):
            declared = await side.queue_declare("", exclusive=True)
            await side.queue_bind(declared.queue or "", "amq.topic", f"{topic}.#")
            inboxes.append(declared.queue or "")
        await publisher.subscribe(f"{topic}/#")
        publisher.publish(f"{topic}/a", "across")
        assert await publisher.message() == b"across"
        assert (await theirs.basic_get(inboxes[0], no_ack=True)).body == b"across"
        assert not (await ours.basic_get(inboxes[1], no_ack=True)).body
