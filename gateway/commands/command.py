"""The frame of every command: how it is registered, and how it fails.

Knows no command. A command is a function from its options and the configuration to an exit code;
what it cannot do it raises as a CommandError, and main prints that.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from gateway.config.keys import Config

# argparse gives the class no public name.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run = Callable[[argparse.Namespace, Config], Coroutine[Any, Any, int]]

WAY_TO_CONFIGURE = (
    "Every key can also be set as an environment variable, such as HOWDAH_DATABASE__URL."
)


LARGEST_NUMBER = 2**63 - 1
LONGEST_WAIT_SECONDS = 31_536_000


class CommandError(Exception):
    """The command cannot be done; says why and what to do."""


def add_command(
    commands: Commands, name: str, run: Run, summary: str, *paragraphs: str
) -> argparse.ArgumentParser:
    """Adds the parser of one command; its help is its documentation."""
    parser = commands.add_parser(
        name,
        help=summary,
        description="\n\n".join(
            map(_wrapped, (f"{summary[0].upper()}{summary[1:]}.", *paragraphs))
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    parser.set_defaults(run=run)
    return parser


def _wrapped(paragraph: str) -> str:
    """Wraps a paragraph at a sensible length; one that has lines of its own is an example, and
    keeps them."""
    return paragraph if "\n" in paragraph else textwrap.fill(paragraph, 79)


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"YAML file with the configuration. {WAY_TO_CONFIGURE}",
    )


def add_family(commands: Commands, name: str, summary: str) -> Commands:
    """Adds a command with commands of its own, as `howdah queue list`."""
    parser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    return parser.add_subparsers(dest="subcommand", required=True, metavar="command")


def add_vhost(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vhost", default="/", metavar="NAME", help="virtual host (default: /)")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for machines: JSON")


def whole_number(least: int, most: int = LARGEST_NUMBER) -> Callable[[str], int]:
    """Makes an argument type: a number from `least` on, and up to `most`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            bounds = f"{least} on" if most == LARGEST_NUMBER else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"expected a number from {bounds}, got '{text}'")
        return number

    return read


def seconds(text: str) -> float:
    """Parses an argument: a time to wait, of up to a year."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= LONGEST_WAIT_SECONDS:  # which is no number is in no range either
        raise argparse.ArgumentTypeError(
            f"expected seconds from 0 to {LONGEST_WAIT_SECONDS}, got '{text}'"
        )
    return number


def refuse_bytes(options: argparse.Namespace) -> None:
    """Refuses arguments that are not UTF-8, which Python smuggles through: names, keys and
    conditions are text."""
    for name, given in vars(options).items():
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
                raise CommandError(
                    f"{name} {value!r} is not UTF-8 text: write it as such; a body of bytes may "
                    "come on standard input"
                )
