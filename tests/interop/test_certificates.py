"""Client certificates as logins: SASL EXTERNAL on both AMQPs, and MQTT without a password."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiormq
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from yarl import URL

from tests import certificates
from tests.support.amqp10_client import BlockingConnection, Message, proton, trusting
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

DEVICE = (certificates.CLIENT, certificates.CLIENT_KEY)  # CN device-7, who is a user
STRANGER = (certificates.STRANGER, certificates.STRANGER_KEY)  # whom no authority has signed
NOBODY = (certificates.NAMED, certificates.NAMED_KEY)  # signed, and no user
Pair = tuple[Path, Path]


def context(pair: Pair | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=certificates.AUTHORITY)
    if pair is not None:
        made.load_cert_chain(*pair)
    return made


# --- AMQP 0.9.1


@contextmanager
def by_pika(gateway: GatewayProcess, pair: Pair | None) -> Iterator[Any]:
    parameters = pika.ConnectionParameters(
        "localhost",
        gateway.ports["amqp"],
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(context(pair), "localhost"),
        connection_attempts=1,
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def test_pika_is_who_its_certificate_says(secured_gateway: GatewayProcess) -> None:
    with by_pika(secured_gateway, DEVICE) as channel:
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        mine = pika.BasicProperties(user_id="device-7")
        channel.basic_publish("", queue, b"mine", mine)
        assert channel.basic_get(queue, auto_ack=True)[2] == b"mine"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="device-7") as caught:
            channel.basic_publish("", queue, b"forged", pika.BasicProperties(user_id="guest"))
        assert caught.value.reply_code == 406


def test_pika_with_a_certificate_of_nobody_is_refused(secured_gateway: GatewayProcess) -> None:
    with (
        pytest.raises(pika.exceptions.ProbableAuthenticationError, match="device-8"),
        by_pika(secured_gateway, NOBODY),
    ):
        pass


@pytest.mark.parametrize("pair", [None, STRANGER])
def test_pika_without_a_good_certificate_does_not_come_in(
    secured_gateway: GatewayProcess, pair: Pair | None
) -> None:
    with pytest.raises((pika.exceptions.AMQPError, OSError)), by_pika(secured_gateway, pair):
        pass


async def test_aiormq_is_who_its_certificate_says(secured_gateway: GatewayProcess) -> None:
    url = URL(f"amqps://localhost:{secured_gateway.ports['amqp']}/%2F").with_query(
        auth="external",
        cafile=str(certificates.AUTHORITY),
        certfile=str(certificates.CLIENT),
        keyfile=str(certificates.CLIENT_KEY),
    )
    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel()
        declared = await channel.queue_declare("", exclusive=True)
        properties = aiormq.spec.Basic.Properties(user_id="device-7")
        await channel.basic_publish(b"x", routing_key=declared.queue or "", properties=properties)
    finally:
        await connection.close()


# --- AMQP 1.0


@contextmanager
def by_proton(gateway: GatewayProcess, pair: Pair | None) -> Iterator[Any]:
    domain = trusting(certificates.AUTHORITY, proton.SSLDomain.VERIFY_PEER_NAME)
    if pair is not None:
        domain.set_credentials(str(pair[0]), str(pair[1]), None)
    connection = BlockingConnection(
        f"amqps://localhost:{gateway.ports['amqp']}",
        timeout=PATIENCE_SECONDS,
        ssl_domain=domain,
        allowed_mechs="EXTERNAL",
    )
    try:
        yield connection
    finally:
        connection.close()


def test_proton_is_who_its_certificate_says(secured_gateway: GatewayProcess) -> None:
    with by_proton(secured_gateway, DEVICE) as connection:
        address = f"queue://{fresh('external')}"
        sender = connection.create_sender(address)
        sender.send(Message(body="mine", user_id=b"device-7"))
        with pytest.raises(proton.utils.SendException):
            sender.send(Message(body="forged", user_id=b"guest"))
        message = connection.create_receiver(address).receive(PATIENCE_SECONDS)
        assert message.body == "mine"
        assert message.annotations["x-publisher-id"] == "device-7"


@pytest.mark.parametrize("pair", [None, NOBODY])
def test_proton_without_a_certificate_of_a_user_does_not_come_in(
    secured_gateway: GatewayProcess, pair: Pair | None
) -> None:
    with pytest.raises(proton.ProtonException), by_proton(secured_gateway, pair):
        pass


# --- MQTT


class Paho:
    """One connection of paho's, with its thread."""

    def __init__(
        self,
        gateway: GatewayProcess,
        pair: Pair | None,
        *,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
        transport: Any = "tcp",
        login: tuple[str, str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[int] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[int]] = {}
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=fresh("paho"),
            protocol=version,
            transport=transport,
            reconnect_on_failure=False,
        )
        client.tls_set_context(context(pair))
        if transport == "websockets":
            client.ws_set_options("/mqtt")
        if login is not None:
            client.username_pw_set(*login)
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        self._client = client
        listener = "mqtt_ws" if transport == "websockets" else "mqtt"
        client.connect("localhost", gateway.ports[listener])
        client.loop_start()

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        self._loop.call_soon_threadsafe(self.connected.set_result, reason.value)

    def _on_publish(self, _client: Any, _data: Any, mid: int, reason: Any, _more: Any) -> None:
        self._loop.call_soon_threadsafe(self._answer(mid).set_result, reason.value)

    def _answer(self, mid: int) -> asyncio.Future[int]:
        return self._answers.setdefault(mid, self._loop.create_future())

    async def is_in(self) -> int:
        """The reason code of CONNACK."""
        return await asyncio.wait_for(self.connected, PATIENCE_SECONDS)

    async def publish(self, topic: str) -> int:
        """The reason code of PUBACK."""
        info = self._client.publish(topic, b"x", qos=1)
        return await asyncio.wait_for(self._answer(info.mid), PATIENCE_SECONDS)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


async def assert_is_device_7(client: Paho) -> None:
    """Who may publish below its own name only."""
    assert await client.is_in() == 0
    assert await client.publish("device-7/flow") in (0x00, 0x10)
    assert await client.publish("device-8/flow") == 0x87


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("login", [None, ("guest", "wrong")])
async def test_paho_is_who_its_certificate_says_whatever_else_it_says(
    secured_gateway: GatewayProcess, transport: str, login: tuple[str, str] | None
) -> None:
    client = Paho(secured_gateway, DEVICE, transport=transport, login=login)
    try:
        await assert_is_device_7(client)
    finally:
        client.close()


async def test_paho_3_1_1_comes_in_by_certificate(secured_gateway: GatewayProcess) -> None:
    client = Paho(secured_gateway, DEVICE, version=MQTTProtocolVersion.MQTTv311)
    try:
        assert await client.is_in() == 0
    finally:
        client.close()


@pytest.mark.parametrize(("password", "reason"), [("guest", 0x00), ("wrong", 0x86)])
async def test_paho_without_a_certificate_needs_its_password(
    secured_gateway: GatewayProcess, password: str, reason: int
) -> None:
    client = Paho(secured_gateway, None, login=("guest", password))
    try:
        assert await client.is_in() == reason
    finally:
        client.close()


async def test_paho_with_a_certificate_of_nobody_is_refused(
    secured_gateway: GatewayProcess,
) -> None:
    client = Paho(secured_gateway, NOBODY)
    try:
        assert await client.is_in() == 0x87
    finally:
        client.close()
