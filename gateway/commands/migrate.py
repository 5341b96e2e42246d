"""`howdah migrate`: brings the database to the schema of this version, or prints the SQL for it."""

from __future__ import annotations

import argparse

from gateway.commands.command import CommandError, Commands, add_command
from gateway.commands.database import database_url
from gateway.config.keys import Config
from gateway.database import bring_up_to_date, reaching, take_back
from queue_core.store.operator import queue_operations

BASE = "base"


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "migrate",
        migrate,
        "bring the database to the schema of this version",
        "The gateway does this itself when it starts, unless database.migrate is false.",
        "Going back to an older revision drops what came with the newer ones; `base` drops all "
        "messages.",
    )
    parser.add_argument(
        "--sql",
        action="store_true",
        help="change nothing: print the SQL for a DBA to review and run with psql",
    )
    parser.add_argument(
        "--to",
        metavar="REV",
        help="revision to go to (default: the newest); an older one is the way back, base: none "
        "at all",
    )
    parser.add_argument(
        "--from",
        dest="since",
        metavar="REV",
        help="with --sql: revision that the database is at (default: ask the database if "
        "database.url is set, else base)",
    )


async def migrate(options: argparse.Namespace, config: Config) -> int:
    from queue_core.store.operator import migration

    revisions = (BASE, *migration.known_versions())
    target = _known(options.to or "head", "--to", revisions)
    if options.since is not None and not options.sql:
        raise CommandError("--from goes with --sql: without it, the database says where it is")
    if options.sql:
        since = await _since(options, config, revisions)
        if is_way_back(revisions, since, target):
            print(migration.downgrade_sql(target, since=since))
        else:
            print(migration.upgrade_sql(since))
        return 0
    after: str | None
    async with database_url(config, make=True) as url:
        before = await _version(url)
        if is_way_back(revisions, before or BASE, target):
            await _require_no_gateway(url)
            after = await take_back(url, target)
        else:
            after = await bring_up_to_date(url)
    print(f"schema: {before or 'none'} -> {after or 'none'}" if before != after else _stays(after))
    return 0


def is_way_back(revisions: tuple[str, ...], before: str, target: str) -> bool:
    """Says whether a migration goes back. Raises CommandError where it would stop on the way up:
    functions and views fit the tables of the newest revision only."""
    if target == revisions[-1]:
        return False
    if before in revisions and revisions.index(before) < revisions.index(target):
        raise CommandError(f"--to {target}: the way up leads to {revisions[-1]} only")
    return True


def _stays(version: str | None) -> str:
    return f"the schema is at {version or 'none'} already"


def _known(revision: str, option: str, revisions: tuple[str, ...]) -> str:
    if revision == "head":
        return revisions[-1]
    if revision not in revisions:
        raise CommandError(f"{option} {revision}: no such revision; known: {', '.join(revisions)}")
    return revision


async def _since(options: argparse.Namespace, config: Config, revisions: tuple[str, ...]) -> str:
    if options.since is not None:
        return _known(options.since, "--from", revisions)
    if config.database.url is None:
        return BASE
    version = await _version(config.database.url) or BASE
    if version not in revisions:
        raise CommandError(f"the database is at {version}; {_way_out_of(version)}")
    return version


def _way_out_of(version: str) -> str:
    from queue_core.store.operator import migration

    if migration.leads_to_newest(version):
        return "there is no SQL to print: run `howdah migrate` itself, which takes it over"
    return migration.way_out_of(version)


async def _require_no_gateway(url: str) -> None:
    """Refuses to migrate while a gateway runs on the database: it would lose tables and functions
    that it needs."""
    async with reaching(url):
        connection = await queue_operations.connect(url, "howdah command")
        try:
            is_served = await queue_operations.Operations(connection).is_served()
        finally:
            await connection.close()
    if is_served:
        raise CommandError("a gateway runs on this database: stop it before going back")


async def _version(url: str) -> str | None:
    from queue_core.store.operator.migration import current_version

    async with reaching(url):
        return await current_version(url)
