"""AMQP 0.9.1 with aiormq and aio-pika: many at once, confirms, reconnecting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import aiormq
import pytest
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS


@pytest.fixture
async def connection(shared_gateway: GatewayProcess) -> AsyncIterator[AbstractConnection]:
    made = await aiormq.connect(shared_gateway.amqp_url())
    yield made
    await made.close()


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


PERSISTENT = aiormq.spec.Basic.Properties(delivery_mode=2)


async def test_the_server_says_what_rabbitmqs_clients_look_for(
    connection: AbstractConnection,
) -> None:
    capabilities = connection.server_properties["capabilities"]
    assert capabilities == {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
        "direct_reply_to": True,
    }


async def test_a_thousand_publishes_at_once_are_all_confirmed_and_delivered_in_order(
    channel: AbstractChannel,
) -> None:
    queue = fresh("burst")
    await channel.queue_declare(queue, durable=True)
    confirms = await asyncio.gather(
        *[
            channel.basic_publish(str(n).encode(), routing_key=queue, properties=PERSISTENT)
            for n in range(1000)
        ]
    )
    assert all(isinstance(each, aiormq.spec.Basic.Ack) for each in confirms)
    bodies: list[bytes] = []
    done = asyncio.Event()

    async def on_message(message: DeliveredMessage) -> None:
        bodies.append(message.body)
        if len(bodies) == 1000:
            await channel.basic_ack(message.delivery_tag or 0, multiple=True)
            done.set()

    await channel.basic_qos(prefetch_count=1000)
    await channel.basic_consume(queue, on_message)
    await asyncio.wait_for(done.wait(), 20)
    assert bodies == [str(n).encode() for n in range(1000)]
    assert (await channel.queue_delete(queue)).message_count == 0


async def test_properties_come_back_exactly_as_they_were_sent(channel: AbstractChannel) -> None:
    queue = fresh("properties")
    await channel.queue_declare(queue, durable=True)
    sent = aiormq.spec.Basic.Properties(
        content_type="application/json",
        content_encoding="identity",
        headers={"text": "ü", "number": 7, "deep": {"list": [1, "two", None, True]}},
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        reply_to="somewhere",
        message_id="m-1",
        message_type="kind",
        user_id="guest",
        app_id="app",
    )
    await channel.basic_publish(b"{}", routing_key=queue, properties=sent)
    got = await channel.basic_get(queue, no_ack=True)
    assert dict(got.header.properties) == dict(sent)


async def test_bindings_between_exchanges_and_to_an_alternate_exchange_lead_on(
    channel: AbstractChannel,
) -> None:
    source, middle, spare = fresh("source"), fresh("middle"), fresh("spare")
    await channel.exchange_declare(spare, exchange_type="fanout")
    await channel.exchange_declare(
        source, exchange_type="topic", arguments={"alternate-exchange": spare}
    )
    await channel.exchange_declare(middle, exchange_type="headers")
    await channel.exchange_bind(middle, source, routing_key="a.#")
    matched = (await channel.queue_declare(exclusive=True)).queue or ""
    missed = (await channel.queue_declare(exclusive=True)).queue or ""
    await channel.queue_bind(matched, middle, arguments={"x-match": "any", "k": "v", "z": "w"})
    await channel.queue_bind(missed, spare)
    headers = aiormq.spec.Basic.Properties(headers={"k": "v"})
    await channel.basic_publish(b"1", exchange=source, routing_key="a.b", properties=headers)
    await channel.basic_publish(b"2", exchange=source, routing_key="b", properties=headers)
    assert (await channel.basic_get(matched, no_ack=True)).body == b"1"
    assert (await channel.basic_get(missed, no_ack=True)).body == b"2"
    await channel.exchange_unbind(middle, source, routing_key="a.#")
    await channel.basic_publish(b"3", exchange=source, routing_key="a.b", properties=headers)
    assert (await channel.basic_get(missed, no_ack=True)).body == b"3"


async def test_a_queue_without_use_expires(channel: AbstractChannel) -> None:
    queue = fresh("expiring")
    await channel.queue_declare(queue, durable=True, arguments={"x-expires": 150})
    for _ in range(200):
        try:
            await channel.queue_declare(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return
        await asyncio.sleep(0.25)  # longer than the expiry: each look renews it
    raise AssertionError("it is still there")


# --- aio-pika


async def test_a_robust_connection_of_aio_pika_works_through_a_restart(
    gateway: GatewayProcess,
) -> None:
    connection = await aio_pika.connect_robust(gateway.amqp_url(), reconnect_interval=0.2)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue("robust", durable=True)
        await channel.default_exchange.publish(
            aio_pika.Message(b"before", delivery_mode=aio_pika.DeliveryMode.PERSISTENT), "robust"
        )
        await asyncio.to_thread(gateway.restart)
        await asyncio.wait_for(connection.connected.wait(), PATIENCE_SECONDS)
        await channel.ready()
        await channel.default_exchange.publish(
            aio_pika.Message(b"after", delivery_mode=aio_pika.DeliveryMode.PERSISTENT), "robust"
        )
        found = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    found.append(message.body)
                if len(found) == 2:
                    break
        assert found == [b"before", b"after"]


async def test_a_thousand_waiting_messages_of_aio_pika_survive_kill_nine(
    gateway: GatewayProcess,
) -> None:
    connection = await aio_pika.connect(gateway.amqp_url())
    channel = await connection.channel(publisher_confirms=True)
    await channel.declare_queue("survivors", durable=True)
    confirmed: list[int] = []
    enough = asyncio.Event()

    async def publish(number: int) -> None:
        message = aio_pika.Message(str(number).encode(), delivery_mode=2)
        await channel.default_exchange.publish(message, "survivors")
        confirmed.append(number)
        if len(confirmed) == 1000:
            enough.set()

    publishing = [asyncio.create_task(publish(number)) for number in range(3000)]
    await asyncio.wait_for(enough.wait(), 20)
    gateway.kill()
    await asyncio.gather(*publishing, return_exceptions=True)
    await asyncio.to_thread(gateway.restart)
    connection = await aio_pika.connect(gateway.amqp_url())
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("survivors", durable=True)
        found = []
        while (message := await queue.get(fail=False)) is not None:
            found.append(int(message.body))
            await message.ack()
        assert set(confirmed) <= set(found)
        assert found == sorted(found)
