"""SIGTERM under load, and PostgreSQL's absence during it."""

from __future__ import annotations

import asyncio

from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpPublisher
from tests.faults.history import Calm, Delivered, Fault, History
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess
from tests.support.health import until_said


async def test_sigterm_under_load_ends_well_and_loses_nothing(
    guest: GatewayProcess, history: History
) -> None:
    publishers = [AmqpPublisher(history, f"p{n}", guest.amqp_url, "orders") for n in range(3)]
    consumers = [AmqpConsumer(history, f"c{n}", guest.amqp_url, "orders") for n in range(2)]
    async with acting(*publishers, *consumers):
        await history.grow(500, of="settled")
        history.add(Fault("SIGTERM"))
        assert await asyncio.to_thread(guest.terminate) == 0
        await asyncio.to_thread(guest.restart)
        history.add(Calm())
        await history.grow(500, of="settled")
        await drained(guest, *publishers)
    assert_promises_hold(history)
    assert "Traceback" not in guest.log(), guest.log()


async def test_after_a_clean_end_what_was_never_handed_out_is_not_flagged(
    guest: GatewayProcess, history: History
) -> None:
    publisher = AmqpPublisher(history, "p", guest.amqp_url, "orders")
    async with acting(publisher):
        await history.grow(300)
        await publisher.stop()
    async with acting(AmqpConsumer(history, "c", guest.amqp_url, "orders", window=10)):
        await history.grow(20, of="settled")
    handed_out = max(name.number for name in history.delivered) + 10
    history.add(Fault("SIGTERM"))
    assert await asyncio.to_thread(guest.terminate) == 0
    await asyncio.to_thread(guest.restart)
    async with acting(AmqpConsumer(history, "d", guest.amqp_url, "orders")):
        await drained(guest)
    assert_promises_hold(history)
    flagged = [
        event.name.number
        for event in history.events
        if isinstance(event, Delivered) and event.is_flagged
    ]
    assert max(flagged, default=0) <= handed_out


async def test_a_gateway_that_ends_without_its_database_waits_for_it_and_loses_nothing(
    guest: GatewayProcess, server: Server, history: History
) -> None:
    publisher = AmqpPublisher(history, "p", guest.amqp_url, "orders")
    consumer = AmqpConsumer(history, "c", guest.amqp_url, "orders")
    async with acting(publisher, consumer):
        await history.grow(100, of="settled")
        history.add(Fault("kill -9 of PostgreSQL, and SIGTERM"))
        server.kill()
        ending = asyncio.create_task(asyncio.to_thread(guest.terminate))
        await until_said(guest, "SIGTERM: stopping")
        await server.start_again()
        assert await ending == 0
        await asyncio.to_thread(guest.restart)
        history.add(Calm())
        await history.grow(100, of="settled")
        await drained(guest, publisher)
    assert_promises_hold(history)
