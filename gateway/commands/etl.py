"""`howdah etl`: runs the Spark jobs, in a process of their own, on the database of the
configuration.

The gateway imports no Spark: the jobs are started as a program, with the URL in the environment,
where no list of processes shows the password.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from gateway.commands.command import Commands, add_command, add_config
from gateway.commands.database import database_url
from gateway.config.keys import Config

URL_VARIABLE = "HOWDAH_ETL_URL"


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "etl",
        run,
        "Spark jobs on the queue tables: export, replay and others",
        "`howdah etl -- --help` lists the jobs, `howdah etl export --help` tells about one.",
        "They need `make setup-spark`.",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, action=Rest, metavar="job ...", help="see above"
    )


class Rest(argparse.Action):
    """Passes all arguments to the job but --config, which is ours wherever it stands."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        ours = argparse.ArgumentParser(prog=parser.prog, add_help=False, allow_abbrev=False)
        add_config(ours)
        found, rest = ours.parse_known_args(list(values or ()))
        namespace.config = found.config or namespace.config
        namespace.arguments = rest


async def run(options: argparse.Namespace, config: Config) -> int:
    arguments = [a for i, a in enumerate(options.arguments) if i or a != "--"]
    if not arguments or {"-h", "--help"} & set(arguments) or URL_VARIABLE in os.environ:
        return await _start(arguments or ["--help"], {})
    async with database_url(config) as url:
        return await _start(arguments, {URL_VARIABLE: url})


async def _start(arguments: list[str], variables: dict[str, str]) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "spark_etl", *arguments), env={**os.environ, **variables}
    )
    return await process.wait()
