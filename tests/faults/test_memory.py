"""Loads that once took gigabytes: the gateway's resident memory stays near its mark, and what it
took is given back when the clients are gone."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from tests.support.gateway_process import GatewayProcess, running
from tests.support.until import PATIENCE_SECONDS, wait_until

MIB: Final = 1024 * 1024
MARK: Final = 192 * MIB
# What a load may take beyond what the gateway had: the mark, a fourth above it, and as much again
# for copies that pass through sockets, statements and Python's own objects.
MOST: Final = 2 * (MARK + MARK // 4)
KEPT: Final = 96 * MIB  # and what may be left of it
LIMITS: Final[dict[str, Any]] = {"memory": {"high_watermark": "192MiB"}}


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(tmp_path_factory.mktemp("bounded"), LIMITS) as gateway:
        yield gateway


def status(gateway: GatewayProcess, name: str) -> int:
    """Bytes, as the kernel counts them."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name}")


def transactions(gateway: GatewayProcess, stack: ExitStack) -> None:
    """40 of 57 MiB on one connection, of which it may have only some."""
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.ports["amqp"], heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    stack.callback(_close, connection)
    body = bytes(MIB)
    for _ in range(40):
        channel = connection.channel()
        channel.queue_declare("transactions", durable=True)
        channel.tx_select()
        with suppress(pika.exceptions.ChannelClosedByBroker):  # as it should be
            for _ in range(57):
                channel.basic_publish("", "transactions", body)
            channel.basic_qos(prefetch_count=1)


def _close(connection: pika.BlockingConnection) -> None:
    with suppress(pika.exceptions.AMQPError):
        connection.close()


def unfinished_publishes(gateway: GatewayProcess, stack: ExitStack) -> None:
    """100 of 15 MB, all but their last bytes."""
    publish = _publish(15_000_000)[:-10]
    for number in range(100):
        client = _mqtt(gateway, f"unfinished-{number}")
        stack.callback(client.close)
        client.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while sent < len(publish):
                sent += client.send(publish[sent:])


def deaf_subscribers(gateway: GatewayProcess, stack: ExitStack) -> None:
    """40 that read nothing, and 10 messages of 15 MB for each."""
    for number in range(40):
        client = _mqtt(gateway, f"deaf-{number}", 8192)
        stack.callback(client.close)
        client.sendall(b"\x82\x06\0\x01\0\x01t\x01")
        assert client.recv(5) == b"\x90\x03\0\x01\x01"
    publisher = _mqtt(gateway, "publisher")
    stack.callback(publisher.close)
    publisher.settimeout(2.0)
    with suppress(OSError):  # it waits, or is refused, sooner or later
        for _ in range(10):
            publisher.sendall(_publish(15_000_000))
            publisher.recv(4)


def _mqtt(gateway: GatewayProcess, name: str, room: int | None = None) -> socket.socket:
    made = socket.socket()
    if room is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    made.settimeout(PATIENCE_SECONDS)
    made.connect(("127.0.0.1", gateway.ports["mqtt"]))
    client_id = struct.pack(">H", len(name)) + name.encode()
    made.sendall(b"\x10" + bytes((10 + len(client_id),)) + b"\0\x04MQTT\x04\x02\0\0" + client_id)
    assert made.recv(4) == b"\x20\x02\0\0"
    return made


def _publish(size: int) -> bytes:
    """A QoS 1 PUBLISH of so many bytes, to the topic `t`."""
    left, octets = size, b""
    while left:
        octets += bytes((left & 0x7F | (0x80 if left >> 7 else 0),))
        left >>= 7
    return b"\x32" + octets + b"\0\x01t\0\x01" + bytes(size - 5)


@pytest.mark.parametrize("load", [transactions, unfinished_publishes, deaf_subscribers])
def test_a_load_takes_no_more_memory_than_the_mark_allows_and_gives_it_back(
    bounded: GatewayProcess, load: Callable[[GatewayProcess, ExitStack], None]
) -> None:
    Path(f"/proc/{bounded.pid}/clear_refs").write_text("5")  # the peak is counted anew
    before = status(bounded, "VmRSS")
    with ExitStack() as stack:
        load(bounded, stack)
        assert status(bounded, "VmHWM") - before < MOST
    wait_until(lambda: status(bounded, "VmRSS") - before < KEPT)
