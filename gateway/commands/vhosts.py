"""`howdah vhost`: manages virtual hosts, whose queues, exchanges and topics are apart from each
other.

A change is in force when its command returns.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from gateway.commands.command import CommandError, Commands, add_command, add_family, add_json
from gateway.commands.database import engine_for
from gateway.commands.output import print_json, print_table
from gateway.commands.rights_confirmation import changing
from gateway.config.keys import Config

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from queue_core.store.tables.vhosts import Vhosts


def register(commands: Commands) -> None:
    family = add_family(commands, "vhost", "virtual hosts: apart from each other in all they hold")
    parser = add_command(
        family,
        "add",
        add_vhost,
        "make a virtual host",
        "Nobody may enter it yet: `howdah user grant NAME --vhost VHOST` lets a user in.",
    )
    parser.add_argument("name", help="name of the virtual host")
    parser = add_command(family, "list", list_vhosts, "all virtual hosts")
    add_json(parser)
    parser = add_command(
        family,
        "remove",
        remove_vhost,
        "remove a virtual host without durable queues",
        "Its exchanges, permissions and retained messages go with it, and who is connected to it "
        "is shown out.",
    )
    parser.add_argument("name", help="name of the virtual host")


def _vhosts(engine: AsyncEngine) -> Vhosts:
    from queue_core.store.tables.vhosts import Vhosts

    return Vhosts(engine)


async def add_vhost(options: argparse.Namespace, config: Config) -> int:
    async with changing(config, make=True) as engine:
        if not await _vhosts(engine).add(options.name):
            raise CommandError(f"there is a virtual host '{options.name}' already")
    print(f"virtual host '{options.name}' made")
    return 0


async def list_vhosts(options: argparse.Namespace, config: Config) -> int:
    async with engine_for(config) as engine:
        found = await _vhosts(engine).all()
    if options.json:
        print_json([asdict(each) for each in found])
    else:
        rows = [(each.name, each.queues, each.created_at) for each in found]
        print_table(("vhost", "queues", "made"), rows)
    return 0


async def remove_vhost(options: argparse.Namespace, config: Config) -> int:
    async with changing(config) as engine:
        await _vhosts(engine).remove(options.name)
    print(f"virtual host '{options.name}' removed")
    return 0
