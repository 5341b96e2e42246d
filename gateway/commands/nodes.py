"""`howdah node`: the gateways of a cluster, and the hand-over from one to another."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict

import asyncpg

from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_family,
    add_json,
    seconds,
)
from gateway.commands.database import connected
from gateway.commands.output import print_json, print_table
from gateway.config.keys import Config
from queue_core.store.operator.node_operations import drain_node, list_nodes, successor

LOOK_SECONDS = 0.1


def register(commands: Commands) -> None:
    family = add_family(commands, "node", "gateways of a cluster: who serves, who stands by")
    parser = add_command(
        family,
        "list",
        list_all,
        "the gateways that use the database",
        "Of a cluster one is active, and the others stand by: they take over when it stops, dies, "
        "is cut off from the database, or is drained. A node without a session has ended, or lost "
        "every connection to the database.",
    )
    parser.add_argument("--all", action="store_true", help="also those that are gone")
    add_json(parser)
    parser = add_command(
        family,
        "drain",
        drain,
        "have the active node hand over to a standby",
        "It stops in order: clients are disconnected and come back to the node that takes over, "
        "and nothing is delivered twice. Then it stands by itself, and may be stopped.",
    )
    parser.add_argument("name", help="name of the node (cluster.name)")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait until another node serves (default: 60)",
    )


async def list_all(options: argparse.Namespace, config: Config) -> int:
    async with connected(config) as connection:
        found = await list_nodes(connection, with_gone=options.all)
    if options.json:
        print_json([asdict(each) for each in found])
        return 0
    names = ("id", "node", "role", "session", "cluster", "host", "address", "schema", "joined")
    print_table(
        names,
        [
            (
                *(each.id, each.name, each.role, each.has_session, each.cluster),
                *(each.host, each.address, each.schema_version, each.started_at),
            )
            for each in found
        ],
    )
    return 0


async def drain(options: argparse.Namespace, config: Config) -> int:
    async with connected(config) as connection:
        node = await drain_node(connection, options.name)
        try:
            async with asyncio.timeout(options.wait):
                name = await _successor(connection, node)
        except TimeoutError:
            raise CommandError(
                f"node '{options.name}' was asked to hand over, and no other node serves after "
                f"{options.wait:g} s: see `howdah node list` and the logs of both"
            ) from None
    print(f"node '{options.name}' has handed over: node '{name}' serves")
    return 0


async def _successor(connection: asyncpg.Connection, node: int) -> str:
    """Waits until another node serves, and names it."""
    while True:
        name = await successor(connection, node)
        if name is not None:
            return name
        await asyncio.sleep(LOOK_SECONDS)
