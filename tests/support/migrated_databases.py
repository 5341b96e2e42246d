"""Databases with the schema in them, for tests of the store."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.store.operator import migration
from tests.support.managers import House
from tests.support.postgres import create_database, database_of, execute

_numbers = itertools.count(1)
_templates: dict[int, str] = {}  # of each server, by its port


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres) -> str:
    """A database at the newest version, migrated once and copied for each test."""
    if postgres_server.port in _templates:
        return _templates[postgres_server.port]
    name = f"template_{os.getpid()}_{next(_numbers)}"  # another folder may want one as well
    create_database(postgres_server, name)
    url = database_of(postgres_server, name)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migration.upgrade(url)).result()
    _templates[postgres_server.port] = name
    return name


@pytest.fixture
def migrated_url(postgres_server: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    name = f"migrated_{os.getpid()}_{next(_numbers)}"
    create_database(postgres_server, name, migrated_template)
    yield database_of(postgres_server, name)
    execute(postgres_server.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the migrated database, as the owner of everything."""
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


@pytest.fixture
async def other(migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A second connection to the migrated database, for transactions beside the first's."""
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    """A manager on it, open, with a clock that the test moves."""
    house = await House(migrated_url).open()
    yield house
    await house.close()
