"""`howdah serve`: runs the gateway."""

from __future__ import annotations

import argparse

from gateway.commands.command import Commands, add_command
from gateway.config.keys import Config


def register(commands: Commands) -> None:
    add_command(
        commands,
        "serve",
        serve,
        "run the gateway until SIGTERM or Ctrl-C",
        "Without database.url it runs a PostgreSQL of its own in data_dir. It prints one line for "
        "each listener, and then `ready`.",
        "The first signal drains and ends it; the second ends it at once.",
    )


async def serve(options: argparse.Namespace, config: Config) -> int:
    from gateway.service import run_gateway  # and with it everything there is

    return await run_gateway(config)
