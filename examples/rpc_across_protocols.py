"""One worker, written for AMQP 0.9.1, answers an MQTT 5 client and an AMQP 1.0 client.

Each knows its own convention: reply_to, a response topic, a temporary node and reply-to.
"""

import asyncio

import aiormq
import gmqtt
from addresses import AMQP_URL, HOST, MQTT_PORT
from aiormq.abc import AbstractChannel, DeliveredMessage
from proton import Message
from proton.utils import BlockingConnection


async def start_worker(channel: AbstractChannel) -> None:
    async def on_request(request: DeliveredMessage) -> None:
        said = request.header.properties
        back = aiormq.spec.Basic.Properties(correlation_id=said.correlation_id)
        answer = request.body.upper()
        await channel.basic_publish(answer, routing_key=said.reply_to, properties=back)
        await channel.basic_ack(request.delivery_tag)

    await channel.queue_declare("requests", durable=True)
    await channel.basic_consume("requests", on_request)


async def ask_with_mqtt5(question: str) -> None:
    answers = asyncio.Queue()
    client = gmqtt.Client("asking")
    client.on_message = lambda client, topic, body, qos, said: answers.put_nowait((body, said))
    await client.connect(HOST, MQTT_PORT)
    client.subscribe("answers/for/asking", qos=1)
    back = {"response_topic": "answers/for/asking", "correlation_data": b"question 1"}
    client.publish("$queue/requests", question, qos=1, **back)
    body, said = await answers.get()
    print(f"MQTT 5 was told: {body.decode()} ({said['correlation_data'][0].decode()})")
    await client.disconnect()


def ask_with_amqp10(question: str) -> None:
    connection = BlockingConnection(AMQP_URL, allowed_mechs="PLAIN")
    answers = connection.create_receiver(None, dynamic=True)
    request = Message(question.encode(), inferred=True, correlation_id="question 2")
    request.reply_to = answers.link.remote_source.address
    connection.create_sender("/queues/requests").send(request)
    answer = answers.receive(timeout=30)
    print(f"AMQP 1.0 was told: {bytes(answer.body).decode()} ({answer.correlation_id})")
    connection.close()


async def main() -> None:
    async with aiormq.Connection(AMQP_URL) as connection:
        await start_worker(await connection.channel())
        await ask_with_mqtt5("is anybody there?")
        await asyncio.to_thread(ask_with_amqp10, "and on the other line?")


asyncio.run(main())
