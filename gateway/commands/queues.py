"""`howdah queue`: shows queues, and has the running gateway change them.

Everything goes through the views and functions that a DBA has in psql as well.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from gateway.commands import consumers
from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_family,
    add_json,
    add_vhost,
    seconds,
    whole_number,
)
from gateway.commands.database import operating
from gateway.commands.output import (
    print_json,
    print_table,
    shown,
    shown_body,
    shown_bytes,
)
from gateway.config.keys import Config
from queue_core.routing.router import TOPIC_SPACE
from queue_core.store.operator.queue_operations import (
    ConditionFailed,
    Operations,
    PeekedMessage,
    QueueDetails,
)

LIST_COLUMNS = (
    "vhost",
    "queue",
    "kind",
    "ready",
    "delayed",
    "in flight",
    "consumers",
    "oldest",
    "size",
)
MOST_PEEKED = 2**31 - 1  # PostgreSQL's integer
HIDDEN_DEFINITION = (
    "arguments and bindings are hidden from this login: ask a DBA for "
    "GRANT SELECT ON howdah.queue, howdah.binding"
)
YES_NO = {True: "yes", False: "no"}
WAITS = (
    "The running gateway does it. Where none runs, the request stays in the database and is done "
    "when one starts; this command then ends with an error that says so."
)


def register(commands: Commands) -> None:
    family = add_family(commands, "queue", "look at durable queues and change them")
    parser = add_command(family, "list", list_queues, "how every durable queue stands")
    parser.add_argument("--vhost", metavar="NAME", help="only of this virtual host")
    add_json(parser)
    parser = add_command(family, "show", show_queue, "everything about one queue")
    _add_queue(parser)
    add_json(parser)
    _register_peek(family)
    consumers.register(family)
    _register_changes(family)


def _register_peek(family: Commands) -> None:
    parser = add_command(
        family, "peek", peek, "the oldest messages of a queue, without any effect on them"
    )
    _add_queue(parser)
    parser.add_argument(
        "-n", "--limit", type=whole_number(0, MOST_PEEKED), default=10, help="(default: 10)"
    )
    parser.add_argument("--offset", type=whole_number(0), metavar="N", help="start at this offset")
    parser.add_argument("--full", action="store_true", help="bodies at full length")
    add_json(parser)


def _register_changes(family: Commands) -> None:
    parser = add_command(
        family, "purge", purge, "throw away all messages that no consumer has in flight", WAITS
    )
    _add_change(parser)
    parser = add_command(
        family, "redrive", redrive, "send dead letters back to the queues they died in", WAITS
    )
    parser.add_argument(
        "--where",
        default="true",
        metavar="SQL",
        help="only these: a condition on the columns of howdah.ready_messages, "
        "such as \"headers->>'region' = 'eu'\"",
    )
    _add_change(parser)
    parser = add_command(family, "declare", declare, "make a durable queue", WAITS)
    parser.add_argument(
        "-a",
        "--argument",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as AMQP clients give it, such as x-queue-type=stream; may be repeated",
    )
    _add_change(parser)
    for name, run, does in (
        ("bind", bind, "have a durable queue or stream take what matches, from now on"),
        ("unbind", unbind, "the opposite of bind, with the same words"),
    ):
        parser = add_command(family, name, run, does, WAITS)
        _add_binding(parser)
        _add_change(parser)
    parser = add_command(
        family,
        "reset",
        reset,
        "send a consumer group of a stream to another place, to read again or to leave out",
        "Stop the group's consumers first. What the stream keeps is not touched, nor are other "
        "groups; `howdah queue show` tells where they are.",
        WAITS,
    )
    parser.add_argument("--group", required=True, metavar="NAME", help="the consumer group")
    parser.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="first, last, next, an offset, or a time such as 2026-01-31T12:00Z",
    )
    _add_change(parser)
    _register_pauses(family)
    parser = add_command(family, "delete", delete, "delete a queue with all that is in it", WAITS)
    parser.add_argument("--if-unused", action="store_true", help="only if it has no consumers")
    parser.add_argument("--if-empty", action="store_true", help="only if it has no messages")
    _add_change(parser)


def _register_pauses(family: Commands) -> None:
    parser = add_command(
        family,
        "pause",
        pause,
        "stop deliveries from a queue, over restarts, until it is resumed",
        "Messages still come in, and those in flight may be settled. Consumers stay, and get "
        "nothing.",
        WAITS,
    )
    _add_change(parser)
    parser = add_command(
        family, "resume", resume, "let deliveries from a paused queue go on", WAITS
    )
    _add_change(parser)


def _add_binding(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="FILTER", help="an MQTT filter, such as plant/+/temp")
    what.add_argument("--key", help="a binding key as AMQP writes it, such as plant.*.temp")
    parser.add_argument("--exchange", metavar="NAME", help="of the key (default: amq.topic)")


def _add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", help="name of the queue")
    add_vhost(parser)


def _add_change(parser: argparse.ArgumentParser) -> None:
    _add_queue(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="(default: 30)",
    )
    parser.add_argument("--no-wait", action="store_true", help="ask for it, and do not wait")


# --- looking


async def list_queues(options: argparse.Namespace, config: Config) -> int:
    async with operating(config) as operations:
        queues = await operations.queues(options.vhost)
    if options.json:
        print_json(queues)
        return 0
    print_table(
        LIST_COLUMNS,
        [
            (
                queue.vhost,
                queue.name,
                queue.kind,
                queue.ready,
                queue.delayed,
                queue.in_flight,
                queue.consumers,
                queue.oldest_age,
                shown_bytes(queue.size_bytes),
            )
            for queue in queues
        ],
    )
    return 0


async def show_queue(options: argparse.Namespace, config: Config) -> int:
    async with operating(config) as operations:
        details = await operations.queue(options.vhost, options.queue)
    if options.json:
        print_json(details)
    else:
        _print_details(details)
    return 0


def _print_details(details: QueueDetails) -> None:
    facts = asdict(details.status)
    facts["size"] = shown_bytes(facts.pop("size_bytes"))
    if details.arguments is not None:
        facts |= {
            "arguments": json.dumps(details.arguments),
            "created_by": details.created_by,
            "created_at": details.created_at,
        }
    if details.effective is not None:
        facts |= {
            "policy": details.policy,
            "operator": details.operator_policy,
            "in_force": json.dumps(details.effective),
        }
    for name, value in facts.items():
        print(f"{name.replace('_', ' ') + ':':<14}{shown(value)}")
    if details.arguments is None:
        print(HIDDEN_DEFINITION)
    for binding in details.bindings or ():
        source = binding.exchange or "(default exchange)"
        print(f"{'bound to:':<14}{source} with key '{binding.routing_key}'")
    if details.groups:
        print()
        print_table(
            ("group", "floor", "tail", "lag", "oldest"),
            [(g.name, g.floor, g.tail, g.lag, g.oldest_age) for g in details.groups],
        )


async def peek(options: argparse.Namespace, config: Config) -> int:
    async with operating(config) as operations:
        messages = await operations.peek(
            options.vhost, options.queue, options.limit, options.offset
        )
    if options.json:
        print_json([_as_json(message) for message in messages])
        return 0
    for message in messages:
        _print_message(message, None if options.full else 200)
    if not messages:
        print("no messages")
    return 0


def _print_message(message: PeekedMessage, limit: int | None) -> None:
    origin = f"exchange '{message.exchange}', key '{message.routing_key}'"
    print(f"offset {message.offset}  {shown(message.enqueued_at)}  {origin}")
    hidden = {"offset", "enqueued_at", "exchange", "routing_key", "body"}
    for name, value in asdict(message).items():
        if name not in hidden and value not in (None, 0, {}):
            text = json.dumps(value) if isinstance(value, dict | list) else shown(value)
            print(f"  {name.replace('_', ' ')}: {text}")
    print(f"  {shown_body(message.body, limit)}")


def _as_json(message: PeekedMessage) -> dict[str, object]:
    """Writes a message as JSON: the body as text where it is text, as base64 where it is not;
    `body_encoding` says which."""
    fields: dict[str, object] = asdict(message)
    try:
        return {**fields, "body": message.body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        encoded = base64.b64encode(message.body).decode()
        return {**fields, "body": encoded, "body_encoding": "base64"}


# --- changing


async def purge(options: argparse.Namespace, config: Config) -> int:
    return await _change(options, config, lambda o: o.purge(options.vhost, options.queue), "purged")


async def redrive(options: argparse.Namespace, config: Config) -> int:
    try:
        return await _change(
            options,
            config,
            lambda o: o.redrive(options.vhost, options.queue, options.where),
            "redriven",
        )
    except ConditionFailed as error:
        raise CommandError(f"--where {options.where}: {error}") from error


async def pause(options: argparse.Namespace, config: Config) -> int:
    return await _change(options, config, lambda o: o.pause(options.vhost, options.queue), "paused")


async def resume(options: argparse.Namespace, config: Config) -> int:
    return await _change(
        options, config, lambda o: o.resume(options.vhost, options.queue), "resumed"
    )


async def delete(options: argparse.Namespace, config: Config) -> int:
    return await _change(
        options,
        config,
        lambda o: o.delete(
            options.vhost, options.queue, if_unused=options.if_unused, if_empty=options.if_empty
        ),
        "deleted",
    )


async def declare(options: argparse.Namespace, config: Config) -> int:
    arguments = dict(_argument(text) for text in options.argument)
    return await _change(
        options, config, lambda o: o.declare(options.vhost, options.queue, arguments), "declared"
    )


async def reset(options: argparse.Namespace, config: Config) -> int:
    return await _change(
        options,
        config,
        lambda o: o.reset_group(options.vhost, options.queue, options.group, options.to),
        "reset",
    )


async def bind(options: argparse.Namespace, config: Config) -> int:
    return await _change(options, config, lambda o: _bind(o, options), "bound")


async def unbind(options: argparse.Namespace, config: Config) -> int:
    return await _change(options, config, lambda o: _unbind(o, options), "unbound")


def _bind(operations: Operations, options: argparse.Namespace) -> Awaitable[int]:
    if options.topic is not None:
        _refuse_exchange(options)
        return operations.bind_topic(options.vhost, options.queue, options.topic)
    exchange = options.exchange or TOPIC_SPACE
    return operations.bind(options.vhost, options.queue, exchange, options.key)


def _unbind(operations: Operations, options: argparse.Namespace) -> Awaitable[int]:
    if options.topic is not None:
        _refuse_exchange(options)
        return operations.unbind_topic(options.vhost, options.queue, options.topic)
    exchange = options.exchange or TOPIC_SPACE
    return operations.unbind(options.vhost, options.queue, exchange, options.key)


def _refuse_exchange(options: argparse.Namespace) -> None:
    if options.exchange is not None:
        raise CommandError(
            f"--topic is a filter of the topic space; give --key with --exchange {options.exchange}"
        )


def _argument(text: str) -> tuple[str, object]:
    """Parses NAME=VALUE: numbers and true/false as such, everything else as text."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise CommandError(f"--argument {text}: expected NAME=VALUE, such as x-max-length=1000")
    try:
        read = json.loads(value)
    except json.JSONDecodeError:
        return name, value
    return name, read if isinstance(read, bool | int | float) else value


async def _change(
    options: argparse.Namespace,
    config: Config,
    submit: Callable[[Operations], Awaitable[int]],
    done: str,
) -> int:
    async with operating(config) as operations:
        command = await submit(operations)
        if options.no_wait:
            print(f"asked for as command {command}")
            return 0
        result = await operations.outcome(command, options.timeout)
    facts = ", ".join(
        f"{name}: {YES_NO[value] if isinstance(value, bool) else value}"
        for name, value in result.items()
    )
    print(f"queue '{options.queue}' {done}{f' ({facts})' if facts else ''}")
    return 0
