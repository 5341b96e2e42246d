"""`howdah subscribe`: prints messages as they come, as an MQTT client of the gateway."""

from __future__ import annotations

import argparse
import base64
from typing import TYPE_CHECKING, Any

from gateway.commands.command import CommandError, Commands, add_command, whole_number
from gateway.commands.output import print_json_line, shown_body
from gateway.commands.publish import QUEUE_PREFIX, add_connection
from gateway.config.keys import Config

if TYPE_CHECKING:
    from gateway.commands.mqtt_client import Received

FLAGS = ("dup", "retain")


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "subscribe",
        subscribe,
        "see messages as they come",
        "howdah subscribe 'plant/#'            a copy of what is published there\n"
        "howdah subscribe --queue orders -n 1  takes a message out of a queue\n"
        "howdah subscribe --queue log --offset first --group try1   reads a stream",
        "A message from a queue is settled when it is printed. To look without any effect, see "
        "`howdah queue peek`.",
    )
    parser.add_argument(
        "filters", nargs="*", metavar="filter", help="such as 'plant/+/temperature'"
    )
    parser.add_argument(
        "--queue",
        metavar="NAME",
        help="compete on this queue, which is made if there is none: '$queue/NAME'",
    )
    parser.add_argument("-n", "--count", type=whole_number(1), metavar="N", help="end after N")
    parser.add_argument("-v", "--verbose", action="store_true", help="with QoS and properties")
    parser.add_argument("--json", action="store_true", help="for machines: one JSON object a line")
    parser.add_argument("--qos", type=int, choices=(0, 1), default=1, help="(default: 1)")
    parser.add_argument(
        "--offset", metavar="WHERE", help="of a stream: first, last, next, a number or a time"
    )
    parser.add_argument("--group", metavar="NAME", help="of a stream: whose position to go on from")
    add_connection(parser)


async def subscribe(options: argparse.Namespace, config: Config) -> int:
    from gateway.commands.mqtt_client import connected_to, target_of

    filters = list(options.filters)
    if options.queue is not None:
        filters.append(f"{QUEUE_PREFIX}{options.queue}")
    if not filters:
        raise CommandError("to what? give a topic filter such as 'plant/#', or --queue NAME")
    properties = {
        name: value
        for name, value in (("offset", options.offset), ("consumer-group", options.group))
        if value is not None
    }
    if properties and not any(each.startswith(QUEUE_PREFIX) for each in filters):
        raise CommandError("--offset and --group are for streams: name one with --queue")
    target = target_of(config, options.host, options.port, options.username)
    async with connected_to(target, prefetch=options.count or 100) as client:
        await client.subscribe(filters, options.qos, options.count, properties)
        async for message in client.messages():
            _print(message, options)
    return 0


def _print(message: Received, options: argparse.Namespace) -> None:
    if options.json:
        print_json_line(_as_json(message))
        return
    print(f"{message.topic} {shown_body(message.payload, None)}", flush=True)
    if options.verbose:
        for name, value in _facts(message).items():
            print(f"    {name}: {value}", flush=True)


def _facts(message: Received) -> dict[str, object]:
    """Returns QoS and properties of a message; user properties under their own names."""
    facts: dict[str, object] = {"qos": message.qos}
    for name, values in message.properties.items():
        if name in FLAGS:
            facts[name] = bool(values)
        elif name == "user_property":
            facts |= {f"[{key}]": value for key, value in values}
        else:
            facts[name] = _plain(values)
    return facts


def _as_json(message: Received) -> dict[str, object]:
    properties = dict(message.properties)
    flags = {name: bool(properties.pop(name, 0)) for name in FLAGS}
    user = [list(pair) for pair in properties.pop("user_property", [])]
    return {
        "topic": message.topic,
        **_body(message.payload),
        "qos": message.qos,
        **flags,
        "properties": {name: _plain(values) for name, values in properties.items()},
        "user_properties": user,
    }


def _plain(values: Any) -> object:
    value = values[0] if isinstance(values, list) and len(values) == 1 else values
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _body(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode(), "payload_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}
