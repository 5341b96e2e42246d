"""PostgreSQL dies, freezes or hangs up while the gateway lives.

No fault is noted in these histories: the gateway and its connections live on, so nothing may come
twice, and nothing may be flagged as if it did.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.faults.actors import Actor, acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpEcho, AmqpPublisher
from tests.faults.crashes import crash
from tests.faults.history import History
from tests.faults.server import Server
from tests.faults.wire import Direction, Wire, wire_to
from tests.support.gateway_process import GatewayProcess
from tests.support.health import readiness, until_ready


class Scene:
    """Two publishers, two consumers, and one whose messages never touch the disk."""

    def __init__(self, gateway: GatewayProcess, history: History) -> None:
        self.gateway = gateway
        self.history = history
        url = gateway.amqp_url
        self.publishers = [AmqpPublisher(history, f"p{n}", url, "orders") for n in range(2)]
        self.consumers = [AmqpConsumer(history, f"c{n}", url, "orders") for n in range(2)]
        self.echo = AmqpEcho(history, "echo", url)

    @property
    def actors(self) -> list[Actor]:
        return [*self.publishers, *self.consumers, self.echo]

    async def nothing_is_confirmed(self) -> None:
        """Messages in memory come and go while no confirm of a durable one does. The first rounds
        see to it that what the gateway had sent before has been read."""
        await self.echo.goes_on(20)
        confirmed = len(self.history.confirmed)
        await self.echo.goes_on(50)
        assert len(self.history.confirmed) == confirmed

    async def end(self) -> None:
        """All is drained, and nobody ever had to connect again."""
        await drained(self.gateway, *self.publishers)
        await self.echo.goes_on()
        assert all(actor.lives == 1 for actor in self.actors), self.gateway.said()


@pytest.fixture
def scene(guest: GatewayProcess, history: History) -> Scene:
    return Scene(guest, history)


async def test_a_killed_postgresql_makes_durable_messages_wait_and_nothing_else(
    scene: Scene, server: Server, history: History
) -> None:
    async with acting(*scene.actors):
        await history.grow(300, of="settled")
        server.kill()
        words = await until_ready(scene.gateway, 503)
        assert "the database is out of reach" in words
        await scene.nothing_is_confirmed()
        await server.start_again()
        await until_ready(scene.gateway)
        await history.grow(300, of="settled")
        await scene.end()
    assert_promises_hold(history)
    assert "nothing can be written" in scene.gateway.log()
    assert "database is back" in scene.gateway.log()


async def test_crashes_of_postgresql_in_quick_succession_cost_nothing(
    scene: Scene, server: Server, database: str, history: History
) -> None:
    async with acting(*scene.actors):
        for _ in range(4):
            await history.grow(100, of="settled")
            await server.crash(database)
        await history.grow(100, of="settled")
        await scene.end()
    assert_promises_hold(history)
    assert "nothing can be written" in scene.gateway.log()


@pytest.mark.parametrize("direction", list(Direction))
async def test_a_lost_question_is_asked_again_and_a_lost_answer_is_looked_up(
    tmp_path: Path, server: Server, database: str, history: History, direction: Direction
) -> None:
    """Killed in between: what the gateway believes to be stored must be."""
    async with wire_to(server.database(database)) as wire:
        gateway = GatewayProcess(tmp_path / "gateway", {"database": {"url": wire.url}})
        publisher = AmqpPublisher(history, "p", gateway.amqp_url, "orders")
        consumer = AmqpConsumer(history, "c", gateway.amqp_url, "orders", window=5)
        try:
            await asyncio.to_thread(gateway.start)
            async with acting(publisher):
                await break_again_and_again(wire, direction, history, "confirmed")
                await publisher.stop()
            await crash(gateway, history)
            async with acting(consumer):
                await break_again_and_again(wire, direction, history, "settled")
                await crash(gateway, history)
                await drained(gateway)
            assert_promises_hold(history)
        finally:
            gateway.kill()


async def break_again_and_again(
    wire: Wire, direction: Direction, history: History, what: str
) -> None:
    for number in range(8):
        await history.grow(5 + number, of=what)
        wire.break_at(direction)
    await history.grow(5, of=what)


async def test_the_gateway_starts_its_own_postgresql_again(
    gateway: GatewayProcess, history: History
) -> None:
    scene = Scene(gateway, history)
    async with acting(*scene.actors):
        await history.grow(300, of="settled")
        killed = gateway.postgres_pid
        os.kill(killed, signal.SIGKILL)
        await until_ready(gateway, 503)
        await scene.echo.goes_on()
        await until_ready(gateway)
        await history.grow(300, of="settled")
        assert gateway.postgres_pid != killed
        await scene.end()
    assert_promises_hold(history)
    assert "PostgreSQL ended by itself, starting it again" in gateway.log()


async def test_sessions_that_are_ended_again_and_again_cost_nothing(
    scene: Scene, server: Server, database: str, history: History
) -> None:
    async with acting(*scene.actors):
        for _ in range(10):
            await history.grow(100, of="settled")
            while not await server.cut(database):  # it was just about to connect again
                await history.grow(1, of="settled")
        await history.grow(100, of="settled")
        await scene.end()
    assert_promises_hold(history)


async def test_a_frozen_postgresql_is_waited_for(
    scene: Scene, server: Server, history: History
) -> None:
    async with acting(*scene.actors):
        await history.grow(300, of="settled")
        with server.frozen():
            await until_ready(scene.gateway, 503)
            await scene.nothing_is_confirmed()
        await until_ready(scene.gateway)
        await history.grow(300, of="settled")
        await scene.end()
    assert_promises_hold(history)


async def test_a_restarted_postgresql_is_found_again(
    scene: Scene, server: Server, history: History
) -> None:
    async with acting(*scene.actors):
        await history.grow(300, of="settled")
        server.postgres.stop()
        await until_ready(scene.gateway, 503)
        await scene.echo.goes_on()
        await server.postgres.start_beside()
        await until_ready(scene.gateway)
        await history.grow(300, of="settled")
        await scene.end()
    assert_promises_hold(history)
    assert (await readiness(scene.gateway))[0] == 200
