"""Browsers are loopback, whatever page they show: pages and names that are not ours are refused."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.support.gateway_process import GatewayProcess, running
from tests.support.until import PATIENCE_SECONDS

MQTT = [Subprotocol("mqtt")]


@pytest.fixture(scope="module")
def allowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway behind a proxy: its pages and names are listed."""
    folder: Path = tmp_path_factory.mktemp("allowing")
    listeners = {
        "mqtt_ws": {"port": 0, "allowed_origins": ["https://app.example"]},
        "management": {"port": 0, "allowed_hosts": ["gateway.example"]},
    }
    with running(folder / "gateway", {"listeners": listeners}) as gateway:
        yield gateway


async def is_upgraded(gateway: GatewayProcess, origin: str | None) -> bool:
    said = None if origin is None else Origin(origin)
    url = f"ws://127.0.0.1:{gateway.ports['mqtt_ws']}/mqtt"
    try:
        async with connect(url, subprotocols=MQTT, origin=said):
            return True
    except InvalidStatus as refused:
        answer = refused.response
    assert answer.status_code == 403
    assert b"allowed_origins" in (answer.body or b"")
    return False


def status(gateway: GatewayProcess, path: str, host: str) -> int:
    connection = http.client.HTTPConnection(
        "127.0.0.1", gateway.ports["management"], timeout=PATIENCE_SECONDS
    )
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


async def test_a_strangers_page_cannot_open_a_websocket(shared_gateway: GatewayProcess) -> None:
    assert not await is_upgraded(shared_gateway, "https://evil.example")
    assert not await is_upgraded(shared_gateway, "null")
    assert await is_upgraded(shared_gateway, "http://localhost:3000")
    assert await is_upgraded(shared_gateway, None)


async def test_a_listed_page_can(allowing: GatewayProcess) -> None:
    assert await is_upgraded(allowing, "https://app.example")
    assert not await is_upgraded(allowing, "https://evil.example")


@pytest.mark.parametrize("path", ["/metrics", "/api/queues", "/nothing"])
def test_a_name_that_was_pointed_here_is_misdirected(
    shared_gateway: GatewayProcess, path: str
) -> None:
    assert status(shared_gateway, path, "evil.example:15672") == 421
    assert status(shared_gateway, path, "localhost:15672") in (200, 404)


def test_health_is_told_by_any_name(shared_gateway: GatewayProcess) -> None:
    assert status(shared_gateway, "/health/live", "evil.example") == 200


def test_a_listed_name_is_ours(allowing: GatewayProcess) -> None:
    assert status(allowing, "/metrics", "gateway.example:443") == 200
    assert status(allowing, "/metrics", "evil.example") == 421
