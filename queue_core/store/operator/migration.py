"""Migrates a database to the schema of this release, and back; prints the SQL that would.

Answers for running the revisions in migrations/ over asyncpg, in one transaction each run, and for
saying which version a database is at. It must not know what a revision does.
"""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from queue_core.store.primary import connect_to_any
from queue_core.store.schema import SCHEMA, VERSION_TABLE

OLDEST_SERVER: Final = 14
_SCRIPTS: Final = Path(__file__).parents[3] / "migrations"
_VERSION: Final = f"SELECT version_num FROM {SCHEMA}.{VERSION_TABLE}"

# Before the first release the schema had a step for each change. The last of them left the tables
# that the first release has; who stands at an earlier one stays there.
LAST_UNRELEASED: Final = "0017"
_UNRELEASED: Final = frozenset(f"{number:04}" for number in range(1, 22))

# Alembic keeps what it is doing in globals: a second run beside the first would never end.
_alembic: Final = threading.Lock()


class MigrationError(Exception):
    """The schema cannot be brought where it was asked to be; says why and what to do."""


def expected_version() -> str:
    """Names the revision that this release needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise MigrationError(f"no revisions in {_SCRIPTS}; install howdah again")
    return head


def known_versions() -> tuple[str, ...]:
    """Lists all revisions of this release, oldest first."""
    scripts = ScriptDirectory.from_config(_config())
    return tuple(reversed([script.revision for script in scripts.walk_revisions()]))


def leads_to_newest(version: str) -> bool:
    """Says whether `upgrade` can take a database from this version to the newest one."""
    return version == LAST_UNRELEASED or version in known_versions()


def way_out_of(version: str) -> str:
    """Tells people what to do about a database at a version that no upgrade starts from."""
    if version in _UNRELEASED:
        return (
            "it was made before the first release, and no step leads on from there: give the "
            f"gateway an empty database, or bring this one to {LAST_UNRELEASED} first, with the "
            "code that it is from"
        )
    return "install the release that migrated it, or a later one"


async def current_version(url: str) -> str | None:
    """Reads the revision that a database is at; None where the schema is not there."""
    connection = await connect_to_any(url)
    try:
        return await version_of(connection)
    finally:
        await connection.close()


async def version_of(connection: asyncpg.Connection) -> str | None:
    """Reads the revision as `current_version` does, over a connection that is open already."""
    try:
        version: str | None = await connection.fetchval(_VERSION)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    return version


async def upgrade(url: str) -> str:
    """Brings the database up to the newest revision, and returns it. There is no way up to an older
    one: functions and views fit the newest tables only."""
    await _run(url, lambda config: command.upgrade(config, "head"))
    return await current_version(url) or ""


async def downgrade(url: str, revision: str = "base") -> str | None:
    """Takes the database back to a revision; to `base` with everything that is in it."""
    await _run(url, lambda config: command.downgrade(config, revision))
    return await current_version(url)


def upgrade_sql(since: str = "base") -> str:
    """Prints the SQL that takes a database from a revision to the newest, for psql or review."""
    return _printed(lambda config: command.upgrade(config, f"{since}:head", sql=True))


def downgrade_sql(revision: str = "base", *, since: str | None = None) -> str:
    """Prints the SQL that takes a database from one revision (the newest) back to another."""
    start = since or expected_version()
    return _printed(lambda config: command.downgrade(config, f"{start}:{revision}", sql=True))


def _config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output else Config()
    # Percent signs in the path would be taken for interpolation.
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config


def _printed(action: Callable[[Config], None]) -> str:
    output = io.StringIO()
    action(_config(output))
    return output.getvalue()


async def _run(url: str, action: Callable[[Config], None]) -> None:
    if not _alembic.acquire(blocking=False):
        raise MigrationError("a migration is running in this process already; wait for its end")
    try:
        async with _connected(url) as connection:
            await _check_server(connection)
            await _check_version(url)
            await connection.run_sync(_within, action)
            await connection.commit()
    except CommandError as error:
        known = ", ".join(known_versions())
        raise MigrationError(f"{error}; known revisions are {known}, head and base") from error
    except DBAPIError as error:
        raise MigrationError(_explained(error)) from error
    finally:
        _alembic.release()


async def _check_version(url: str) -> None:
    """Refuses a database at a revision that is unknown here. Alembic would take the number of one
    from before the first release for the beginning of a newer one's name."""
    version = await current_version(url)
    if version is not None and not leads_to_newest(version):
        raise MigrationError(f"the schema is at version {version}; {way_out_of(version)}")


def _within(connection: Connection, action: Callable[[Config], None]) -> None:
    config = _config()
    config.attributes["connection"] = connection
    action(config)


def _explained(error: DBAPIError) -> str:
    """Repeats the server's words with its detail and its hint, which SQLAlchemy leaves out."""
    cause = error.orig.__cause__ if error.orig else None
    if not isinstance(cause, asyncpg.PostgresError):
        return str(error.orig)
    said = (cause.message, cause.detail, cause.hint)
    return "; ".join(part.strip().rstrip(".") for part in said if part)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[AsyncConnection]:
    """Connects with the url as asyncpg reads it, sslmode and all, not as SQLAlchemy would."""

    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        return await connect_to_any(url, seconds=30)

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, poolclass=NullPool, hide_parameters=True
    )
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def _check_server(connection: AsyncConnection) -> None:
    result = await connection.exec_driver_sql("SHOW server_version_num")
    number = int(result.scalar_one())
    if number < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"the server is PostgreSQL {number // 10_000}, and Howdah needs {OLDEST_SERVER} or "
            "later; upgrade the server, or leave database.url out to run the embedded one"
        )
