"""AMQP 0.9.1 with clients of other makes: Debian's amqp-tools (C) and amqplib (JavaScript)."""

from __future__ import annotations

import shutil
import subprocess
import threading

import pytest

from tests.interop.node_clients import run_script
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

SECONDS = 60

needs_tools = pytest.mark.skipif(
    shutil.which("amqp-consume") is None, reason="Debian's package amqp-tools is not installed"
)


def tool(
    name: str, url: str, *arguments: str, words: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [name, "--url", url, *arguments],
        input=words,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


@needs_tools
def test_amqp_tools_declare_publish_get_and_delete(shared_gateway: GatewayProcess) -> None:
    url, queue = shared_gateway.amqp_url(), fresh("tools")
    made = tool("amqp-declare-queue", url, "--queue", queue, "--durable")
    assert (made.returncode, made.stdout.decode().strip()) == (0, queue)
    sent = tool("amqp-publish", url, "--routing-key", queue, "--persistent", words=b"from C")
    assert sent.returncode == 0
    got = tool("amqp-get", url, "--queue", queue)
    assert (got.returncode, got.stdout) == (0, b"from C")
    assert tool("amqp-get", url, "--queue", queue).returncode == 2  # empty
    assert tool("amqp-delete-queue", url, "--queue", queue).returncode == 0


@needs_tools
def test_amqp_consume_hands_messages_to_a_command(shared_gateway: GatewayProcess) -> None:
    url, queue = shared_gateway.amqp_url(), fresh("tools-consume")
    tool("amqp-declare-queue", url, "--queue", queue, "--durable")
    for number in range(3):
        tool("amqp-publish", url, "--routing-key", queue, words=str(number).encode())
    consumed = tool("amqp-consume", url, "--queue", queue, "--count", "3", "cat")
    assert (consumed.returncode, consumed.stdout) == (0, b"012")


def test_amqplib_confirms_consumes_returns_and_sees_errors(shared_gateway: GatewayProcess) -> None:
    ran = run_script("amqplib.js", shared_gateway.amqp_url(), fresh("amqplib"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "product Howdah",
        "confirmed 100",
        "received 100 in order",
        "returned 312 NO_ROUTE",
        "channel error 404",
        "closed",
    ]


@needs_tools
def test_a_command_line_reader_and_writer_meet_on_a_topic(shared_gateway: GatewayProcess) -> None:
    url, exchange = shared_gateway.amqp_url(), "amq.topic"
    prefix = fresh("cli")
    queue = fresh("tools-topic")
    outputs: list[bytes] = []
    reader = threading.Thread(
        target=lambda: outputs.append(
            tool(
                "amqp-consume",
                url,
                "--queue",
                queue,
                "--exchange",
                exchange,
                "--routing-key",
                f"{prefix}.#",
                "--count",
                "1",
                "cat",
            ).stdout
        )
    )
    reader.start()
    while not outputs and reader.is_alive():
        tool(
            "amqp-publish", url, "--exchange", exchange, "--routing-key", f"{prefix}.a", words=b"hi"
        )
    reader.join(SECONDS)
    assert outputs == [b"hi"]
