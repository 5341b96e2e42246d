"""kill -9 of the gateway under load: P1 and P2, on its own PostgreSQL and on one that lives on."""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpPublisher
from tests.faults.crashes import crash, crash_while_starting, rounds
from tests.faults.history import History
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess


async def test_nothing_confirmed_is_lost_when_the_gateway_is_killed_with_its_postgresql(
    gateway: GatewayProcess, history: History
) -> None:
    publishers = [AmqpPublisher(history, f"p{n}", gateway.amqp_url, "orders") for n in range(3)]
    consumers = [AmqpConsumer(history, f"c{n}", gateway.amqp_url, "orders") for n in range(2)]
    async with acting(*publishers, *consumers):
        await history.grow(500, of="settled")
        await crash(gateway, history)
        await history.grow(500, of="settled")
        await drained(gateway, *publishers)
    assert_promises_hold(history)


@pytest.mark.parametrize("moment", ["confirmed", "settled"])
async def test_what_was_answered_holds_when_the_gateway_dies_at_that_very_moment(
    guest: GatewayProcess, history: History, moment: str
) -> None:
    publisher = AmqpPublisher(history, "p", guest.amqp_url, "orders", window=1)
    consumer = AmqpConsumer(history, "c", guest.amqp_url, "orders", window=1)
    async with acting(publisher, consumer):
        for _ in rounds(4, seconds=10):
            await history.grow(2, of=moment)
            os.kill(guest.pid, signal.SIGKILL)
            await crash(guest, history)
        await history.grow(2, of="settled")
        await drained(guest, publisher)
    assert_promises_hold(history)


async def test_twenty_crashes_in_quick_succession_cost_nothing(
    guest: GatewayProcess, server: Server, database: str, history: History
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    publishers = [AmqpPublisher(history, f"p{n}", guest.amqp_url, "orders") for n in range(3)]
    consumers = [AmqpConsumer(history, f"c{n}", guest.amqp_url, "orders") for n in range(2)]
    async with acting(*publishers, *consumers):
        for _ in rounds(20, seconds=30):
            await history.grow(chance.randrange(1, 60), of=chance.choice(["settled", "confirmed"]))
            match chance.randrange(4):
                case 0:
                    await crash_while_starting(guest, history, chance.uniform(0.1, 1.0))
                case 1:
                    await server.cut(database)
                    await crash(guest, history)
                case _:
                    await crash(guest, history)
        await history.grow(100, of="settled")
        await drained(guest, *publishers)
    print(f"seed {seed}: {history.summary()}")
    assert_promises_hold(history)
