"""`python -m bench.management`: measures the lists of the HTTP API on a gateway that is busy.

A gateway with many queues and connections, through which messages pass at a steady pace. Tells how
long a sorted page of queues, the overview and the whole list take, whether messages are lost to
them, and how long a bystander's round trip takes meanwhile: the longest is the longest stall of the
loop, and of whatever else runs on this computer. The same without requests is told beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pika

from bench.brokers import free_ports, running_howdah
from bench.fan_out import bystander, connect, percentiles, publish, subscribe
from bench.processes import cpu_seconds

PAGE: Final = "/api/queues?page=1&page_size=100&sort=messages"
OVERVIEW: Final = "/api/overview"
WHOLE: Final = "/api/queues"
TOPIC: Final = b"bench/management"
FRAME: Final = publish(TOPIC, 0)
STEP_SECONDS: Final = 0.005
PAUSE_SECONDS: Final = 0.1  # between two requests: one console that refreshes often


@dataclass(frozen=True, slots=True)
class Gateway:
    pid: int
    ports: dict[str, int]


# --- messages, in a process of their own


def load(port: int, rate: int) -> None:
    """Publishes at that rate to one subscriber, and answers each byte on standard input with the
    numbers of messages sent and received."""
    subscriber, publisher = connect(port, "bench-subscriber"), connect(port, "bench-publisher")
    subscribe(subscriber, TOPIC)
    subscriber.setblocking(False)
    poll = select.epoll()
    poll.register(subscriber, select.EPOLLIN)
    poll.register(0, select.EPOLLIN)
    print("ready", flush=True)
    began, sent, received = time.monotonic(), 0, 0
    while True:
        due = int((time.monotonic() - began) * rate) - sent
        if due > 0:
            publisher.sendall(FRAME * min(due, rate // 20))
            sent += min(due, rate // 20)
        for number, _ in poll.poll(STEP_SECONDS):
            if number != 0:
                received += len(subscriber.recv(1 << 20))
            elif os.read(0, 1):
                print(sent, received // len(FRAME), flush=True)
            else:
                return


class Load:
    """The process of publisher and subscriber."""

    def __init__(self, port: int, rate: int) -> None:
        command = [sys.executable, "-m", "bench.management", "--load", str(port), str(rate)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def received(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        return int(self._line().split()[1])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


# --- the gateway


@contextmanager
def gateway(queues: int, connections: int) -> Iterator[Gateway]:
    """Runs a gateway with so many queues, some of them with messages, and idle connections."""
    names = ("mqtt", "amqp", "management")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        pid = stack.enter_context(running_howdah(Path(folder), ports))
        fill(ports["amqp"], queues)
        for number in range(connections):
            stack.enter_context(contextlib.closing(connect(ports["mqtt"], f"idle-{number}")))
        yield Gateway(pid, ports)


def fill(port: int, queues: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    for number in range(queues):
        name = f"bench.{number:06}"
        channel.queue_declare(name, durable=False)
        for _ in range(number % 7):
            channel.basic_publish("", name, b"x")
    connection.close()


# --- requests


def asked(port: int, path: str) -> tuple[float, int]:
    """Returns the milliseconds that a request takes, and the bytes of its answer."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        began = time.perf_counter()
        client.request("GET", path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        answer = client.getresponse()
        body = answer.read()
        took = (time.perf_counter() - began) * 1000
    finally:
        client.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {json.loads(body)}")
    return took, len(body)


def measured(
    what: str, running: Gateway, flow: Load, seconds: float, ask: Callable[[], None]
) -> float:
    """Asks again and again for so long, tells what that did to messages, and returns their rate."""
    waits: list[float] = []
    with bystander(running.ports["mqtt"], waits):
        began, before, cpu = time.monotonic(), flow.received(), cpu_seconds(running.pid)
        while time.monotonic() - began < seconds:
            ask()
            time.sleep(PAUSE_SECONDS)
        took, count = time.monotonic() - began, flow.received() - before
        cpu = cpu_seconds(running.pid) - cpu
    share = f"{cpu / took:4.0%} of a core"
    print(f"  {what:12} {count / took:9,.0f} messages/s  {share}  a bystander {percentiles(waits)}")
    return count / took


def measure(running: Gateway, rate: int, seconds: float, paths: list[str]) -> None:
    port, flow = running.ports["management"], Load(running.ports["mqtt"], rate)
    try:
        time.sleep(1.0)
        quiet = measured("no requests", running, flow, seconds, lambda: None)
        for path in paths:
            took: list[float] = []
            sizes: set[int] = set()

            def ask(path: str = path, took: list[float] = took, sizes: set[int] = sizes) -> None:
                milliseconds, size = asked(port, path)
                took.append(milliseconds)
                sizes.add(size)

            print(path)
            loaded = measured("requests", running, flow, seconds, ask)
            if len(took) < 2:
                took *= 2
            print(f"  {len(took)} answers of {max(sizes):,} bytes: {percentiles(took)}")
            print(f"  median {statistics.median(took):.1f} ms, {loaded / quiet - 1:+.1%} messages")
    finally:
        flow.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.management", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=100_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind of request")
    parser.add_argument("--paths", nargs="+", default=[PAGE, OVERVIEW, WHOLE])
    parser.add_argument("--load", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.load:
        load(*arguments.load)
        return 0
    with gateway(arguments.queues, arguments.connections) as running:
        print(
            f"{arguments.queues:,} queues, {arguments.connections:,} connections, "
            f"{arguments.rate:,} messages/s of 100 bytes"
        )
        measure(running, arguments.rate, arguments.seconds, arguments.paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
