"""A cluster in fault tests: several gateways on one PostgreSQL, each behind a wire of its own, and
clients that know all of their addresses.

Answers for starting and ending the nodes, for which of them serves, and for what becomes of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from queue_core.store.primary import host_urls
from tests.faults.history import Calm, Delivered, Fault, History
from tests.faults.wire import Wire, wire_to
from tests.support.gateway_process import GatewayProcess
from tests.support.health import readiness
from tests.support.postgres import fetch_value
from tests.support.until import until

NAMES: Final = ("north", "south", "west")
TAKEOVER_SECONDS: Final = 60.0  # patience with a busy machine, not a promise


class Node:
    """One gateway of the cluster, and its wires to PostgreSQL."""

    def __init__(self, name: str, folder: Path, wires: list[Wire], clock: str | None) -> None:
        self.name = name
        self.wires = wires  # one for each host of the database's URL
        environment = {} if clock is None else faked_clock(clock)
        cluster = {"enabled": True, "name": name}
        settings = {"database": {"url": joined(wires)}, "cluster": cluster}
        self.gateway = GatewayProcess(folder / name, settings, environment)

    async def is_ready(self) -> bool:
        """Tells if it serves, by its own word."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError, KeyError):
            async with asyncio.timeout(1):
                return (await readiness(self.gateway))[0] == 200
        return False

    def stop(self) -> None:
        os.kill(self.gateway.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.gateway.pid, signal.SIGCONT)


def joined(wires: list[Wire]) -> str:
    """The URL of a database that all of them lead to."""
    first = urlsplit(wires[0].url)
    hosts = ",".join(wire.url.rpartition("@")[2].partition("/")[0] for wire in wires)
    return first._replace(netloc=f"{first.username}:{first.password}@{hosts}").geturl()


def faked_clock(offset: str) -> dict[str, str]:
    """The environment of a process whose wall clock is so far off; its other clocks are right."""
    return {
        "LD_PRELOAD": str(LIBFAKETIME),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


LIBFAKETIME: Final = next(
    iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), Path("libfaketime.so.1")
)


class Nodes:
    """All nodes of one cluster. `history` learns of each fault, and of its end."""

    def __init__(self, nodes: list[Node], history: History, url: str) -> None:
        self.nodes = nodes
        self.history = history
        self.url = url  # of the database, past all wires

    def ports(self, listener: str) -> Callable[[], int]:
        """The addresses that a client knows: each call gives the next one, all nodes in turn."""
        turns = cycle([node.gateway.chosen_ports[listener] for node in self.nodes])
        return lambda: next(turns)

    def urls(self) -> Callable[[], str]:
        port = self.ports("amqp")
        return lambda: f"amqp://guest:guest@127.0.0.1:{port()}/%2F"

    async def serving(self, *but: Node) -> Node:
        """Returns the node that serves, when there is one beside those."""
        found: list[Node] = []

        async def is_found() -> bool:
            found[:] = [n for n in self.nodes if n not in but and await n.is_ready()]
            return len(found) == 1

        await until(is_found, lambda: f"one node serves\n{self.said()}", TAKEOVER_SECONDS)
        return found[0]

    def said(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.gateway.said()}" for node in self.nodes)

    # --- what becomes of them

    async def kill(self) -> Node:
        """kill -9 of the node that serves; returns the one that does afterwards."""
        node = await self.serving()
        self.history.add(Fault(f"kill -9 of {node.name}"))
        await asyncio.to_thread(node.gateway.kill)
        return await self._taken_over(node)

    async def start_again(self) -> None:
        """Whoever looks after the nodes starts those that are dead; they stand by."""
        for node in self.nodes:
            if not node.gateway.is_running:
                node.gateway.spawn()
                await standing_by(node)

    async def stop_for(self, seconds: float) -> Node:
        """SIGSTOP of the node that serves, for so long; returns the one that serves then."""
        node = await self.serving()
        self.history.add(Fault(f"SIGSTOP of {node.name}"))
        node.stop()
        try:
            await asyncio.sleep(seconds)  # the fault itself
        finally:
            node.go_on()
        self.history.add(Fault(f"SIGCONT of {node.name}"))
        found = await self.serving()
        self.history.add(Calm())
        return found

    async def cut(self) -> Node:
        """The node that serves loses PostgreSQL, and nobody tells it; mended when another one
        serves."""
        node = await self.serving()
        self.history.add(Fault(f"{node.name} is cut off from PostgreSQL"))
        for wire in node.wires:
            wire.go_dead()
        found = await self._taken_over(node)
        for wire in node.wires:
            wire.mend()
        return found

    async def _taken_over(self, node: Node) -> Node:
        self.history.add(Fault(f"{node.name} is gone"))
        found = await self.serving(node)
        self.history.add(Calm())
        return found


async def standing_by(node: Node) -> None:
    def is_so() -> bool:
        return "standby\n" in node.gateway.said()

    await until(is_so, lambda: f"{node.name} stands by\n{node.gateway.said()}")


@asynccontextmanager
async def cluster(
    folder: Path,
    url: str,
    history: History,
    *,
    count: int = 2,
    clocks: Mapping[str, str] | None = None,
) -> AsyncIterator[Nodes]:
    """So many nodes: the first serves, the others stand by. `clocks` says how far off each is."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for name in NAMES[:count]:
            wires = [await stack.enter_async_context(wire_to(each)) for each in host_urls(url)]
            node = Node(name, folder, wires, (clocks or {}).get(name))
            stack.callback(node.gateway.kill)
            nodes.append(node)
        await asyncio.to_thread(nodes[0].gateway.start)
        for node in nodes[1:]:
            node.gateway.spawn()
            await standing_by(node)
        yield Nodes(nodes, history, url)


# --- what must hold after each history


def assert_one_node_hands_out(nodes: Nodes) -> None:
    """Between two troubles, all deliveries come from one node."""
    names = {
        str(port): node.name for node in nodes.nodes for port in node.gateway.chosen_ports.values()
    }
    handing_out: set[str] = set()
    is_trouble = False
    for event in nodes.history.events:
        match event:
            case Fault():
                is_trouble = True
            case Calm():
                is_trouble = False
                handing_out = set()
            case Delivered(_, connection) if not is_trouble:
                handing_out.add(names[connection.rpartition("@")[2]])
                assert len(handing_out) == 1, f"{handing_out} hand out at the same time"


TWICE: Final = """
    SELECT count(*) FROM (
        SELECT FROM howdah.message GROUP BY queue_id, "offset" HAVING count(*) > 1) AS twice
"""


def assert_no_offset_twice(url: str) -> None:
    """Over all segments: the key of the table holds in each of them alone."""
    assert fetch_value(url, TWICE) == 0
