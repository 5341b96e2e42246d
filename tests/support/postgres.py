"""The test session's PostgreSQL: one real server, a fresh database for each test.

The server is the gateway's own runner in a temporary folder, with production settings (fsync on).
HOWDAH_TEST_POSTGRES_BIN chooses other binaries, to run the same tests on another version. What DBAs
use by themselves is tested on a server as a distribution ships it as well: see `on_stock_too`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from tests.support.stock_postgres import StockPostgres

_BIN_DIR_VARIABLE = "HOWDAH_TEST_POSTGRES_BIN"
_numbers = itertools.count(1)


def execute(url: str, *statements: str) -> None:
    """Run statements from code that is not asynchronous, whatever loop the test has."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


def fetch_value(url: str, query: str) -> object:
    """The first column of the first row."""

    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            value: object = await connection.fetchval(query)
            return value
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


@lru_cache
def server_version(url: str) -> int:
    return int(str(fetch_value(url, "SHOW server_version_num")))


def create_database(server: EmbeddedPostgres, name: str, template: str = "template0") -> None:
    """Makes a database by copying files: in memory that takes a seventh of the time which the
    default, copying through the log, takes. PostgreSQL 14 knows no other way."""
    strategy = " STRATEGY file_copy" if server_version(server.url) >= 150_000 else ""
    execute(server.url, f"CREATE DATABASE {name} TEMPLATE {template}{strategy}")


def database_of(server: EmbeddedPostgres, name: str) -> str:
    """The URL of another database on the same server."""
    return server.url.rpartition("/")[0] + f"/{name}"


def chosen_bin_dir() -> Path | None:
    value = os.environ.get(_BIN_DIR_VARIABLE, "")
    return Path(value) if value else None


# For a module whose tests hold on a server with PostgreSQL's own defaults, too.
on_stock_too = pytest.mark.parametrize(
    "postgres_server", ["own", "stock"], indirect=True, scope="session"
)


@pytest.fixture(scope="session")
def own_server() -> Iterator[EmbeddedPostgres]:
    """The gateway's private server, with the settings that it has there."""
    with tempfile.TemporaryDirectory(prefix="howdah-test-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "data", bin_dir=chosen_bin_dir()) as server:
            yield server


@pytest.fixture(scope="session")
def stock_server() -> Iterator[EmbeddedPostgres]:
    """A server with PostgreSQL's own defaults."""
    with tempfile.TemporaryDirectory(prefix="howdah-stock-") as folder:
        Path(folder).chmod(0o711)
        with StockPostgres(Path(folder) / "data") as server:
            yield server


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> EmbeddedPostgres:
    """One of them, for the whole session."""
    server: EmbeddedPostgres = request.getfixturevalue(f"{getattr(request, 'param', 'own')}_server")
    return server


@pytest.fixture(scope="session")
def database_template(postgres_server: EmbeddedPostgres) -> str:
    """The database that each test starts from; a folder's conftest may name one with a schema."""
    return "template0"


@pytest.fixture
def database_url(postgres_server: EmbeddedPostgres, database_template: str) -> Iterator[str]:
    """A database of the test's own, dropped afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    create_database(postgres_server, name, database_template)
    yield database_of(postgres_server, name)
    execute(postgres_server.url, f"DROP DATABASE {name} WITH (FORCE)")
