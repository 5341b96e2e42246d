"""Options of commands that set limits of virtual hosts and users."""

from __future__ import annotations

import argparse

from gateway.commands.command import CommandError, whole_number

LARGEST_LIMIT = 2**31 - 1
NO_LIMIT = "none"


def add_limits(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds an option for each limit."""
    for name in names:
        parser.add_argument(
            f"--{name}", type=_limit, metavar="N", help=f"a number, or '{NO_LIMIT}' for no limit"
        )


def _limit(text: str) -> int | str:
    return NO_LIMIT if text == NO_LIMIT else whole_number(0, LARGEST_LIMIT)(text)


def given_limits(options: argparse.Namespace, *names: str) -> dict[str, int | None]:
    """Reads the limits that were given; None takes one away."""
    given = {name: getattr(options, name.replace("-", "_")) for name in names}
    found = {
        name: None if value == NO_LIMIT else value
        for name, value in given.items()
        if value is not None
    }
    if not found:
        raise CommandError(f"nothing to change: give {' or '.join(f'--{name}' for name in names)}")
    return found
