"""`python -m bench.failover`: how long a cluster is away when the node that serves is lost.

Two gateways on one PostgreSQL, 1,000 queues with 100,000 messages. The one that serves is killed,
stopped or cut off from PostgreSQL, and the time from the last confirm before to the first one after
is taken, and the same of deliveries; medians over rounds. One publisher and one consumer knock at
each node all the time, so that no client's own patience is measured.

`--baseline COMMIT` compares messages/s and CPU with that commit instead, turn by turn: without a
cluster, and as its only node.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import aiormq
import aiormq.exceptions
import asyncpg
import uvloop
from aiormq.abc import DeliveredMessage

from bench.brokers import ROOT, free_ports
from bench.cluster_cost import compare
from bench.failover_wire import Wire
from gateway.postgres.server import EmbeddedPostgres

QUEUES: Final = 1000
MESSAGES: Final = 100_000
ROUNDS: Final = 10
PAYLOAD: Final = b"x" * 100
PROBE: Final = "probe"
KNOCK_SECONDS: Final = 0.01
PACE_SECONDS: Final = 0.005  # between two messages: a takeover is measured, not a load
CALM_SECONDS: Final = 2.0  # of traffic between two faults
MOST_SECONDS: Final = 60.0  # that a takeover may take before the run is given up
GONE: Final = (OSError, RuntimeError, aiormq.exceptions.AMQPError, asyncio.CancelledError)
PERSISTENT: Final = aiormq.spec.Basic.Properties(delivery_mode=2)


@dataclass(frozen=True, slots=True)
class Goal:
    """Seconds to the first confirm and to the first delivery."""

    confirm: float
    delivery: float


GOALS: Final = {"kill -9": Goal(1.0, 2.0), "SIGSTOP": Goal(3.0, 3.0), "cut": Goal(3.0, 3.0)}


class Node:
    """One gateway of the cluster, as a process that is started again after each fault."""

    def __init__(self, name: str, folder: Path, wire: Wire) -> None:
        self.name = name
        self.wire = wire
        self.confirms: list[float] = []
        self.deliveries: list[float] = []
        (self._port,) = free_ports(1)
        self._log = folder / f"{name}.log"
        self._config = folder / f"{name}.yaml"
        self._config.write_text(
            f"data_dir: {folder / name}\n"
            f"database: {{url: '{wire.url}'}}\n"
            f"cluster: {{enabled: true, name: {name}}}\n"
            f"listeners: {{amqp: {{port: {self._port}}}, mqtt: null, mqtt_ws: null, "
            "management: null}\n"
        )
        self._process = self._spawned()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port}/"

    def _spawned(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "gateway.main", "serve", "--config", str(self._config)]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def count(self, word: str) -> int:
        """How often it has said that it is ready, or a standby."""
        return self._log.read_text().splitlines().count(word)

    async def said(self, word: str, times: int) -> None:
        end = time.monotonic() + MOST_SECONDS
        while self.count(word) < times:
            if time.monotonic() > end or self._process.poll() is not None:
                raise SystemExit(f"{self.name} is not {word}:\n{self._log.read_text()[-3000:]}")
            await asyncio.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        self._process = self._spawned()


@dataclass
class Cluster:
    """Both nodes, and the clients that knock at them."""

    nodes: list[Node]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def knock(self) -> None:
        for node in self.nodes:
            self.tasks.append(asyncio.create_task(knocking(node, publish)))
            self.tasks.append(asyncio.create_task(knocking(node, consume)))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.kill()


async def knocking(
    node: Node, work: Callable[[aiormq.abc.AbstractConnection, Node], Awaitable[None]]
) -> None:
    """Works on a connection to the node whenever there is one, until the task is cancelled."""
    while True:
        with suppress(*GONE):
            connection = await aiormq.connect(node.url)
            try:
                await work(connection, node)
            finally:
                closing = asyncio.ensure_future(connection.close(timeout=1))
                closing.add_done_callback(lambda done: done.cancelled() or done.exception())
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return
        await asyncio.sleep(KNOCK_SECONDS)


async def publish(connection: aiormq.abc.AbstractConnection, node: Node) -> None:
    """Publishes one message after another, each confirmed."""
    channel = await connection.channel()
    while True:
        await channel.basic_publish(PAYLOAD, routing_key=PROBE, properties=PERSISTENT)
        node.confirms.append(time.monotonic())
        await asyncio.sleep(PACE_SECONDS)


async def consume(connection: aiormq.abc.AbstractConnection, node: Node) -> None:
    channel = await connection.channel()
    await channel.basic_qos(prefetch_count=100)

    async def on_message(message: DeliveredMessage) -> None:
        node.deliveries.append(time.monotonic())
        assert message.delivery_tag is not None
        await channel.basic_ack(message.delivery_tag)

    await channel.basic_consume(PROBE, on_message)
    await connection.closing


# --- faults


async def killed(node: Node) -> None:
    node.kill()


async def stopped(node: Node) -> None:
    node.signal(signal.SIGSTOP)


async def cut_off(node: Node) -> None:
    node.wire.cut()


def started_again(node: Node) -> None:
    node.start_again()


def continued(node: Node) -> None:
    node.signal(signal.SIGCONT)


def mended(node: Node) -> None:
    node.wire.mend()


FAULTS: Final = {
    "kill -9": (killed, started_again),
    "SIGSTOP": (stopped, continued),
    "cut": (cut_off, mended),
}


async def one_round(cluster: Cluster, fault: str) -> tuple[float, float]:
    """Returns the seconds from the last confirm before to the first after, and of deliveries."""
    break_it, mend_it = FAULTS[fault]
    await asyncio.sleep(CALM_SECONDS)
    other, serving = sorted(cluster.nodes, key=lambda node: (node.confirms or [0.0])[-1])
    confirms, deliveries, standbys = (
        len(other.confirms),
        len(other.deliveries),
        serving.count("standby"),
    )
    await break_it(serving)
    end = time.monotonic() + MOST_SECONDS
    while len(other.confirms) == confirms or len(other.deliveries) == deliveries:
        if time.monotonic() > end:
            raise SystemExit(f"{fault}: {other.name} has not taken over after {MOST_SECONDS} s")
        await asyncio.sleep(KNOCK_SECONDS)
    figures = (
        other.confirms[confirms] - serving.confirms[-1],
        other.deliveries[deliveries] - serving.deliveries[-1],
    )
    mend_it(serving)
    await serving.said("standby", standbys + 1)
    return figures


async def fill(url: str, queues: int, messages: int) -> None:
    """Declares the queues, and puts the messages into them."""
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=False)
    for number in range(queues):
        await channel.queue_declare(f"q{number}", durable=True)
    await channel.queue_declare(PROBE, durable=True)
    for number in range(messages):
        key = f"q{number % queues}"
        await channel.basic_publish(PAYLOAD, routing_key=key, properties=PERSISTENT)
    await connection.close()


async def filled(url: str, messages: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        statement = "SELECT count(*) FROM howdah.message"
        while await connection.fetchval(statement) < messages:  # noqa: ASYNC110 - in a database
            await asyncio.sleep(0.5)
    finally:
        await connection.close()


async def measure(arguments: argparse.Namespace, folder: Path, url: str) -> int:
    wires = [await Wire.opened(url), await Wire.opened(url)]
    first = Node("north", folder, wires[0])
    await first.said("ready", 1)
    second = Node("south", folder, wires[1])
    await second.said("standby", 1)
    cluster = Cluster([first, second])
    try:
        await fill(first.url, arguments.queues, arguments.messages)
        await filled(url, arguments.messages)
        cluster.knock()
        print(
            f"{arguments.queues} queues, {arguments.messages} messages, medians of "
            f"{arguments.rounds}; seconds from the last before to the first after"
        )
        return max([await tell(cluster, fault, arguments.rounds) for fault in arguments.faults])
    finally:
        await cluster.end()
        for wire in wires:
            await wire.close()


async def tell(cluster: Cluster, fault: str, rounds: int) -> int:
    """Prints the medians of one fault; returns 1 if they miss the goal."""
    figures = [await one_round(cluster, fault) for _ in range(rounds)]
    confirms, deliveries = zip(*figures, strict=True)
    goal = GOALS[fault]
    is_met = median(confirms) < goal.confirm and median(deliveries) < goal.delivery
    print(
        f"{fault:8} confirm {_spread(confirms)} (goal {goal.confirm:g}), "
        f"delivery {_spread(deliveries)} (goal {goal.delivery:g}): {'met' if is_met else 'MISSED'}",
        flush=True,
    )
    return 0 if is_met else 1


def _spread(values: tuple[float, ...]) -> str:
    return f"{median(values):.2f} [{min(values):.2f} to {max(values):.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--baseline", metavar="COMMIT", help="compare speed with this commit")
    arguments = parser.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # clients of nodes that die
    with tempfile.TemporaryDirectory(prefix="howdah-failover-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "data", settings={"max_connections": "100"}) as server:
            if arguments.baseline:
                return compare(arguments.baseline, arguments.rounds, folder, server.url)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(measure(arguments, folder, server.url))


if __name__ == "__main__":
    sys.exit(main())
