"""The disk under PostgreSQL is full, and then it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.actors import acting, assert_promises_hold, drained
from tests.faults.amqp_clients import AmqpConsumer, AmqpEcho, AmqpPublisher
from tests.faults.history import History
from tests.faults.small_disk import SmallDisk, small_disk
from tests.support.gateway_process import GatewayProcess
from tests.support.health import readiness, until_ready

POSTGRES = {"shared_buffers": "32MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", megabytes=256) as disk:
        yield disk


@pytest.fixture
def cramped(tmp_path: Path, disk: SmallDisk) -> Iterator[GatewayProcess]:
    """A gateway whose own PostgreSQL lives on it."""
    settings = {"data_dir": str(disk.path / "data"), "postgres": {"settings": POSTGRES}}
    process = GatewayProcess(tmp_path / "gateway", settings)
    try:
        yield process.start()
    finally:
        process.kill()


async def test_a_full_disk_makes_publishers_wait_and_loses_nothing(
    cramped: GatewayProcess, disk: SmallDisk, history: History
) -> None:
    url = cramped.amqp_url
    publishers = [AmqpPublisher(history, f"p{n}", url, "orders", size=4000) for n in range(2)]
    consumer = AmqpConsumer(history, "c", url, "orders")
    echo = AmqpEcho(history, "echo", url)
    async with acting(*publishers, consumer, echo):
        await history.grow(200, of="settled")
        disk.fill()
        await until_ready(cramped, 503)
        for _ in range(10):
            await echo.goes_on(20)
            assert (await readiness(cramped))[0] == 503
        disk.free()
        await until_ready(cramped)
        await history.grow(200, of="settled")
        await drained(cramped, *publishers)
        assert all(actor.lives == 1 for actor in (*publishers, consumer, echo))
    assert_promises_hold(history)
    assert "No space left on device" in cramped.log()


async def test_a_gateway_killed_on_a_full_disk_says_so_and_starts_when_there_is_room(
    cramped: GatewayProcess, disk: SmallDisk, history: History
) -> None:
    publisher = AmqpPublisher(history, "p", cramped.amqp_url, "orders", size=4000)
    async with acting(publisher):
        await history.grow(200)
        disk.fill()
        await until_ready(cramped, 503)
        publisher.ask_to_stop()
        await asyncio.to_thread(cramped.kill)
    cramped.spawn()
    code = await asyncio.to_thread(cramped.wait, 60)
    assert code == 1
    assert "the disk is full" in cramped.log()
    disk.free()
    await asyncio.to_thread(cramped.restart)
    async with acting(AmqpConsumer(history, "c", cramped.amqp_url, "orders")):
        await drained(cramped)
    assert_promises_hold(history)
