"""Limits of virtual hosts and users, met by clients of every protocol with its own error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pika
import pika.exceptions
import pytest

from protocols.mqtt.wire.packets import Connect, Version
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import ReasonCode
from tests.support.amqp10_client import BlockingConnection, proton
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.mqtt_raw_client import RawClient
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS, wait_until

PASSWORD = "a long word"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


class Tenant:
    """A user and a virtual host of its own, with limits."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._clients: list[RawClient] = []
        self.user, self.vhost = fresh("tenant"), fresh("house")
        self.ask("PUT", f"users/{self.user}", {"tags": [], "password": PASSWORD})
        self.ask("PUT", f"vhosts/{self.vhost}")
        self.ask("PUT", f"permissions/{self.vhost}/{self.user}", EVERYTHING)

    def ask(self, method: str, path: str, body: object = None) -> None:
        assert ask(self.gateway, method, f"/api/{path}", body).status in (201, 204)

    def limit_user(self, limit: str, value: int) -> None:
        self.ask("PUT", f"user-limits/{self.user}/{limit}", {"value": value})

    def limit_vhost(self, limit: str, value: int) -> None:
        self.ask("PUT", f"vhost-limits/{self.vhost}/{limit}", {"value": value})

    def amqp091(self) -> pika.BlockingConnection:
        url = self.gateway.amqp_url(self.user, PASSWORD, self.vhost)
        return pika.BlockingConnection(pika.URLParameters(url))

    def amqp10(self) -> BlockingConnection:
        return BlockingConnection(
            f"amqp://127.0.0.1:{self.gateway.ports['amqp']}",
            timeout=PATIENCE_SECONDS,
            user=self.user,
            password=PASSWORD,
            virtual_host=f"vhost:{self.vhost}",
            allowed_mechs="PLAIN",
            reconnect=False,
        )

    async def mqtt(self, version: Version = Version.V5, *, keeps: bool = False) -> RawClient:
        client = await RawClient.open(self.gateway.ports["mqtt"], version)
        self._clients.append(client)
        properties = PropertySet(session_expiry=3600) if keeps else PropertySet()
        client.connack = await client.connect(
            Connect(
                fresh("client"),
                version=version,
                username=f"{self.vhost}:{self.user}",
                password=PASSWORD.encode(),
                properties=properties,
            )
        )
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.abort()
            await client.wait_closed()


@pytest.fixture
async def tenant(own_gateway: GatewayProcess) -> AsyncIterator[Tenant]:
    made = Tenant(own_gateway)
    yield made
    await made.close()
    for queue in ask(own_gateway, "GET", f"/api/queues/{made.vhost}").value:
        own_gateway.run("queue", "delete", queue["name"], "--vhost", made.vhost)
    ask(own_gateway, "DELETE", f"/api/users/{made.user}")
    ask(own_gateway, "DELETE", f"/api/vhosts/{made.vhost}")


@pytest.mark.parametrize("whose", ["user", "vhost"])
async def test_a_connection_beyond_a_limit_is_refused_in_every_protocol(
    tenant: Tenant, whose: str
) -> None:
    if whose == "user":
        tenant.limit_user("max-connections", 1)
    else:
        tenant.limit_vhost("max-connections", 1)
    first = tenant.amqp091()
    with pytest.raises(pika.exceptions.AMQPConnectionError, match=r"530.*limit \(1\) is reached"):
        tenant.amqp091()
    with pytest.raises(proton.ConnectionException, match="resource-limit-exceeded"):
        tenant.amqp10()
    fifth = await tenant.mqtt()
    assert fifth.connack.reason == ReasonCode.QUOTA_EXCEEDED
    third = await tenant.mqtt(Version.V311)
    assert third.connack.reason == 3  # server unavailable
    first.close()
    let_in = await tenant.mqtt()
    assert let_in.connack.reason == ReasonCode.SUCCESS
    await let_in.disconnect()


@pytest.mark.parametrize("whose", ["user", "vhost"])
async def test_clients_of_mqtt_that_come_at_once_do_not_pass_a_limit(
    tenant: Tenant, whose: str
) -> None:
    (tenant.limit_user if whose == "user" else tenant.limit_vhost)("max-connections", 2)
    clients = await asyncio.gather(*(tenant.mqtt(keeps=True) for _ in range(12)))
    reasons = [client.connack.reason for client in clients]
    assert reasons.count(ReasonCode.SUCCESS) == 2
    assert reasons.count(ReasonCode.QUOTA_EXCEEDED) == 10
    for client in clients:
        if client.connack.reason == ReasonCode.SUCCESS:
            await client.disconnect()


async def test_who_has_left_makes_room(tenant: Tenant) -> None:
    tenant.limit_user("max-connections", 1)
    client = await tenant.mqtt()
    assert client.connack.reason == ReasonCode.SUCCESS
    await client.disconnect()

    def comes_in() -> bool:
        with suppress(pika.exceptions.AMQPConnectionError):
            tenant.amqp091().close()
            return True
        return False

    wait_until(comes_in)


async def test_a_channel_beyond_the_limit_of_its_user_ends_the_connection(tenant: Tenant) -> None:
    tenant.limit_user("max-channels", 2)
    one, other = tenant.amqp091(), tenant.amqp091()
    one.channel()
    closed = other.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=r"limit of \(2\)"):
        other.channel()
    assert closed.is_closed
    one.channel()
    one.close()


async def test_a_session_beyond_the_limit_of_its_user_is_ended(tenant: Tenant) -> None:
    tenant.limit_user("max-channels", 1)
    held = tenant.amqp091()
    held.channel()
    connection = tenant.amqp10()
    session = connection.conn.session()
    session.open()
    connection.wait(lambda: session.state & proton.Endpoint.REMOTE_CLOSED, msg="the end")
    assert session.remote_condition.name == "amqp:resource-limit-exceeded"
    held.close()
    connection.close()


async def test_a_queue_beyond_the_limit_of_its_virtual_host_is_refused(tenant: Tenant) -> None:
    tenant.limit_vhost("max-queues", 1)
    connection = tenant.amqp091()
    channel = connection.channel()
    channel.queue_declare("one", durable=True)
    channel.queue_declare("one", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"406.*limit.*\(1\)"):
        channel.queue_declare("two", exclusive=True)
    for_now = await tenant.mqtt()
    assert for_now.connack.reason == ReasonCode.SUCCESS  # its queue goes with its connection
    await for_now.disconnect()
    stays = await tenant.mqtt(keeps=True)
    assert stays.connack.reason == ReasonCode.QUOTA_EXCEEDED
    connection.close()
