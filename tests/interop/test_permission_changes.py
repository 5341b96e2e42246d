"""Permissions that change while clients are connected: felt at once, by all three protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiormq
import asyncpg
import pytest
from aiormq.abc import DeliveredMessage

from protocols.mqtt.wire.packets import (
    Connect,
    PubComp,
    Publish,
    PubRel,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
)
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from queue_core.access.passwords import hash_password
from queue_core.store.tables.rights_changes import Confirmation, confirmed_on
from tests.support.amqp10_client import (
    BlockingConnection,
    ConnectionClosed,
    LinkDetached,
    Message,
    SendException,
    proton,
    reactor,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, RawClient, lasting
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS, until

PASSWORD, HASH = "secret", hash_password("secret")
Try = Callable[[], Awaitable[bool]]


@dataclass
class Clerk:
    """Changes one user in the tables, as `howdah user` does."""

    name: str
    connection: asyncpg.Connection
    mqtt: Mqtt
    database_url: str

    async def logged_in(self, properties: PropertySet = NO_PROPERTIES) -> RawClient:
        client = await self.mqtt.open()
        login = Connect(
            self.name,
            clean_start=properties is NO_PROPERTIES,
            username=self.name,
            password=PASSWORD.encode(),
            properties=properties,
        )
        assert (await client.connect(login)).reason == 0
        return client

    async def change(self, statement: str, *arguments: str) -> None:
        """Returns when the gateway acts by it."""
        await self.connection.execute(statement, *arguments)
        assert await confirmed_on(self.connection) is Confirmation.IN_FORCE

    async def grant(self, write: str) -> None:
        await self.change(
            """
            INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
            VALUES ($1, '/', '.*', $2, '.*')
            ON CONFLICT (user_name, vhost) DO UPDATE SET write = excluded.write
            """,
            self.name,
            write,
        )

    async def grant_read(self, read: str) -> None:
        await self.change(
            "UPDATE howdah.permission SET read = $2 WHERE user_name = $1", self.name, read
        )

    async def grant_topics(self, read: str) -> None:
        await self.change(
            """
            INSERT INTO howdah.topic_permission (user_name, vhost, exchange, write, read)
            VALUES ($1, '/', 'amq.topic', '.*', $2)
            ON CONFLICT (user_name, vhost, exchange) DO UPDATE SET read = excluded.read
            """,
            self.name,
            read,
        )

    async def watching(self, topic: str) -> RawClient:
        """Another client of the user, which is ended when the gateway knows of the loss."""
        client = await self.mqtt.open()
        name = fresh("watch")
        await client.connect(Connect(name, username=self.name, password=PASSWORD.encode()))
        assert await client.subscribe(topic, 0) == 0
        return client

    async def remove(self) -> None:
        await self.change('DELETE FROM howdah."user" WHERE name = $1', self.name)

    async def revoke(self) -> None:
        await self.change("DELETE FROM howdah.permission WHERE user_name = $1", self.name)


@pytest.fixture
async def clerk(shared_gateway: GatewayProcess) -> AsyncIterator[Clerk]:
    connection = await asyncpg.connect(shared_gateway.database_url)
    name = fresh("user")
    statement = 'INSERT INTO howdah."user" (name, password_hash) VALUES ($1, $2)'
    await connection.execute(statement, name, HASH)
    mqtt = Mqtt(shared_gateway.ports["mqtt"])
    made = Clerk(name, connection, mqtt, shared_gateway.database_url)
    await made.grant(".*")
    yield made
    await made.mqtt.close()
    await made.remove()
    await connection.close()


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
    return BlockingConnection(url, timeout=PATIENCE_SECONDS, allowed_mechs="PLAIN")


@pytest.mark.parametrize("publisher", [mqtt, amqp_091, amqp_10])
async def test_a_publisher_is_refused_when_its_permission_is_taken_and_taken_when_it_is_back(
    shared_gateway: GatewayProcess,
    clerk: Clerk,
    publisher: Callable[[GatewayProcess, Clerk], AbstractAsyncContextManager[Try]],
) -> None:
    async with publisher(shared_gateway, clerk) as publish:
        assert await publish()
        await clerk.grant("^nothing$")
        assert not await publish()
        await clerk.grant(".*")
        assert await publish()


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
        await asyncio.wait_for(connection.closing, PATIENCE_SECONDS)


async def test_an_amqp_10_client_is_told_and_ended_when_its_user_is_removed(
    shared_gateway: GatewayProcess, clerk: Clerk
) -> None:
    await clerk.logged_in()
    connection = await asyncio.to_thread(_proton_connection, shared_gateway, clerk.name)
    receiver = await asyncio.to_thread(connection.create_receiver, f"topic://{clerk.name}")
    await clerk.remove()
    with pytest.raises((ConnectionClosed, LinkDetached), match="may not use vhost"):
        await asyncio.to_thread(receiver.receive, PATIENCE_SECONDS)


# --- who may not read any more what it reads


def all_but(*names: str) -> str:
    return f"^(?!({'|'.join(names)})$)"


async def test_an_amqp_091_consumer_is_cancelled_and_may_still_acknowledge(
    shared_gateway: GatewayProcess, clerk: Clerk
) -> None:
    await clerk.logged_in()
    connection = await aiormq.connect(shared_gateway.amqp_url(clerk.name, PASSWORD))
    channel = await connection.channel()
    lost, kept = clerk.name, fresh("kept")
    got: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
    cancelled: asyncio.Queue[str] = asyncio.Queue()
    channel.on_consumer_cancel_callbacks.add(
        lambda frame: cancelled.put_nowait(frame.consumer_tag or "")
    )
    for name in (lost, kept):
        await channel.queue_declare(name, durable=True)
        await channel.basic_consume(name, got.put, consumer_tag=name)
    await channel.basic_publish(b"held", routing_key=lost)
    held = await asyncio.wait_for(got.get(), PATIENCE_SECONDS)
    await clerk.grant_read(all_but(lost))
    assert await asyncio.wait_for(cancelled.get(), PATIENCE_SECONDS) == lost
    assert held.delivery_tag is not None
    await channel.basic_ack(held.delivery_tag)
    await channel.basic_publish(b"stays", routing_key=lost)
    await channel.basic_publish(b"comes", routing_key=kept)
    assert (await asyncio.wait_for(got.get(), PATIENCE_SECONDS)).body == b"comes"
    declared = await channel.queue_delete(lost)
    assert declared.message_count == 1
    await channel.queue_delete(kept)
    await connection.close()


@pytest.mark.parametrize("kind", ["queue", "topic", "browser"])
async def test_an_amqp_10_receiver_is_detached(
    shared_gateway: GatewayProcess, clerk: Clerk, kind: str
) -> None:
    await clerk.logged_in()
    connection = await asyncio.to_thread(_proton_connection, shared_gateway, clerk.name)
    await clerk.connection.execute("SELECT howdah.declare_queue($1)", clerk.name)
    address = f"topic://{clerk.name}" if kind == "topic" else f"/queues/{clerk.name}"
    options = reactor.Copy() if kind == "browser" else None

    def open_receiver() -> Any:
        return connection.create_receiver(address, name=fresh("link"), options=options)

    await until(lambda: _succeeds(open_receiver), "the grant is noticed")
    receiver = await asyncio.to_thread(open_receiver)
    await clerk.grant_read(all_but(clerk.name, "amq.topic"))
    with pytest.raises(LinkDetached, match=r"amqp:unauthorized-access.* has no read access"):
        await asyncio.to_thread(receiver.receive, PATIENCE_SECONDS)
    await asyncio.to_thread(connection.close)


async def _succeeds(call: Callable[[], object]) -> bool:
    try:
        await asyncio.to_thread(call)
    except LinkDetached:
        return False
    return True


async def has_subscription(client: RawClient, topic_filter: str) -> bool:
    client.send(Unsubscribe(9, (topic_filter,)))
    return (await client.find(UnsubAck)).reasons != (0x11,)


@pytest.mark.parametrize("kind", ["queue", "topic", "group"])
async def test_an_mqtt_subscriber_is_ended_and_comes_back_without_its_subscription(
    clerk: Clerk, kind: str
) -> None:
    address = {"queue": "$queue/{}", "topic": "t/{}", "group": "$share/g/t/{}"}[kind]
    client = await clerk.logged_in(lasting())
    await client.subscribe(address.format(clerk.name), 1)
    await clerk.grant_read(all_but(clerk.name, "amq.topic"))
    assert await client.disconnected() == 0x87
    again = await clerk.logged_in(lasting())
    assert not await has_subscription(again, address.format(clerk.name))


async def test_an_mqtt_subscriber_that_was_away_is_told_when_it_comes_back(clerk: Clerk) -> None:
    client = await clerk.logged_in(lasting())
    await client.subscribe(f"t/{clerk.name}", 1)
    await client.disconnect()
    watch = await clerk.watching(f"t/{clerk.name}")
    await clerk.grant_read(all_but("amq.topic"))
    assert await watch.disconnected() == 0x87  # the gateway knows
    client = await clerk.logged_in(lasting())
    assert await client.disconnected() == 0x87
    again = await clerk.logged_in(lasting())
    assert not await has_subscription(again, f"t/{clerk.name}")


# --- what has waited for who may not read it any more


async def published(clerk: Clerk, *topics: str) -> None:
    async with clerk.mqtt.client() as publisher:
        for topic in topics:
            await publisher.publish(topic, topic.encode(), 2)


async def heard(client: RawClient, count: int) -> list[str]:
    topics = [message.topic for message in await client.messages(count)]
    assert await client.hears_nothing()
    return topics


async def test_what_waited_is_not_delivered_to_who_may_not_read_it_any_more(clerk: Clerk) -> None:
    """By its topic, or by the filter that brought it: what either allows still comes."""
    name = clerk.name
    client = await clerk.logged_in(lasting())
    for each in (f"{name}/all/#", f"{name}/one", f"{name}/by/+", f"{name}/gone"):
        assert await client.subscribe(each, 2) == 2
    client.send(Unsubscribe(9, (f"{name}/gone",)))
    await client.find(UnsubAck)
    await client.disconnect()
    waiting = [f"{name}/{rest}" for rest in ("all/open", "all/secret", "one", "by/x")]
    await published(clerk, *waiting)
    watch = await clerk.watching(f"{name}/one")
    # the filter `all/#` is lost, and one of its topics is not; `by/+` is kept as it is written
    await clerk.grant_topics(rf"^{name}\.(all\.open|by\.\*)$")
    assert await watch.disconnected() == 0x87
    client = await clerk.logged_in(lasting())
    assert await client.disconnected() == 0x87  # without the subscriptions that it lost
    client = await clerk.logged_in(lasting())
    assert await heard(client, 2) == [f"{name}/all/open", f"{name}/by/x"]
    await client.disconnect()
    await clerk.grant_topics(".*")  # what was withheld is gone
    assert await may_subscribe(clerk, f"{name}/one")
    client = await clerk.logged_in(lasting())
    assert client.connack.session_present
    assert await client.hears_nothing()


async def may_subscribe(clerk: Clerk, topic: str) -> bool:
    client = await clerk.mqtt.open()
    login = Connect(fresh("asks"), username=clerk.name, password=PASSWORD.encode())
    assert (await client.connect(login)).reason == 0
    return await client.subscribe(topic) == 0


async def test_an_identifier_of_what_is_withheld_is_released(clerk: Clerk) -> None:
    """The client may have received it before it was lost: it waits for PUBREL, and would take the
    next message under that identifier for the same."""
    topic = f"{clerk.name}/one"
    client = await clerk.logged_in(lasting())
    await client.subscribe(topic, 2)
    await published(clerk, topic)
    message = await client.expect(Publish)
    client.abort()
    watch = await clerk.watching(topic)
    await clerk.grant_topics("^nothing$")
    assert await watch.disconnected() == 0x87
    assert await (await clerk.logged_in(lasting())).disconnected() == 0x87
    client = await clerk.logged_in(lasting())
    assert await client.expect(PubRel) == PubRel(message.packet_id)
    client.send(PubComp(message.packet_id))
    assert await client.hears_nothing()
    await client.disconnect()
    client = await clerk.logged_in(lasting())
    assert await client.hears_nothing()


async def test_a_client_that_is_expelled_while_it_subscribes_takes_nothing_from_its_group(
    clerk: Clerk,
) -> None:
    address = f"$share/g/{clerk.name}"
    client = await clerk.logged_in(lasting())
    async with clerk.connection.transaction():
        await clerk.connection.execute("LOCK TABLE howdah.subscription IN EXCLUSIVE MODE")
        client.send(Subscribe(1, (SubscribeRequest(address, 1),)))
        outside = await asyncpg.connect(clerk.database_url)
        statement = "DELETE FROM howdah.permission WHERE user_name = $1"
        await outside.execute(statement, clerk.name)
        await outside.close()
        assert await client.disconnected() == 0x87
    async with clerk.mqtt.client() as member, clerk.mqtt.client() as publisher:
        await member.subscribe(address, 1)
        for i in range(10):
            await publisher.publish(clerk.name, b"%d" % i, 1)
        assert [m.payload for m in await member.messages(10)] == [b"%d" % i for i in range(10)]
