"""Permissions that change while clients are connected: felt within about a second, by all three."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiormq
import asyncpg
import pytest

from protocols.mqtt.packets import Connect
from queue_core.passwords import hash_password
from tests.gateway_process import GatewayProcess
from tests.interop.amqp10_client import (
    BlockingConnection,
    ConnectionClosed,
    LinkDetached,
    Message,
    SendException,
    fresh,
    proton,
)
from tests.protocol.mqtt.raw_client import Mqtt, RawClient

PASSWORD, HASH = "secret", hash_password("secret")
SECONDS = 30.0
Try = Callable[[], Awaitable[bool]]


@dataclass
class Clerk:
    """Changes one user in the tables, as `howdah user` does."""

    name: str
    connection: asyncpg.Connection
    mqtt: Mqtt

    async def logged_in(self) -> RawClient:
        """As soon as the gateway knows the user."""
        for _ in range(100):
            client = await self.mqtt.open()
            login = Connect(self.name, username=self.name, password=PASSWORD.encode())
            if (await client.connect(login)).reason == 0:
                return client
            await asyncio.sleep(0.3)
        raise AssertionError("the new user cannot log in")

    async def grant(self, write: str) -> None:
        await self.connection.execute(
            """
            INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
            VALUES ($1, '/', '.*', $2, '.*')
            ON CONFLICT (user_name, vhost) DO UPDATE SET write = excluded.write
            """,
            self.name,
            write,
        )

    async def remove(self) -> None:
        await self.connection.execute('DELETE FROM howdah."user" WHERE name = $1', self.name)

    async def revoke(self) -> None:
        await self.connection.execute(
            "DELETE FROM howdah.permission WHERE user_name = $1", self.name
        )


@pytest.fixture
async def clerk(shared_gateway: GatewayProcess) -> AsyncIterator[Clerk]:
    connection = await asyncpg.connect(shared_gateway.database_url)
    name = fresh("user")
    statement = 'INSERT INTO howdah."user" (name, password_hash) VALUES ($1, $2)'
    await connection.execute(statement, name, HASH)
    made = Clerk(name, connection, Mqtt(shared_gateway.ports["mqtt"]))
    await made.grant(".*")
    yield made
    await made.mqtt.close()
    await made.remove()
    await connection.close()


async def until(holds: Try, expected: bool) -> None:
    """The gateway has no event to offer to another process: it is asked until it is so."""
    for _ in range(150):
        if await holds() is expected:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the change was not noticed")


# --- a publisher of each protocol: whether what it publishes is taken


@asynccontextmanager
async def mqtt(gateway: GatewayProcess, clerk: Clerk) -> AsyncIterator[Try]:
    client = await clerk.logged_in()

    async def publish() -> bool:
        return await client.publish(f"topic/{clerk.name}", b"x", qos=1) < 0x80

    yield publish


@asynccontextmanager
async def amqp_091(gateway: GatewayProcess, clerk: Clerk) -> AsyncIterator[Try]:
    await clerk.logged_in()
    connection = await aiormq.connect(gateway.amqp_url(clerk.name, PASSWORD))
    channel = await connection.channel()

    async def publish() -> bool:
        nonlocal channel
        try:
            await channel.basic_publish(b"x", exchange="amq.topic", routing_key=clerk.name)
        except aiormq.exceptions.ChannelAccessRefused:
            channel = await connection.channel()
            return False
        return True

    yield publish
    await connection.close()


@asynccontextmanager
async def amqp_10(gateway: GatewayProcess, clerk: Clerk) -> AsyncIterator[Try]:
    await clerk.logged_in()
    connection = await asyncio.to_thread(_proton_connection, gateway, clerk.name)
    address = f"/exchanges/amq.topic/{clerk.name}"
    sender = await asyncio.to_thread(connection.create_sender, address)

    def send() -> bool:
        try:
            sender.send(Message(body="x"))
        except SendException as error:
            return bool(error.state == proton.Delivery.RELEASED)  # taken, and nobody listens
        return True

    yield lambda: asyncio.to_thread(send)
    await asyncio.to_thread(connection.close)


def _proton_connection(gateway: GatewayProcess, user: str) -> BlockingConnection:
    url = f"amqp://{user}:{PASSWORD}@127.0.0.1:{gateway.ports['amqp']}"
    return BlockingConnection(url, timeout=SECONDS, allowed_mechs="PLAIN")


@pytest.mark.parametrize("publisher", [mqtt, amqp_091, amqp_10])
async def test_a_publisher_is_refused_when_its_permission_is_taken_and_taken_when_it_is_back(
    shared_gateway: GatewayProcess,
    clerk: Clerk,
    publisher: Callable[[GatewayProcess, Clerk], AbstractAsyncContextManager[Try]],
) -> None:
    async with publisher(shared_gateway, clerk) as publish:
        assert await publish()
        await clerk.grant("^nothing$")
        await until(publish, False)
        assert not await publish()
        await clerk.grant(".*")
        await until(publish, True)


# --- who may not be there any more


@pytest.mark.parametrize("act", [Clerk.remove, Clerk.revoke])
async def test_an_mqtt_client_is_told_and_ended_when_its_user_may_not_be_there(
    clerk: Clerk, act: Callable[[Clerk], Awaitable[None]]
) -> None:
    client = await clerk.logged_in()
    await act(clerk)
    assert await client.disconnected() == 0x87


@pytest.mark.parametrize("act", [Clerk.remove, Clerk.revoke])
async def test_an_amqp_091_client_is_told_and_ended_when_its_user_may_not_be_there(
    shared_gateway: GatewayProcess, clerk: Clerk, act: Callable[[Clerk], Awaitable[None]]
) -> None:
    await clerk.logged_in()
    connection = await aiormq.connect(shared_gateway.amqp_url(clerk.name, PASSWORD))
    await act(clerk)
    with pytest.raises(aiormq.exceptions.AMQPError, match="may not use vhost"):
        await asyncio.wait_for(connection.closing, SECONDS)


async def test_an_amqp_10_client_is_told_and_ended_when_its_user_is_removed(
    shared_gateway: GatewayProcess, clerk: Clerk
) -> None:
    await clerk.logged_in()
    connection = await asyncio.to_thread(_proton_connection, shared_gateway, clerk.name)
    receiver = await asyncio.to_thread(connection.create_receiver, f"topic://{clerk.name}")
    await clerk.remove()
    with pytest.raises((ConnectionClosed, LinkDetached), match="may not use vhost"):
        await asyncio.to_thread(receiver.receive, SECONDS)
