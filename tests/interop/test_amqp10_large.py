"""AMQP 1.0 messages of 50 MiB, where the gateway allows them, with every client."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import test_amqp10_azure as azure
from tests.interop.node_clients import SOURCES, installed
from tests.interop.test_amqp10_c import program
from tests.interop.test_amqp10_reactive import Large
from tests.support.amqp10_client import Connections, content, data
from tests.support.amqp10_reactor import run
from tests.support.gateway_process import GatewayProcess, running
from tests.support.names import fresh

__all__ = ["program"]  # a fixture

SIZE = 50 << 20
LIMIT = "64MiB"
SECONDS = 120
BODY = bytes(number * 31 % 251 for number in range(251)) * (SIZE // 251 + 1)


@pytest.fixture(scope="module")
def roomy_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = {
        "broker": {"max_message_size": LIMIT},
        "storage": {
            "write_buffer_bytes": LIMIT,
            "cache_bytes": "128MiB",
            "segment_bytes": "256MiB",
        },
    }
    with running(tmp_path_factory.mktemp("roomy"), settings) as gateway:
        yield gateway


def test_the_blocking_client(roomy_gateway: GatewayProcess) -> None:
    connections = Connections(roomy_gateway)
    connection, queue, body = connections(), f"queue://{fresh('large')}", BODY[:SIZE]
    connection.create_sender(queue).send(data(body), timeout=SECONDS)
    receiver = connection.create_receiver(queue)
    assert content(receiver) == body
    receiver.accept()
    connections.close()


def test_the_reactive_client(roomy_gateway: GatewayProcess) -> None:
    client = Large(roomy_gateway, f"queue://{fresh('large')}", BODY[:SIZE])
    run(client)
    assert client.is_same


def said(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_rhea(roomy_gateway: GatewayProcess) -> None:
    home = installed()
    shutil.copy(SOURCES / "rhea_links.js", home)
    port = str(roomy_gateway.ports["amqp"])
    command = ["node", "rhea_links.js", "large", port, fresh("large"), str(SIZE)]
    assert said(command, home) == "large true"


def test_c(roomy_gateway: GatewayProcess, program: Path) -> None:
    port = str(roomy_gateway.ports["amqp"])
    command = [str(program), "large", port, f"queue://{fresh('large')}", str(SIZE)]
    assert said(command) == "large 1"


def test_azure(roomy_gateway: GatewayProcess) -> None:
    port, queue = roomy_gateway.ports["amqp"], fresh("large")
    azure.send(port, queue, BODY[:SIZE])
    with azure.receiving(port, queue, 1, max_message_size=SIZE * 2) as receiver:
        receiver.until(lambda: len(receiver.got) == 1)
        assert receiver.bodies() == [BODY[:SIZE]]
