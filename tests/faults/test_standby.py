"""Two gateways on one database: one serves, the other stands by and takes over, whatever becomes of
the first."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import aiormq
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from tests.faults.server import Server
from tests.faults.wire import wire_to
from tests.support.gateway_process import COMMAND, GatewayProcess, clean_environment
from tests.support.health import TIMEOUT, readiness, until_said
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


async def until_answers(gateway: GatewayProcess, status: int, words: str = "") -> str:
    """Waits for that status and these words of /health/ready from a node whose listeners close and
    open again."""
    found: tuple[int, str] = (0, "")

    async def is_so() -> bool:
        nonlocal found
        with suppress(aiohttp.ClientError):
            found = await readiness(gateway)
        return found[0] == status and words in found[1]

    await until(is_so, lambda: f"readiness is {status}, not {found}\n{gateway.said()}")
    return found[1]


async def stands_by(gateway: GatewayProcess) -> None:
    await until(lambda: "management" in gateway.ports, lambda: gateway.said())
    words = await until_answers(gateway, 503, "node 'first' serves")
    assert '"role":"standby"' in words


async def test_a_standby_says_so_has_no_open_door_and_takes_over_from_a_node_that_is_killed(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    first, second = pair
    status, words = await readiness(first)
    assert (status, '"role":"active"' in words) == (200, True)
    await stands_by(second)
    assert "amqp" not in second.ports
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        session.get(second.http_url("/api/queues/%2F")) as answer,
    ):
        refused = await answer.json()
        assert (answer.status, refused["error"]) == (503, "unavailable")
        assert "node 'first' serves" in refused["reason"]
    await publish(first, b"1", b"2")
    first.kill()
    await asyncio.to_thread(second.wait_until_ready)
    await publish(second, b"3")
    assert [body for body, _ in await drain(second)] == [b"1", b"2", b"3"]
    assert "fenced node" in second.log()


async def test_a_standby_keeps_to_the_rules_of_its_management_listener(
    tmp_path: Path, server: Server, database: str
) -> None:
    url = server.database(database)
    first = node(tmp_path, url, "first")
    settings = {
        "database": {"url": url},
        "cluster": {"enabled": True, "name": "second"},
        "listeners": {"management": {"metrics_login": True}},
    }
    second = GatewayProcess(tmp_path / "second", settings)
    try:
        first.start()
        second.spawn()
        await stands_by(second)
        async with aiohttp.ClientSession() as session:
            async with session.get(second.http_url("/metrics")) as answer:
                assert (answer.status, "howdah_" in await answer.text()) == (503, False)
            stranger = {"Host": "evil.example"}
            async with session.get(second.http_url("/metrics"), headers=stranger) as answer:
                assert answer.status == 421
            async with session.get(second.http_url("/health/live"), headers=stranger) as answer:
                assert answer.status == 200
    finally:
        first.kill()
        second.kill()


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
    await until_answers(first, 503, "node 'second' serves")
    await publish(second, b"2")
    assert [body for body, _ in await drain(second)] == [b"1", b"2"]
    await publish(second, b"3")  # what was acknowledged before is in this commit, too
    second.kill()
    await until_answers(first, 200)
    assert [body for body, _ in await drain(first)] == [b"3"]


async def test_a_node_that_is_drained_hands_over_and_stands_by(
    pair: tuple[GatewayProcess, GatewayProcess],
) -> None:
    first, second = pair
    await stands_by(second)
    await publish(first, b"1")
    done = await asyncio.to_thread(command, first, "node", "drain", "first")
    assert (done.returncode, done.stdout) == (
        0,
        "node 'first' has handed over: node 'second' serves\n",
    )
    await asyncio.to_thread(second.wait_until_ready)
    assert await drain(second) == [(b"1", False)]
    await until_answers(first, 503, "node 'second' serves")
    listed = await asyncio.to_thread(command, first, "node", "list", "--json")
    found = {each["name"]: each["role"] for each in json.loads(listed.stdout)}
    assert found == {"first": "standby", "second": "active"}
    refused = await asyncio.to_thread(command, first, "node", "drain", "first")
    assert (refused.returncode, "stands by: it has nothing" in refused.stderr) == (1, True)


def command(gateway: GatewayProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `howdah` with the configuration of that gateway."""
    return subprocess.run(
        [*COMMAND, *words, "--config", str(gateway.config_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=clean_environment(),
    )


async def test_a_node_that_is_cut_off_from_the_database_is_replaced_and_comes_back(
    tmp_path: Path, server: Server, database: str
) -> None:
    url = server.database(database)
    async with wire_to(url) as wire:
        cut = node(tmp_path, wire.url, "first")
        second = node(tmp_path, url, "second")
        try:
            await asyncio.to_thread(cut.start)
            second.spawn()
            await stands_by(second)
            await publish(cut, b"1")
            wire.go_dead()
            await asyncio.to_thread(second.wait_until_ready)
            await publish(second, b"2")
            assert [body for body, _ in await drain(second)] == [b"1", b"2"]
            wire.mend()
            await until_answers(cut, 503, "node 'second' serves")
        finally:
            cut.kill()
            second.kill()


async def test_a_standby_that_refuses_says_so_in_each_protocol(
    tmp_path: Path, server: Server, database: str
) -> None:
    url = server.database(database)
    first = node(tmp_path, url, "first")
    second = node(tmp_path, url, "second", standby_listeners="refuse")
    try:
        first.start()
        second.spawn()
        await stands_by(second)
        await until(lambda: {"mqtt", "mqtt_ws", "amqp"} <= second.ports.keys())
        with pytest.raises(aiormq.exceptions.AMQPError, match="node 'first' serves"):
            await publish(second, b"1")
        assert await connack(second.ports["mqtt"], version=4) == b"\x20\x02\x00\x03"
        assert (await connack(second.ports["mqtt"], version=5))[3] == 0x88
        assert b"503 Service Unavailable" in await told(
            second.ports["mqtt_ws"], b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        with pytest.raises(ConnectionException):
            await asyncio.to_thread(BlockingConnection, f"127.0.0.1:{second.ports['amqp']}")
        await publish(first, b"1")  # which has taken no notice
    finally:
        first.kill()
        second.kill()


async def test_a_standby_that_could_not_serve_says_so_before_it_is_needed(
    tmp_path: Path, pair: tuple[GatewayProcess, GatewayProcess], server: Server, database: str
) -> None:
    cluster = {"enabled": True, "name": "open"}
    listeners = {"mqtt": {"host": "0.0.0.0", "port": 0}}
    settings = {"database": {"url": server.database(database)}, "cluster": cluster}
    third = GatewayProcess(tmp_path / "open", {**settings, "listeners": listeners})
    try:
        third.spawn()
        assert await asyncio.to_thread(third.wait) != 0
        assert "listeners.mqtt.host: 0.0.0.0 is reachable from other machines" in third.said()
        assert "standby" not in third.said().splitlines()
    finally:
        third.kill()


async def told(port: int, words: bytes) -> bytes:
    """Everything that a listener answers to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    answer = await reader.read()
    writer.close()
    return answer


async def connack(port: int, version: int) -> bytes:
    properties = b"\x00" if version == 5 else b""
    body = b"\x00\x04MQTT" + bytes((version, 2, 0, 60)) + properties + b"\x00\x01c"
    return await told(port, bytes((0x10, len(body))) + body)
