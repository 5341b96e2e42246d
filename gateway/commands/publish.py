"""`howdah publish`: publishes one message, or one for each line of standard input.

It goes through SQL by default, which needs the database only; over MQTT to try the listener itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import timedelta
from math import ceil

from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_vhost,
    whole_number,
)
from gateway.commands.database import operating
from gateway.config.keys import Config
from gateway.config.quantities import Duration
from queue_core.store.operator.queue_operations import Operations, Outgoing

QUEUE_PREFIX = "$queue/"
SQL_ONLY = ("exchange", "priority", "message_id", "delay")
MQTT_ONLY = ("qos", "host", "port", "username")
DEFAULT_QOS = 1
NOBODY = "no client has subscribed to the topic, and no queue is bound to it"


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "publish",
        publish,
        "publish a message",
        "howdah publish plant/7/temperature 21.5        to a topic\n"
        "howdah publish --queue orders '{\"id\": 1}'      into a queue\n"
        "howdah publish --exchange logs app.info hello  through an exchange\n"
        "journalctl -f | howdah publish --lines logs/journal",
    )
    parser.add_argument("address", nargs="?", help="topic, routing key, or '$queue/NAME'")
    parser.add_argument("body", nargs="?", help="left out or '-': standard input")
    parser.add_argument("--queue", metavar="NAME", help="into this queue")
    parser.add_argument("--exchange", metavar="NAME", help="through this exchange")
    parser.add_argument("--lines", action="store_true", help="a message for each line of the input")
    parser.add_argument("--retain", action="store_true", help="keep it as the topic's last value")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument("--content-type", metavar="TYPE", help="such as application/json")
    parser.add_argument("--priority", type=whole_number(0, 255), metavar="N", help="0 to 255")
    parser.add_argument("--message-id", metavar="ID")
    parser.add_argument("--correlation-id", metavar="ID")
    parser.add_argument("--reply-to", metavar="ADDRESS")
    parser.add_argument("--expires-in", metavar="DURATION", help="such as 30s, 5m, 1h")
    parser.add_argument("--delay", metavar="DURATION", help="deliver it later")
    add_vhost(parser)
    _add_mqtt(parser)


def _add_mqtt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--via",
        choices=("sql", "mqtt"),
        default="sql",
        help="sql: through the database, with or without a running gateway (default); "
        "mqtt: as a client of its listener",
    )
    parser.add_argument(
        "--qos", type=int, choices=(0, 1), help=f"with --via mqtt (default: {DEFAULT_QOS})"
    )
    add_connection(parser)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds the options of an MQTT connection: host, port and login."""
    parser.add_argument("--host", help="MQTT: other than the configured listener")
    parser.add_argument("--port", type=whole_number(1, 65_535), help="MQTT: the same")
    parser.add_argument(
        "--username", metavar="NAME", help="MQTT: log in; the password is in $HOWDAH_PASSWORD"
    )


async def publish(options: argparse.Namespace, config: Config) -> int:
    _sort_positionals(options)
    if options.lines and options.body not in (None, "-"):
        raise CommandError("--lines reads standard input: leave out --lines or the body")
    if options.via == "mqtt":
        return await _publish_over_mqtt(options, config)
    misplaced = [name for name in MQTT_ONLY if getattr(options, name) is not None]
    if misplaced:
        names = ", ".join(f"--{name}" for name in misplaced)
        raise CommandError(f"{names}: only with --via mqtt; add that, or leave it out")
    count = 0
    async with operating(config) as operations:
        await _check_target(operations, options)
        for body in _bodies(options):
            number = await _publish_sql(operations, options, _outgoing(options, body))
            count += 1
        is_served = await operations.is_served()
    if count:
        what = f"published as {number}" if count == 1 else f"published {count} messages"
        later = "" if is_served else " (no gateway is running: it is routed when one starts)"
        print(f"{what}{later}", file=sys.stderr)
    return 0


def _sort_positionals(options: argparse.Namespace) -> None:
    """Moves the first word to the body with --queue, which takes no address."""
    if options.queue is not None and options.exchange is not None:
        raise CommandError("give --queue or --exchange, not both")
    if options.queue is not None:
        if options.body is not None:
            raise CommandError(f"--queue {options.queue} takes a body and no address: quote it")
        options.address, options.body = f"{QUEUE_PREFIX}{options.queue}", options.address
    elif options.address is None:
        raise CommandError("where to? give a topic, --queue NAME, or --exchange NAME and a key")


def _bodies(options: argparse.Namespace) -> Iterator[bytes]:
    if options.body not in (None, "-"):
        yield options.body.encode()
    elif options.lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    else:
        yield sys.stdin.buffer.read()


def _outgoing(options: argparse.Namespace, body: bytes) -> Outgoing:
    return Outgoing(
        body,
        headers=_headers(options.header) or None,
        content_type=options.content_type,
        priority=options.priority,
        expires_in=_duration("--expires-in", options.expires_in),
        delay=_duration("--delay", options.delay),
        correlation_id=options.correlation_id,
        reply_to=options.reply_to,
        message_id=options.message_id,
        retain=options.retain,
    )


def _headers(texts: list[str]) -> dict[str, str]:
    headers = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise CommandError(f"--header {text}: expected NAME=VALUE")
        headers[name] = value
    return headers


def _duration(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=float(Duration.parse(text)))
    except ValueError as error:
        raise CommandError(f"{option} {text}: {error}") from error


async def _check_target(operations: Operations, options: argparse.Namespace) -> None:
    """Checks that the target exists before the first message, however many come."""
    queue = _queue_of(options)
    if options.retain and (queue is not None or options.exchange is not None):
        what = "an exchange" if queue is None else "a queue"
        raise CommandError(f"--retain goes with a topic, not with {what}")
    if queue is not None:
        await operations.require_queue(options.vhost, queue)
    elif options.exchange is None and await operations.has_queue(options.vhost, options.address):
        name = options.address
        print(
            f"to the topic '{name}', not into the queue of that name: that is --queue {name}",
            file=sys.stderr,
        )


def _queue_of(options: argparse.Namespace) -> str | None:
    address: str = options.address
    is_queue = address.startswith(QUEUE_PREFIX) and options.exchange is None
    return address.removeprefix(QUEUE_PREFIX) if is_queue else None


async def _publish_sql(
    operations: Operations, options: argparse.Namespace, message: Outgoing
) -> int:
    queue = _queue_of(options)
    if queue is not None:
        return await operations.publish(options.vhost, "", queue, message)
    if options.exchange is not None:
        return await operations.publish(
            options.vhost, options.exchange, options.address, message, mandatory=False
        )
    return await operations.publish_topic(options.vhost, options.address, message)


async def _publish_over_mqtt(options: argparse.Namespace, config: Config) -> int:
    from gateway.commands.mqtt_client import connected_to, target_of

    unsupported = [name for name in SQL_ONLY if getattr(options, name) is not None]
    if options.vhost != "/":
        unsupported.append("vhost")
    if unsupported:
        names = ", ".join("--" + name.replace("_", "-") for name in unsupported)
        raise CommandError(f"{names}: not over MQTT; leave it out, or leave out --via mqtt")
    expires = _duration("--expires-in", options.expires_in)
    count = unheard_count = 0
    target = target_of(config, options.host, options.port, options.username)
    async with connected_to(target) as client:
        for body in _bodies(options):
            is_heard = await client.publish(
                options.address,
                body,
                DEFAULT_QOS if options.qos is None else options.qos,
                options.retain,
                user_property=list(_headers(options.header).items()) or None,
                content_type=options.content_type,
                message_expiry_interval=None if expires is None else ceil(expires.total_seconds()),
                correlation_data=options.correlation_id and options.correlation_id.encode(),
                response_topic=options.reply_to,
            )
            count += 1
            unheard_count += not (is_heard or options.retain)
    lost = f" ({unheard_count} for nobody: {NOBODY})" if unheard_count else ""
    print(f"published {count} message{'' if count == 1 else 's'}{lost}", file=sys.stderr)
    return 0
