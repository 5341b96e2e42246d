"""`howdah user`: manages who may log in, and what they may do.

A change is in force when its command returns.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_family,
    add_json,
    add_vhost,
)
from gateway.commands.database import engine_for
from gateway.commands.limits import add_limits, given_limits
from gateway.commands.output import print_json, print_table
from gateway.commands.rights_confirmation import changing
from gateway.config.keys import Config
from queue_core.access.accounts import EVERYTHING, Permission, Roll, TopicPermission, User
from queue_core.access.passwords import hash_password, weakness_of
from queue_core.access.scram import Verifier
from queue_core.message.message import TOPIC_EXCHANGE

if TYPE_CHECKING:
    from queue_core.store.tables.users import Users

ALL = ".*"
GRANTED_EVERYTHING = (
    "it may do everything in virtual host '/' (configure, write and read '.*'); "
    "`howdah user grant` narrows that, and --no-permissions makes a user without"
)
GRANTED_NOTHING = "it may do nothing yet: see `howdah user grant`"
CLOSED = (
    "from now on clients without credentials and the built-in user guest are refused, also from "
    "loopback; auth.allow_anonymous and auth.guest let them in by name"
)
OPEN_AGAIN = (
    "no user is left: clients without credentials and the built-in user guest come in again from "
    "loopback, unless auth.allow_anonymous and auth.guest are false"
)
PATTERNS = (
    "Permissions are regular expressions on names of queues and exchanges, as in RabbitMQ: '.*' is "
    "everything, '' nothing, '^orders-' what begins so; the default exchange is amq.default."
)


def register(commands: Commands) -> None:
    family = add_family(commands, "user", "who may log in, and what they may do")
    parser = add_command(
        family,
        "add",
        add_user,
        "make a user, or give one a new password",
        "The password is asked for, or read from the first line of standard input: never from the "
        "command line, where every user of the machine could see it.",
        "A new user may do everything in virtual host / unless --no-permissions is given.",
        "The first user ends what a fresh gateway allows: from then on clients without credentials "
        "and the built-in guest are refused, unless auth.allow_anonymous and auth.guest name them.",
    )
    parser.add_argument("name", help="login name")
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TAG",
        help="management, policymaker, monitoring or administrator: may use the HTTP API; "
        "impersonator: may publish over AMQP 0.9.1 and MQTT in another's name; others are kept "
        "with the user; may be repeated",
    )
    parser.add_argument(
        "--no-password", action="store_true", help="no login by password: by certificate only"
    )
    parser.add_argument(
        "--no-permissions", action="store_true", help="grant nothing; see `howdah user grant`"
    )
    parser = add_command(family, "list", list_users, "all users and their permissions")
    add_json(parser)
    parser = add_command(family, "remove", remove_user, "remove a user with its permissions")
    parser.add_argument("name", help="login name")
    parser = add_command(
        family,
        "limit",
        limit_user,
        "bound the connections or channels of a user",
        "Channels are those of AMQP 0.9.1 and the sessions of AMQP 1.0, in all its connections "
        "together. What is open stays open.",
    )
    parser.add_argument("name", help="login name")
    add_limits(parser, "max-connections", "max-channels")
    _register_grants(family)


def _register_grants(family: Commands) -> None:
    parser = add_command(
        family,
        "grant",
        grant,
        "say what a user may do in a virtual host, in place of what it might before",
        PATTERNS,
        "--topic-write and --topic-read are on routing keys of a topic exchange (amq.topic, for "
        "MQTT topics, with dots for slashes, unless --topic-exchange names another), where "
        "{username}, {vhost} and {client_id} stand for the client's own. They are granted in the "
        "same change.",
        "With --topic-exchange and without those two, --write and --read are on its routing keys, "
        "and the permission on names stays as it is.",
    )
    parser.add_argument("name", help="login name")
    add_vhost(parser)
    parser.add_argument("--configure", metavar="REGEX", help="declare and delete (default: '.*')")
    parser.add_argument("--write", default=ALL, metavar="REGEX", help="publish (default: '.*')")
    parser.add_argument("--read", default=ALL, metavar="REGEX", help="consume (default: '.*')")
    parser.add_argument("--topic-exchange", metavar="NAME", help="a rule for its routing keys")
    beside = "(default beside the other: '.*')"
    for option, use in (("--topic-write", "publish"), ("--topic-read", "bind")):
        parser.add_argument(option, metavar="REGEX", help=f"routing keys to {use} with {beside}")
    parser = add_command(
        family, "revoke", revoke, "take back everything that a user may do in a virtual host"
    )
    parser.add_argument("name", help="login name")
    add_vhost(parser)


@asynccontextmanager
async def users_of(config: Config, *, make: bool = False) -> AsyncIterator[Users]:
    """Yields the users for one change, which is in force at the end of the block."""
    from queue_core.store.tables.users import Users

    async with changing(config, make=make) as engine:
        yield Users(engine)


async def limit_user(options: argparse.Namespace, config: Config) -> int:
    async with users_of(config) as users:
        for limit, value in given_limits(options, "max-connections", "max-channels").items():
            await users.set_limit(options.name, limit, value)
    print(f"limits of user '{options.name}' set")
    return 0


async def add_user(options: argparse.Namespace, config: Config) -> int:
    name = options.name
    password = None
    if not options.no_password:
        password = _password(name)
        if weakness := weakness_of(name, password, config.auth.min_password_length):
            raise CommandError(weakness)
    password_hash = None if password is None else hash_password(password)
    verifier = None if password is None else Verifier.of(password)
    async with users_of(config, make=True) as users:
        first = None if options.no_permissions else EVERYTHING
        was_open = not (await users.roll()).has_users
        is_new = await users.put(name, password_hash, options.tag, verifier, first)
        is_closed = was_open and (await users.roll()).has_users
    print(f"user '{name}' made" if is_new else f"user '{name}' changed; permissions stay")
    if is_new:
        print(GRANTED_NOTHING if first is None else GRANTED_EVERYTHING)
    if is_closed and config.auth.depends_on_users:
        print(CLOSED)
    return 0


def _password(name: str) -> str:
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if password != getpass.getpass("Again: "):
            raise CommandError("the two passwords differ: try again")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError(
            "the password is empty: type one, pipe one in, or give --no-password for a user that "
            "logs in by other means"
        )
    return password


async def list_users(options: argparse.Namespace, config: Config) -> int:
    async with engine_for(config) as engine:
        from queue_core.store.tables.users import StoredRoll

        roll = await StoredRoll(engine).read()
    if options.json:
        print_json([_as_json(roll, name) for name in sorted(roll.users)])
    else:
        _print_roll(roll)
    return 0


def _as_json(roll: Roll, name: str) -> dict[str, object]:
    user = roll.users[name]
    return {
        "name": name,
        "tags": sorted(user.tags),
        "has_password": user.password_hash is not None,
        "has_scram": user.verifier is not None,
        "permissions": {
            v: given for (owner, v), given in roll.permissions.items() if owner == name
        },
        "topic_permissions": [
            {"vhost": vhost, "exchange": exchange, "rule": rule}
            for (owner, vhost, exchange), rule in roll.topic_permissions.items()
            if owner == name
        ],
    }


def _print_roll(roll: Roll) -> None:
    rows = []
    for name in sorted(roll.users):
        tags = ",".join(sorted(roll.users[name].tags)) or None
        granted = {vhost: p for (owner, vhost), p in roll.permissions.items() if owner == name}
        ways = _ways(roll.users[name])
        for vhost, p in sorted(granted.items()):
            rows.append((name, ways, tags, vhost, p.configure, p.write, p.read))
        if not granted:
            rows.append((name, ways, tags, "-", "-", "-", "-"))
    print_table(("user", "login", "tags", "vhost", "configure", "write", "read"), rows)
    rules = [(*key, rule.write, rule.read) for key, rule in sorted(roll.topic_permissions.items())]
    if rules:
        print()
        print_table(("user", "vhost", "topic exchange", "write", "read"), rules)


def _ways(user: User) -> str:
    """Names the ways in which a user may log in besides a certificate."""
    if user.password_hash is None:
        return "certificate"
    return "password" if user.verifier is None else "password,scram"


async def remove_user(options: argparse.Namespace, config: Config) -> int:
    async with users_of(config) as users:
        if not await users.remove(options.name):
            raise CommandError(f"there is no user '{options.name}': see `howdah user list`")
        is_open = not (await users.roll()).has_users
    print(f"user '{options.name}' removed")
    if is_open and config.auth.depends_on_users:
        print(OPEN_AGAIN)
    return 0


async def grant(options: argparse.Namespace, config: Config) -> int:
    has_topics = options.topic_write is not None or options.topic_read is not None
    is_about_names = options.topic_exchange is None or has_topics
    if not is_about_names and options.configure is not None:
        raise CommandError(
            "--configure has no meaning for routing keys: leave it out, or give the keys as "
            "--topic-write and --topic-read"
        )
    configure = ALL if options.configure is None else options.configure
    given = Permission(configure, options.write, options.read) if is_about_names else None
    topics = {}
    if has_topics:
        patterns = [
            ALL if each is None else each for each in (options.topic_write, options.topic_read)
        ]
        topics = {options.topic_exchange or TOPIC_EXCHANGE: TopicPermission(*patterns)}
    elif not is_about_names:
        topics = {options.topic_exchange: TopicPermission(options.write, options.read)}
    async with users_of(config) as users:
        await users.grant(options.name, options.vhost, given, topics)
    print(f"user '{options.name}' granted in virtual host '{options.vhost}'")
    return 0


async def revoke(options: argparse.Namespace, config: Config) -> int:
    async with users_of(config) as users:
        if not await users.revoke(options.name, options.vhost):
            raise CommandError(
                f"user '{options.name}' has no permissions in virtual host '{options.vhost}': "
                "see `howdah user list`"
            )
    print(f"user '{options.name}' has no permissions in virtual host '{options.vhost}' any more")
    return 0
