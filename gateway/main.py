"""The command line of `howdah`.

Answers for arguments, exit codes and errors that a person can act on. It must not know the parts
behind a command: each family has a module in gateway.commands.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import uvloop

from gateway.commands import (
    convert,
    definitions,
    doctor,
    etl,
    migrate,
    nodes,
    policies,
    publish,
    queues,
    serve,
    subscribe,
    users,
    vhosts,
)
from gateway.commands.command import CommandError, add_command, refuse_bytes
from gateway.config.keys import Config, ConfigError, load_config
from gateway.database import DatabaseError
from gateway.listeners import ListenError
from gateway.log import set_up_logging
from gateway.postgres.errors import EmbeddedPostgresError
from queue_core.errors import CoreError
from queue_core.store.operator.queue_operations import OperationError

FAILED = 1
MISCONFIGURED = 2
INTERRUPTED = 130

# What a person can act on; anything else is a bug and shows its trace.
EXPECTED = (
    CommandError,
    CoreError,
    DatabaseError,
    EmbeddedPostgresError,
    OperationError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 1 says that it failed, 2 that it was asked for in a wrong way."""
    options = make_parser().parse_args(arguments)
    try:
        refuse_bytes(options)
        config = load_config(options.config, os.environ)
        set_up_logging(_level(options, config), config.log.format)
        _hush_libraries()
        return int(uvloop.run(options.run(options, config)))
    except ConfigError as error:
        code = FAILED if isinstance(error, ListenError) else MISCONFIGURED
        return _complain(code, *error.problems)
    except EXPECTED as error:
        return _complain(FAILED, str(error))
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of all commands; its help is their documentation."""
    parser = argparse.ArgumentParser(
        prog="howdah",
        description="MQTT, AMQP 0.9.1 and AMQP 1.0 on PostgreSQL: one gateway, queues as tables.",
        epilog="`howdah COMMAND --help` tells more about each.",
    )
    parser.add_argument("--version", action="version", version=f"howdah {version('howdah')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for family in (
        serve,
        migrate,
        queues,
        publish,
        subscribe,
        convert,
        users,
        vhosts,
        nodes,
        policies,
        definitions,
        doctor,
        etl,
    ):
        family.register(commands)
    add_command(commands, "version", _print_version, "which version this is")
    return parser


async def _print_version(options: argparse.Namespace, config: Config) -> int:
    print(f"howdah {version('howdah')}")
    return 0


def _level(options: argparse.Namespace, config: Config) -> str:
    """Chooses the log level: a command for people is quiet, unless somebody asked for more."""
    is_talkative = options.command == "serve" or config.log.level == "debug"
    return config.log.level if is_talkative else "error"


def _hush_libraries() -> None:
    """Silences log lines of libraries that the gateway says itself, once and without a trace."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    logging.getLogger("gmqtt").setLevel(logging.CRITICAL)


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"howdah: {problem}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
