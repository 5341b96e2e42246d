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
from gateway.commands.limits import add_limits, given_limits
from gateway.commands.output import print_json, print_table
from gateway.commands.rights_confirmation import changing
from gateway.config.keys import Config

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from queue_core.store.tables.vhosts import VhostDescription, Vhosts


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
    _add_description(parser)
    parser = add_command(
        family,
        "set",
        set_vhost,
        "change what is said of a virtual host, and the type that queues have there by default",
        "What is not given stays as it is.",
    )
    parser.add_argument("name", help="name of the virtual host")
    _add_description(parser)
    parser = add_command(
        family,
        "limit",
        limit_vhost,
        "bound the connections or queues of a virtual host",
        "Who is connected stays, and so do queues that are there. MQTT clients that are connected "
        "count as connections; the queues of their sessions count, those that go with their "
        "connection do not.",
    )
    parser.add_argument("name", help="name of the virtual host")
    add_limits(parser, "max-connections", "max-queues")
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


def _add_description(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="what it is for")
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="a word to find it by; may be repeated"
    )
    parser.add_argument(
        "--default-queue-type",
        choices=("classic", "quorum", "stream"),
        help="type of durable queues that are declared without one",
    )


def _described(options: argparse.Namespace) -> VhostDescription:
    from queue_core.store.tables.vhosts import VhostDescription

    return VhostDescription(options.description, options.tag, options.default_queue_type)


def _vhosts(engine: AsyncEngine) -> Vhosts:
    from queue_core.store.tables.vhosts import Vhosts

    return Vhosts(engine)


async def add_vhost(options: argparse.Namespace, config: Config) -> int:
    async with changing(config, make=True) as engine:
        if not await _vhosts(engine).add(options.name, _described(options)):
            raise CommandError(f"there is a virtual host '{options.name}' already")
    print(f"virtual host '{options.name}' made")
    return 0


async def set_vhost(options: argparse.Namespace, config: Config) -> int:
    described = _described(options)
    if not described.values():
        raise CommandError("nothing to change: give --description, --tag or --default-queue-type")
    async with changing(config) as engine:
        await _vhosts(engine).describe(options.name, described)
    print(f"virtual host '{options.name}' changed")
    return 0


async def limit_vhost(options: argparse.Namespace, config: Config) -> int:
    async with changing(config) as engine:
        for limit, value in given_limits(options, "max-connections", "max-queues").items():
            await _vhosts(engine).set_limit(options.name, limit, value)
    print(f"limits of virtual host '{options.name}' set")
    return 0


async def list_vhosts(options: argparse.Namespace, config: Config) -> int:
    async with engine_for(config) as engine:
        found = await _vhosts(engine).all()
    if options.json:
        print_json([asdict(each) for each in found])
    else:
        rows = [
            (
                each.name,
                each.queues,
                each.created_at,
                each.default_queue_type,
                each.max_connections,
                each.max_queues,
                each.description,
            )
            for each in found
        ]
        names = ("vhost", "queues", "made", "default type", "max connections", "max queues")
        print_table((*names, "description"), rows)
    return 0


async def remove_vhost(options: argparse.Namespace, config: Config) -> int:
    async with changing(config) as engine:
        await _vhosts(engine).remove(options.name)
    print(f"virtual host '{options.name}' removed")
    return 0
