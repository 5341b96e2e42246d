"""Two gateways on one database: one serves, the other stands by and takes over, whatever becomes of
the first."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import aiormq
import pytest

from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess
from tests.support.health import readiness, until_said
from tests.support.until import until

PERSISTENT = aiormq.spec.Basic.Properties(delivery_mode=2)


def node(folder: Path, url: str, name: str, **cluster: Any) -> GatewayProcess:
    settings = {"enabled": True, "name": name, **cluster}
    return GatewayProcess(folder / name, {"database": {"url": url}, "cluster": settings})


@pytest.fixture
def pair(
    tmp_path: Path, server: Server, database: str
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """A node that serves, and one that stands by."""
    url = server.database(database)
    first, second = node(tmp_path, url, "first"), node(tmp_path, url, "second")
    try:
        first.start()
        second.spawn()
        yield first, second
    finally:
        first.kill()
        second.kill()


async def publish(gateway: GatewayProcess, *bodies: bytes) -> None:
    connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{gateway.ports['amqp']}")
    channel = await connection.channel(publisher_confirms=True)
    await channel.queue_declare("q", durable=True)
    for body in bodies:
        await channel.basic_publish(body, routing_key="q", properties=PERSISTENT)
    await connection.close()


async def drain(gateway: GatewayProcess) -> list[tuple[bytes, bool]]:
    connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{gateway.ports['amqp']}")
    channel = await connection.channel()
    found = []
    while True:
        got = await channel.basic_get("q")
        if isinstance(got.delivery, aiormq.spec.Basic.GetEmpty):
            break
        assert got.delivery_tag is not None
        found.append((got.body, bool(got.redelivered)))
        await channel.basic_ack(got.delivery_tag)
    await connection.close()
    return found


async def until_answers(gateway: GatewayProcess, status: int) -> str:
    """Waits for that status of /health/ready from a node whose listeners close and open again."""
    found: tuple[int, str] = (0, "")

    async def is_so() -> bool:
        nonlocal found
        with suppress(aiohttp.ClientError):
            found = await readiness(gateway)
        return found[0] == status

    await until(is_so, lambda: f"readiness is {status}, not {found}\n{gateway.said()}")
    return found[1]


async def stands_by(gateway: GatewayProcess) -> None:
    await until_said(gateway, "joined cluster")
    words = await until_answers(gateway, 503)
    assert '"role":"standby"' in words


async def test_a_standby_says_so_has_no_open_door_and_takes_over_from_a_node_that_is_killed(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    first, second = pair
    status, words = await readiness(first)
    assert (status, '"role":"active"' in words) == (200, True)
    await stands_by(second)
    assert "amqp" not in second.ports
    await publish(first, b"1", b"2")
    first.kill()
    await asyncio.to_thread(second.wait_until_ready)
    await publish(second, b"3")
    assert [body for body, _ in await drain(second)] == [b"1", b"2", b"3"]
    assert "fenced node" in second.log()


async def test_a_node_that_stops_in_order_is_followed_at_once(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    first, second = pair
    await stands_by(second)
    await publish(first, b"1")
    assert await asyncio.to_thread(first.terminate) == 0
    await asyncio.to_thread(second.wait_until_ready)
    assert await drain(second) == [(b"1", False)]
    assert "fenced node" not in second.log()


async def test_a_node_that_was_stopped_for_a_while_comes_back_as_a_standby(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    first, second = pair
    await stands_by(second)
    await publish(first, b"1")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        await asyncio.to_thread(second.wait_until_ready)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    await until_said(first, "starting anew")
    words = await until_answers(first, 503)
    assert "node 'second' serves" in words
    await publish(second, b"2")
    assert [body for body, _ in await drain(second)] == [b"1", b"2"]
    await publish(second, b"3")  # what was acknowledged before is in this commit, too
    second.kill()
    await until_answers(first, 200)
    assert [body for body, _ in await drain(first)] == [b"3"]
