"""A sensor publishes over MQTT 5, a worker consumes over AMQP 0.9.1; neither knows of the other.

A durable queue keeps the readings in between: run the two halves at different times, and nothing is
lost. The sensor's PUBACK comes when its reading is committed to the queue.
"""

import asyncio

import aiormq
import gmqtt
from addresses import AMQP_URL, HOST, MQTT_PORT
from aiormq.abc import AbstractChannel, DeliveredMessage

READINGS = ("21.5", "21.7", "22.4")


async def sensor() -> None:
    client = gmqtt.Client("sensor-7")
    await client.connect(HOST, MQTT_PORT)
    for value in READINGS:
        client.publish("plant/7/temperature", value, qos=1, user_property=("unit", "celsius"))
    await client.disconnect()  # when all are acknowledged


async def worker(channel: AbstractChannel, count: int) -> None:
    readings = asyncio.Queue()

    async def on_reading(message: DeliveredMessage) -> None:
        readings.put_nowait(message)

    await channel.basic_qos(prefetch_count=10)
    await channel.basic_consume("readings", on_reading)
    for _ in range(count):
        reading = await readings.get()
        unit = reading.header.properties.headers.get("unit", "")  # another sensor may say none
        print(f"{reading.routing_key}: {reading.body.decode()} {unit}")
        await channel.basic_ack(reading.delivery_tag)  # only now is it off the queue


async def main() -> None:
    async with aiormq.Connection(AMQP_URL) as connection:
        channel = await connection.channel()
        await channel.queue_declare("readings", durable=True)
        # MQTT's plant/+/temperature
        await channel.queue_bind("readings", "amq.topic", "plant.*.temperature")
        await sensor()
        await worker(channel, len(READINGS))


asyncio.run(main())
