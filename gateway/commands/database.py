"""Connects a command to the database: by `database.url`, or to the private PostgreSQL in data_dir.

The private one is used where it runs; where no gateway runs it, it is started for as long as the
command takes. Knows nothing of what a command asks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import asyncpg

from gateway.commands.command import CommandError
from gateway.config.keys import Config
from gateway.database import (
    SCHEMA_MISSING,
    UNREACHABLE,
    DatabaseError,
    PrivateUrl,
    bring_up_to_date,
    private_server,
    reaching,
    server_error,
    unusable,
)
from gateway.postgres.cluster import DATABASE, HOST, ROLE
from gateway.postgres.errors import DataDirInUse
from queue_core.store.operator import queue_operations
from queue_core.store.operator.queue_operations import Operations
from queue_core.store.planner_settings import NO_JIT
from queue_core.store.primary import connect_to_any

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

CONNECT_SECONDS = 10
# Asked of the catalog, which everybody may read.
LACK = """
SELECT EXISTS (
           SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = 'howdah' AND c.relname = 'alembic_version') AS is_migrated,
       coalesce(pg_has_role(to_regrole($1)::oid, 'USAGE'), false) AS has_role
"""


@asynccontextmanager
async def database_url(config: Config, *, make: bool = False) -> AsyncIterator[str]:
    """Yields the URL of the database, which runs at least until the end of the block. With `make`,
    a private one is made where there is none yet."""
    if config.database.url is not None:
        yield config.database.url
        return
    data_dir = _absolute(config.data_dir)
    if not make and not _holds_database(data_dir):
        raise CommandError(
            f"there is no database in data_dir {data_dir}: start the gateway there with "
            "`howdah serve`, name its configuration with --config, or set database.url"
        )
    async with AsyncExitStack() as stack:
        try:
            url = (await stack.enter_async_context(private_server(config))).url
        except DataDirInUse:
            url = _url_of_running(data_dir)
        yield PrivateUrl(url)


def _absolute(data_dir: Path) -> Path:
    return data_dir.absolute()


def _holds_database(data_dir: Path) -> bool:
    return (data_dir / "postgres").exists()


def _url_of_running(data_dir: Path) -> str:
    try:
        port = int((data_dir / "postgres.port").read_text())
        password = (data_dir / "postgres.password").read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(
            f"the gateway in {data_dir} runs, but its database cannot be found: {reason}: "
            "run this as the user who started the gateway, or wait until it says ready"
        ) from error
    return f"postgresql://{ROLE}:{password}@{HOST}:{port}/{DATABASE}"


@asynccontextmanager
async def connected(config: Config) -> AsyncIterator[asyncpg.Connection]:
    """Yields a database connection for one command."""
    async with database_url(config) as url:
        try:
            connection = await queue_operations.connect(url, "howdah command", CONNECT_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise unusable(url, error) from error
        try:
            yield connection
        except SCHEMA_MISSING as error:
            said = getattr(error, "message", error)  # without hints on types
            raise CommandError(
                f"the database has no schema howdah yet, or an older one ({said}): run "
                "`howdah migrate`, and if that changes nothing `howdah doctor`"
            ) from error
        except asyncpg.InsufficientPrivilegeError as error:
            raise CommandError(f"{error}: {await _lack(url, 'howdah_operator')}") from error
        except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError) as error:
            raise DatabaseError(f"the database went away: {error}: try again") from error
        except asyncpg.PostgresError as error:  # a full disk, a standby, somebody who cancels
            raise unusable(url, error) from error
        finally:
            await connection.close(timeout=CONNECT_SECONDS)


async def _lack(url: str, role: str) -> str:
    """Says what helps a login that was denied something: a grant of the role, unless that would be
    in vain, because there is no schema to grant it on, or the login has it already."""
    try:
        connection = await connect_to_any(url, seconds=CONNECT_SECONDS)
        try:
            row = await connection.fetchrow(LACK, role)
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except UNREACHABLE:
        row = None
    if row is not None and not row["is_migrated"]:
        return (
            "the schema howdah is not migrated yet: run `howdah migrate` as the login that owns it"
        )
    if row is not None and row["has_role"]:
        return (
            f"this login has {role} already, so the schema may be older than this release: have "
            "its owner run `howdah migrate`; if that changes nothing, somebody has revoked a right"
        )
    return f"ask a DBA for {_grant(role, url)}"


def _grant(role: str, url: str) -> str:
    """Writes the GRANT that a DBA is to run; where the URL names no login, the DBA has to know
    it."""
    login = urlsplit(url).username
    return f"GRANT {role}" + (f' TO "{unquote(login)}"' if login else " to this login")


@asynccontextmanager
async def operating(config: Config) -> AsyncIterator[Operations]:
    async with connected(config) as connection:
        yield Operations(connection)


@asynccontextmanager
async def engine_for(config: Config, *, make: bool = False) -> AsyncIterator[AsyncEngine]:
    """Yields an engine for the cold tables of the store. With `make`, database and schema are made
    where missing."""
    # A quarter of a second that the other commands do without.
    from sqlalchemy.exc import ProgrammingError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    async with database_url(config, make=make) as url:
        if make and (config.database.url is None or config.database.migrate):
            await bring_up_to_date(url)

        async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
            connection = await connect_to_any(url, seconds=CONNECT_SECONDS)
            await connection.execute(NO_JIT)
            return connection

        engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connect,
            poolclass=NullPool,
            hide_parameters=True,  # an error's text is shown, and they may be passwords
        )
        try:
            async with reaching(url):
                yield engine
        except (ProgrammingError, DatabaseError) as error:
            said = server_error(error)
            if isinstance(said, asyncpg.InsufficientPrivilegeError):
                raise CommandError(
                    f"{said}: users and virtual hosts are kept in the gateway's own tables; use "
                    f"its login, or {await _lack(url, 'howdah_gateway')}"
                ) from error
            if isinstance(said, SCHEMA_MISSING):
                raise unusable(url, error) from error
            raise
        finally:
            await engine.dispose()
