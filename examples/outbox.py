"""Publishes in the application's own database transaction: with the row, or not at all.

`howdah.publish` inserts into the outbox; the gateway takes what is committed and routes it like any
message, exactly once. No message without its sale, no sale without its message, and no broker to
reach while the transaction is open.
"""

import asyncio

import asyncpg
from addresses import AMQP_URL, database_url
from proton.utils import BlockingConnection


async def buy(database: asyncpg.Connection, article: str, amount: int) -> None:
    async with database.transaction():
        number = await database.fetchval(
            "INSERT INTO sale (article, amount) VALUES ($1, $2) RETURNING id", article, amount
        )
        await database.execute(
            "SELECT howdah.publish('sales', to_jsonb(p), message_id => 'sale-' || p.id) "
            "FROM sale p WHERE id = $1",
            number,
        )
        if amount > 100:
            raise ValueError(f"{amount} pieces of {article}? The transaction is rolled back")


async def shop() -> None:
    database = await asyncpg.connect(database_url())
    await database.execute(
        "CREATE TABLE IF NOT EXISTS sale "
        "(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, article text, amount int)"
    )
    await buy(database, "saddle", 2)
    try:
        await buy(database, "elephant", 1000)
    except ValueError as error:
        print(error)
    await buy(database, "howdah", 1)
    await database.close()


def main() -> None:
    connection = BlockingConnection(AMQP_URL, allowed_mechs="PLAIN")
    receiver = connection.create_receiver("queue://sales", credit=2)  # makes the queue
    asyncio.run(shop())
    for _ in range(2):
        message = receiver.receive(timeout=30)
        print(message.id, bytes(message.body).decode())
        receiver.accept()
    connection.close()


main()
