"""`howdah queue consumers` and `howdah queue in-flight`: show who consumes, and which messages each
holds.

Shows what the running gateway has noted in the database; asks no gateway.
"""

from __future__ import annotations

import argparse
import json
import sys

from gateway.commands.command import Commands, add_command, add_json, add_vhost, whole_number
from gateway.commands.database import operating
from gateway.commands.output import print_json, print_table
from gateway.config.keys import Config
from queue_core.store.operator.queue_operations import ConsumerStatus, HeldMessage, Operations

NO_GATEWAY = "no gateway is running on this database: nobody consumes"
NOTED = (
    "The running gateway notes it about once a second, for durable queues; queues in memory are in "
    "/api/queues. The same is in the views howdah.consumer_status and howdah.in_flight."
)
CONSUMER_COLUMNS = (
    "vhost",
    "queue",
    "group",
    "tag",
    "state",
    "protocol",
    "user",
    "client",
    "address",
    "prefetch",
    "in flight",
    "oldest",
    "arguments",
)
HELD_COLUMNS = ("offset", "since", "group", "tag", "protocol", "user", "client", "address")
MOST_HELD = 2**31 - 1


def register(family: Commands) -> None:
    """Adds both commands to the family `howdah queue`."""
    parser = add_command(family, "consumers", list_consumers, "who consumes from queues", NOTED)
    parser.add_argument("queue", nargs="?", help="only of this queue")
    parser.add_argument("--vhost", metavar="NAME", help="only of this virtual host")
    add_json(parser)
    parser = add_command(
        family, "in-flight", list_in_flight, "which messages are in whose hands", NOTED
    )
    parser.add_argument("queue", help="name of the queue")
    add_vhost(parser)
    parser.add_argument(
        "-n", "--limit", type=whole_number(0, MOST_HELD), default=100, help="(default: 100)"
    )
    add_json(parser)


async def list_consumers(options: argparse.Namespace, config: Config) -> int:
    vhost = options.vhost or ("/" if options.queue else None)
    async with operating(config) as operations:
        found = await operations.consumers(vhost, options.queue)
        await _tell_without_gateway(operations)
    if options.json:
        print_json(found)
    else:
        print_table(CONSUMER_COLUMNS, [_consumer_row(each) for each in found])
    return 0


def _consumer_row(consumer: ConsumerStatus) -> tuple[object, ...]:
    return (
        consumer.vhost,
        consumer.queue,
        consumer.group_name or None,
        consumer.tag or None,
        consumer.state,
        consumer.protocol,
        consumer.user_name,
        consumer.client or None,
        consumer.address,
        consumer.prefetch,
        consumer.in_flight,
        consumer.oldest_age,
        json.dumps(consumer.arguments) if consumer.arguments else None,
    )


async def list_in_flight(options: argparse.Namespace, config: Config) -> int:
    async with operating(config) as operations:
        found = await operations.in_flight(options.vhost, options.queue, options.limit)
        consumers = await operations.consumers(options.vhost, options.queue)
        await _tell_without_gateway(operations)
    if options.json:
        print_json(found)
        return 0
    print_table(HELD_COLUMNS, [_held_row(each) for each in found])
    more = sum(consumer.in_flight for consumer in consumers) - len(found)
    if more > 0:
        print(f"and {more} more")
    return 0


def _held_row(held: HeldMessage) -> tuple[object, ...]:
    return (
        held.offset,
        held.since,
        held.group_name or None,
        held.tag or None,
        held.protocol,
        held.user_name,
        held.client or None,
        held.address,
    )


async def _tell_without_gateway(operations: Operations) -> None:
    if not await operations.is_served():
        print(NO_GATEWAY, file=sys.stderr)
