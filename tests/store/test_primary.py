"""Several hosts in database.url: the one that takes writes is found, whatever the others do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import asyncpg
import pytest

from queue_core.store.primary import NoPrimary, connect_to_any, connect_to_primary
from tests.support.managers import House
from tests.support.ports import lasting_port
from tests.support.until import PATIENCE_SECONDS


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word, as a frozen host's does."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def on_ports(url: str, *ports: int | None) -> str:
    """That database on several ports of this machine; None: the one that it is really on."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    hosts = ",".join(f"127.0.0.1:{port or parts.port}" for port in ports)
    return parts._replace(netloc=f"{login}@{hosts}").geturl()


async def test_a_host_that_never_answers_holds_nobody_up(database_url: str, silent: int) -> None:
    url = on_ports(database_url, silent, lasting_port(), None)
    connection = await asyncio.wait_for(connect_to_primary(url, seconds=10), PATIENCE_SECONDS)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_each_host_is_named_with_what_is_wrong_with_it(
    database_url: str, silent: int
) -> None:
    refusing = lasting_port()
    url = on_ports(database_url, silent, refusing)
    with pytest.raises(NoPrimary) as refused:
        await connect_to_primary(url, seconds=1)
    assert f"127.0.0.1:{silent}: it does not answer" in str(refused.value)
    assert f"127.0.0.1:{refusing}: " in str(refused.value)
    assert "@" not in str(refused.value)


async def test_a_server_that_takes_no_writes_is_passed_over(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await connection.close()
    with pytest.raises(NoPrimary, match="takes no writes"):
        await connect_to_primary(database_url)
    with pytest.raises(NoPrimary, match=r"takes no writes.*takes no writes"):
        await connect_to_any(on_ports(database_url, None, None))
    one = await connect_to_any(database_url)  # somebody may want to read there
    await one.close()


async def test_a_refused_login_is_told_as_the_server_says_it(
    database_url: str, silent: int
) -> None:
    parts = urlsplit(on_ports(database_url, silent, None))
    unknown = parts._replace(path="/no_such_database").geturl()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connect_to_primary(unknown, seconds=1)


async def test_a_gateway_opens_with_a_dead_host_in_its_url(migrated_url: str, silent: int) -> None:
    house = await House(on_ports(migrated_url, silent, None)).open()
    await house.queue("q")
    await house.store("q", b"1")
    assert [each.message.body for each in await house.drain("q")] == [b"1"]
    await house.close()
