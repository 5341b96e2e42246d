"""Provides the database of a gateway: the one that `database.url` names, or a private one.

Answers for there being a PostgreSQL with our schema, for as long as the gateway runs. It must not
know what is stored in it. Migrations are imported where they are used: Alembic takes half a second,
and most commands need none.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg

from gateway.config.keys import Config
from gateway.postgres.server import EmbeddedPostgres
from queue_core.access.scram import Verifier
from queue_core.errors import StoreUnavailable
from queue_core.store.nodes.locks import gateways_there
from queue_core.store.primary import NoPrimary, connect_to_any

if TYPE_CHECKING:
    from queue_core.store.operator.preflight import Problem

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
SERVING_ROLE = "howdah_serving"
SERVING_ITERATIONS = 4096  # PostgreSQL's own; the password is random and lives as long as we do
ROLE_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
PRIVATE_WAY_OUT = (
    "a running gateway starts it again by itself: try again in a moment, and see its log and "
    "postgres.log in data_dir"
)
# What the server says of statements that are right where the schema of this version is.
SCHEMA_MISSING = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)


class PrivateUrl(str):
    """The URL of the private PostgreSQL: nobody configured it, so messages must not tell people to
    correct it."""

    __slots__ = ()


class DatabaseError(Exception):
    """PostgreSQL cannot be used; says why and what to do."""


@asynccontextmanager
async def open_database(config: Config) -> AsyncIterator[str]:
    """Yields the URL of a PostgreSQL that has our schema, and keeps it running if it is our own."""
    if config.database.url is not None:
        await _make_fit(config.database.url, may_migrate=config.database.migrate)
        yield config.database.url
        return
    async with private_server(config) as server:
        url = PrivateUrl(server.url)
        await _make_fit(url, may_migrate=True)
        serving = await _serving_url(url)
        keeper = asyncio.create_task(server.keep_running(), name="private PostgreSQL")
        try:
            yield serving
        finally:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper


async def _serving_url(url: str) -> PrivateUrl:
    """Makes the URL by which the gateway itself uses its private PostgreSQL: as an ordinary login
    with the rights of howdah_gateway, so that a hole in the gateway opens no more than its own
    tables. The superuser's stays for migrations, commands and people. The password is this start's
    own, is kept in memory only, and the server is told its verifier."""
    password = secrets.token_urlsafe(24)
    async with reaching(url):
        connection = await connect_to_any(url, seconds=CONNECT_SECONDS)
        try:
            exists = await connection.fetchval(ROLE_EXISTS, SERVING_ROLE)
            await connection.execute(
                f"{'ALTER' if exists else 'CREATE'} ROLE {SERVING_ROLE} LOGIN NOSUPERUSER "
                "NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS "
                f"PASSWORD '{Verifier.of(password, iterations=SERVING_ITERATIONS)}'"
            )
            await connection.execute(f"GRANT howdah_gateway TO {SERVING_ROLE}")
        finally:
            await connection.close()
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return PrivateUrl(parts._replace(netloc=f"{SERVING_ROLE}:{password}@{place}").geturl())


@asynccontextmanager
async def private_server(config: Config) -> AsyncIterator[EmbeddedPostgres]:
    """Runs the server in data_dir for as long as the block takes. Raises DataDirInUse."""
    settings = {name: _setting(value) for name, value in config.postgres.settings.items()}
    server = EmbeddedPostgres(
        Path(config.data_dir), settings=settings, bin_dir=config.postgres.bin_dir
    )
    await server.start_beside()
    try:
        yield server
    finally:
        server.stop()


def _setting(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _make_fit(url: str, *, may_migrate: bool) -> None:
    """Migrates the schema where that is all that is wrong; a login that may not change the schema
    gets by as long as there is nothing to change."""
    from queue_core.store.operator.preflight import MIGRATE

    problems = await _problems(url)
    if problems and may_migrate and all(problem.way_out == MIGRATE for problem in problems):
        await bring_up_to_date(url)
        problems = await _problems(url)
    if problems:
        raise DatabaseError("\n".join(f"{place_of(url)}: {problem}" for problem in problems))


async def _problems(url: str) -> list[Problem]:
    from queue_core.store.operator import doctor_checks, preflight
    from queue_core.store.operator.finding import Level

    async with reaching(url):
        connection = await connect_to_any(url, seconds=CONNECT_SECONDS)
        try:
            problems = await preflight.check(connection)
            found = [] if problems else await doctor_checks.safety(connection)
        finally:
            await connection.close()
    for each in found:
        if each.level is not Level.OK:  # may be wanted, for a trial: the start goes on
            logger.warning("%s. Way out: %s", each.what, each.way_out)
    return problems


async def bring_up_to_date(url: str) -> str:
    """Migrates the database to the newest revision where it is behind; returns that revision."""
    from queue_core.store.operator import migration

    newest = migration.expected_version()
    async with reaching(url):
        version = await migration.current_version(url)
        if version == newest:
            return version
        await _require_no_gateway(url, f"from {version or 'nothing'} to {newest}")
        logger.info("migrating the schema from %s to %s", version or "nothing", newest)
        try:
            return await migration.upgrade(url)
        except migration.MigrationError as error:
            raise unusable(url, error) from error


async def _require_no_gateway(url: str, way: str) -> None:
    """Refuses to change the schema below a gateway that runs, which knows only the one it has."""
    connection = await connect_to_any(url, seconds=CONNECT_SECONDS)
    try:
        there = await gateways_there(connection)
    finally:
        await connection.close()
    if there:
        raise DatabaseError(
            f"{place_of(url)}: the schema has to be migrated {way}, and a gateway of another "
            f"release runs on it ({', '.join(there)}): stop all gateways of this database first"
        )


async def take_back(url: str, revision: str) -> str | None:
    """Takes the database back to an older revision."""
    from queue_core.store.operator import migration

    async with reaching(url):
        try:
            return await migration.downgrade(url, revision)
        except migration.MigrationError as error:
            raise unusable(url, error) from error


@asynccontextmanager
async def reaching(url: str) -> AsyncIterator[None]:
    """Turns errors on the way to a database into messages with a way out."""
    try:
        yield
    except UNREACHABLE as error:
        raise unusable(url, error) from error
    except StoreUnavailable as error:
        raise unusable(url, error) from error


def unusable(url: str, error: BaseException) -> DatabaseError:
    """Explains why a database cannot be used, in the server's words where it had any; never with
    the password."""
    said = server_error(error)
    if isinstance(said, UNREACHABLE):
        way_out = PRIVATE_WAY_OUT if _is_private_outage(url, said) else _way_out(said)
        return DatabaseError(
            f"{place_of(url)} cannot be used: {_reason(said).rstrip(';.')}; {way_out}"
        )
    return DatabaseError(f"{place_of(url)} cannot be used: {error}")


def server_error(error: BaseException) -> BaseException:
    """Returns the server's own error, below those that libraries raised from it."""
    said = error
    while not isinstance(said, UNREACHABLE) and said.__cause__ is not None:
        said = said.__cause__
    return said


def place_of(url: str) -> str:
    """Names a database by its host and name: the part of its URL that a message may show."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or "localhost"
    place = f"{','.join(map(_with_port, hosts.split(',')))}{parts.path}"
    if isinstance(url, PrivateUrl):
        return f"the private PostgreSQL in data_dir ({place})"
    return f"database.url: {place}"


def _with_port(host: str) -> str:
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:5432"


def _is_private_outage(url: str, error: BaseException) -> bool:
    return isinstance(url, PrivateUrl) and not isinstance(error, asyncpg.PostgresError)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    message = getattr(error, "message", None) or str(error)
    if isinstance(error, asyncpg.DependentObjectsStillExistError):
        return f"{message}: {error.detail}"  # the hint is CASCADE, which nobody should follow
    hint = getattr(error, "hint", None)
    return f"{message}. {hint}" if hint else message or type(error).__name__


def _way_out(error: BaseException) -> str:
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return "see the user and the password in database.url, and pg_hba.conf on the server"
        case asyncpg.InvalidCatalogNameError():
            return "make the database first: CREATE DATABASE ... ENCODING 'UTF8'"
        case _ if isinstance(error, SCHEMA_MISSING):
            return (
                "run `howdah migrate`, and if that changes nothing `howdah doctor`, which names "
                "tables that somebody dropped or renamed"
            )
        case asyncpg.InsufficientPrivilegeError() if getattr(error, "hint", None):
            return "or let a DBA run all of it, which `howdah migrate --sql` prints"
        case asyncpg.InsufficientPrivilegeError():
            return (
                "let a DBA run the output of `howdah migrate --sql` and GRANT howdah_gateway to "
                "this user, or give it the right to create a schema and roles"
            )
        case NoPrimary():
            return "see that one of them runs as the primary, and that this machine may connect"
        case asyncpg.ReadOnlySQLTransactionError():
            return "this server takes no writes: point database.url at the primary"
        case asyncpg.DiskFullError():
            return "the database's disk is full: make room there"
        case asyncpg.LockNotAvailableError():
            return "somebody holds a lock that this needs: `howdah doctor` names who"
        case asyncpg.TooManyConnectionsError() if "for role" in str(error):
            return "raise that limit: ALTER ROLE ... CONNECTION LIMIT, see rolconnlimit in pg_roles"
        case asyncpg.TooManyConnectionsError() if "for database" in str(error):
            return "raise that limit: ALTER DATABASE ... CONNECTION LIMIT"
        case asyncpg.TooManyConnectionsError():
            return "raise max_connections, or end some: SELECT * FROM pg_stat_activity"
        case asyncpg.DependentObjectsStillExistError():
            return "drop or move what is named there and try again; nothing was changed"
        case asyncpg.CannotConnectNowError():
            return "the server is starting or stopping: try again in a moment"
        case _:
            return "see that PostgreSQL runs there and that this machine may connect to it"
