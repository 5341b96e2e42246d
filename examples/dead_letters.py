"""Dead letters, looked at and sent back with psql.

A worker rejects what it cannot do. A person looks, mends the worker, and sends it back.
"""

import asyncio
import json
import subprocess

import aiormq
from addresses import AMQP_URL, database_url, psql
from aiormq.abc import AbstractChannel

GRAVES = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}
LOOK = """SELECT died_in, reason, message_id, howdah.body_text(body)
          FROM howdah.dead_letters WHERE queue = 'orders.dead' ORDER BY "offset" """
REDRIVE = "SELECT howdah.redrive('orders.dead', $$ howdah.body_text(body) LIKE '%EUR%' $$)"


def ask(statement: str) -> None:
    print("psql>", statement, flush=True)
    subprocess.run([psql(), database_url(), "--no-psqlrc", "-c", statement], check=True)


async def dead(channel: AbstractChannel) -> int:
    return (await channel.queue_declare("orders.dead", durable=True)).message_count


async def work(channel: AbstractChannel, currencies: set[str], count: int) -> None:
    while count > 0:
        order = await channel.basic_get("orders")
        if order.delivery_tag is None:
            await asyncio.sleep(0.1)  # what was sent back is on its way
        elif json.loads(order.body)["currency"] in currencies:
            print("done:", order.body.decode(), flush=True)
            await channel.basic_ack(order.delivery_tag)
            count -= 1
        else:
            await channel.basic_reject(order.delivery_tag, requeue=False)


async def main() -> None:
    async with aiormq.Connection(AMQP_URL) as connection:
        channel = await connection.channel()
        before = await dead(channel)
        await channel.queue_declare("orders", durable=True, arguments=GRAVES)
        for number, currency in enumerate(("EUR", "XXX", "USD")):
            order = json.dumps({"id": number, "currency": currency})
            await channel.basic_publish(order.encode(), routing_key="orders")
        await work(channel, {"USD"}, 1)
        while await dead(channel) < before + 2:  # noqa: ASYNC110  # rejections have no answer
            await asyncio.sleep(0.1)
        ask(LOOK)
        ask(REDRIVE)
        await work(channel, {"USD", "EUR"}, 1)  # mended
        ask(LOOK)  # what nobody understands is still there


asyncio.run(main())
