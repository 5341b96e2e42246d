"""Reads a stream again from yesterday on, as often as you like, while new messages arrive.

A stream keeps what it has for as long as it is told to. Each reader says where to start: here a
time, in AMQP 0.9.1 and in MQTT 5. An offset, `first`, `last` and `next` do as well.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import aiormq
import gmqtt
from addresses import AMQP_URL, HOST, MQTT_PORT
from aiormq.abc import AbstractChannel, DeliveredMessage

YESTERDAY = datetime.now(UTC) - timedelta(days=1)
LAST = f"written at {datetime.now(UTC)}"


async def replay_over_amqp(channel: AbstractChannel) -> None:
    done = asyncio.Event()

    async def on_event(message: DeliveredMessage) -> None:
        offset = message.header.properties.headers["x-stream-offset"]
        print(f"AMQP 0.9.1, offset {offset}: {message.body.decode()}")
        await channel.basic_ack(message.delivery_tag)  # room for the next
        if message.body.decode() == LAST:
            done.set()

    await channel.basic_qos(prefetch_count=100)
    await channel.basic_consume("events", on_event, arguments={"x-stream-offset": YESTERDAY})
    await done.wait()


async def replay_over_mqtt() -> None:
    events = asyncio.Queue()
    client = gmqtt.Client("replaying")
    client.on_message = lambda client, topic, body, qos, said: events.put_nowait((body, said))
    await client.connect(HOST, MQTT_PORT)
    client.subscribe("$queue/events", qos=1, user_property=[("offset", YESTERDAY.isoformat())])
    body = b""
    while body.decode() != LAST:
        body, said = await events.get()
        print(f"MQTT 5, offset {dict(said['user_property'])['offset']}: {body.decode()}")
    await client.disconnect()


async def main() -> None:
    async with aiormq.Connection(AMQP_URL) as connection:
        channel = await connection.channel()
        arguments = {"x-queue-type": "stream", "x-max-age": "7D"}
        await channel.queue_declare("events", durable=True, arguments=arguments)
        for body in ("door opened", "door closed", LAST):
            await channel.basic_publish(body.encode(), routing_key="events")
        await replay_over_amqp(channel)
        await replay_over_mqtt()


asyncio.run(main())
