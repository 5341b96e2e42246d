"""AMQP 1.0 while the gateway or its PostgreSQL dies: nothing accepted is lost, nothing settled
returns."""

from __future__ import annotations

from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp10_clients import Amqp10Consumer, Amqp10Publisher
from tests.faults.crashes import crash, rounds
from tests.faults.history import History
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess
from tests.support.health import until_ready


def port_of(gateway: GatewayProcess) -> int:
    return gateway.ports["amqp"]


async def test_nothing_accepted_is_lost_when_the_gateway_is_killed(
    guest: GatewayProcess, history: History
) -> None:
    publishers = [
        Amqp10Publisher(history, f"p{n}", lambda: port_of(guest), "orders") for n in range(2)
    ]
    consumers = [
        Amqp10Consumer(history, f"c{n}", lambda: port_of(guest), "orders") for n in range(2)
    ]
    async with acting(*publishers, *consumers):
        for _ in rounds(3, seconds=25):
            await history.grow(200, of="settled")
            await crash(guest, history)
        await history.grow(200, of="settled")
        await drained(guest, *publishers)
    assert_promises_hold(history)


async def test_a_killed_postgresql_makes_senders_wait_and_costs_nothing(
    guest: GatewayProcess, server: Server, history: History
) -> None:
    publisher = Amqp10Publisher(history, "p", lambda: port_of(guest), "orders")
    consumer = Amqp10Consumer(history, "c", lambda: port_of(guest), "orders")
    async with acting(publisher, consumer):
        await history.grow(200, of="settled")
        server.kill()
        await until_ready(guest, 503)
        await server.start_again()
        await until_ready(guest)
        await history.grow(200, of="settled")
        await drained(guest, publisher)
        assert (publisher.lives, consumer.lives) == (1, 1)
    assert_promises_hold(history)
