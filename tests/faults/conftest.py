"""Servers and databases for fault tests, apart from everybody else's: they get killed here."""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from queue_core.store.operator import migration
from tests.faults.history import History
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess
from tests.support.postgres import create_database, execute
from tests.support.standby import Standby, running_standby

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="howdah-faults-") as folder:
        Path(folder).chmod(0o711)
        made = Server(Path(folder) / "data")
        with made.postgres:
            create_database(made.postgres, "migrated")
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, migration.upgrade(made.database("migrated"))).result()
            yield made


@pytest.fixture
def database(server: Server) -> str:
    """The name of a migrated database of the test's own."""
    name = f"fault_{next(_numbers)}"
    create_database(server.postgres, name, "migrated")
    return name


@pytest.fixture
def guest(tmp_path: Path, server: Server, database: str) -> Iterator[GatewayProcess]:
    """A gateway on that database: it is a guest on a server which does not die with it."""
    process = GatewayProcess(tmp_path / "guest", {"database": {"url": server.database(database)}})
    try:
        yield process.start()
    finally:
        process.kill()


@pytest.fixture
def primary(server: Server) -> Iterator[Server]:
    """A server of the test's own, with a migrated database called messages."""
    with tempfile.TemporaryDirectory(prefix="howdah-failover-") as folder:
        Path(folder).chmod(0o711)
        made = Server(Path(folder) / "data")
        with made.postgres:
            execute(made.postgres.url, "CREATE DATABASE messages TEMPLATE template0")
            yield made


@pytest.fixture
def standby(primary: Server) -> Iterator[Standby]:
    with tempfile.TemporaryDirectory(prefix="howdah-standby-") as folder:
        Path(folder).chmod(0o711)
        with running_standby(primary.postgres, Path(folder)) as made:
            yield made


@pytest.fixture
def both(primary: Server, standby: Standby) -> str:
    """The URL of the database with both hosts in it, the primary's first."""
    url = urlsplit(primary.database("messages"))
    other = urlsplit(standby.url(url.geturl()))
    return url._replace(netloc=f"{url.netloc},127.0.0.1:{other.port}").geturl()


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture(autouse=True)
def _quiet_clients() -> None:
    """Clients that knock at a dead gateway's door have nothing to tell about it."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
