"""One gateway owns a database: who comes second, who takes over, and who has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_core.store.nodes.rows import NodeTerms
from queue_core.store.ownership import Login, take_ownership
from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpPublisher
from tests.faults.history import Calm, Fault, History
from tests.faults.server import Server
from tests.faults.wire import wire_to
from tests.support.gateway_process import GatewayProcess
from tests.support.health import until_ready


@pytest.fixture
def second(tmp_path: Path, server: Server, database: str) -> Iterator[GatewayProcess]:
    """Another gateway for the same database, not started."""
    settings = {"database": {"url": server.database(database)}}
    process = GatewayProcess(tmp_path / "second", settings)
    try:
        yield process
    finally:
        process.kill()


class Address:
    """Where the clients find their gateway; it can move."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway

    def url(self) -> str:
        return self.gateway.amqp_url()


async def test_a_second_gateway_is_sent_away_and_the_first_does_not_notice(
    guest: GatewayProcess, second: GatewayProcess, history: History
) -> None:
    publisher = AmqpPublisher(history, "p", guest.amqp_url, "orders")
    consumer = AmqpConsumer(history, "c", guest.amqp_url, "orders")
    async with acting(publisher, consumer):
        await history.grow(100, of="settled")
        second.spawn()
        assert await asyncio.to_thread(second.wait) == 1
        await history.grow(100, of="settled")
        await drained(guest, publisher)
        assert (publisher.lives, consumer.lives) == (1, 1)
    assert_promises_hold(history)
    assert "another gateway" in second.log()
    assert f"pid {guest.pid}" in second.log()
    assert "stop it, or give this one a database of its own" in second.log()


async def test_a_second_gateway_takes_over_when_the_first_was_killed(
    guest: GatewayProcess, second: GatewayProcess, history: History
) -> None:
    address = Address(guest)
    publishers = [AmqpPublisher(history, f"p{n}", address.url, "orders") for n in range(2)]
    consumers = [AmqpConsumer(history, f"c{n}", address.url, "orders") for n in range(2)]
    async with acting(*publishers, *consumers):
        await history.grow(300, of="settled")
        history.add(Fault("kill -9 of the first gateway"))
        await asyncio.to_thread(guest.kill)
        history.add(Fault("it is gone"))
        await asyncio.to_thread(second.start)
        address.gateway = second
        history.add(Calm())
        await history.grow(300, of="settled")
        await drained(second, *publishers)
    assert_promises_hold(history)


async def test_a_gateway_that_was_cut_off_stops_when_another_has_taken_over(
    tmp_path: Path, server: Server, database: str, second: GatewayProcess, history: History
) -> None:
    async with wire_to(server.database(database)) as wire:
        first = GatewayProcess(tmp_path / "first", {"database": {"url": wire.url}})
        try:
            await asyncio.to_thread(first.start)
            address = Address(first)
            publisher = AmqpPublisher(history, "p", address.url, "orders")
            consumer = AmqpConsumer(history, "c", address.url, "orders")
            async with acting(publisher, consumer):
                await history.grow(100, of="settled")
                history.add(Fault("the first gateway loses its database"))
                wire.go_dead()
                await until_ready(first, 503)
                await asyncio.to_thread(second.start)
                address.gateway = second
                wire.mend()
                assert await asyncio.to_thread(first.wait, 20) == 1
                history.add(Calm())
                await history.grow(100, of="settled")
                await drained(second, publisher)
            assert_promises_hold(history)
            assert "took over this database while this one was cut off" in first.log()
        finally:
            first.kill()


async def test_the_lock_of_a_machine_that_vanished_is_free_within_half_a_minute(
    server: Server, database: str
) -> None:
    _, connection = await take_ownership(Login(server.database(database), NodeTerms("here", 1024)))
    try:
        found = [
            int(await connection.fetchval("SELECT setting FROM pg_settings WHERE name = $1", name))
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
        ]
        idle, interval, count = found
        assert 0 < idle + interval * count <= 30
        # and for one that vanished in the middle of an answer
        timeout = "SELECT setting::int FROM pg_settings WHERE name = 'tcp_user_timeout'"
        assert 0 < await connection.fetchval(timeout) <= 30_000
    finally:
        await connection.close()


async def test_an_idle_gateway_takes_its_database_back_at_once_when_its_session_is_ended(
    guest: GatewayProcess, second: GatewayProcess, server: Server, database: str
) -> None:
    for _ in range(3):
        await server.cut(database)
        await until_ready(guest, 200)
    second.spawn()
    assert await asyncio.to_thread(second.wait) == 1
    assert "another gateway" in second.log()
    assert guest.is_running
    assert await asyncio.to_thread(guest.terminate) == 0
