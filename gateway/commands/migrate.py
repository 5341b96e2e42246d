"""`howdah migrate`: brings the database to the schema of this version, or prints the SQL for it."""

from __future__ import annotations

import argparse

from gateway.commands.command import CommandError, Commands, add_command
from gateway.commands.database import database_url
from gateway.config.keys import Config
from gateway.database import bring_up_to_date, reaching, take_back
from queue_core.store.operator import operations

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
        help="revision to go to (default: the newest); base: none at all",
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
        is_up = revisions.index(target) >= revisions.index(since)
        sql = migration.upgrade_sql if is_up else migration.downgrade_sql
        print(sql(target, since=since))
        return 0
    async with database_url(config, make=True) as url:
        before = await _version(url)
        if before is not None and before in revisions:
            is_up = revisions.index(target) >= revisions.index(before)
        else:
            is_up = target != BASE
        if not is_up:
            await _require_no_gateway(url)
        after = await (bring_up_to_date(url, target) if is_up else take_back(url, target))
    print(f"schema: {before or 'none'} -> {after or 'none'}" if before != after else _stays(after))
    return 0


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
    version = await _version(config.database.url)
    return BASE if version is None else _known(version, "the database is at", revisions)


async def _require_no_gateway(url: str) -> None:
    """Refuses to migrate while a gateway runs on the database: it would lose tables and functions
    that it needs."""
    async with reaching(url):
        connection = await operations.connect(url, "howdah command")
        try:
            is_served = await operations.Operations(connection).is_served()
        finally:
            await connection.close()
    if is_served:
        raise CommandError("a gateway runs on this database: stop it before going back")


async def _version(url: str) -> str | None:
    from queue_core.store.operator.migration import current_version

    async with reaching(url):
        return await current_version(url)
