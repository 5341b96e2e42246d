"""Trouble between a command or a gateway and its PostgreSQL is named as what it is, on a
real server, and the way out that is printed is one."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.store.operator.migration import known_versions, upgrade
from tests.support.gateway_process import GatewayProcess, howdah, running
from tests.support.logins import a_login
from tests.support.operator import refusal
from tests.support.postgres import execute
from tests.support.seed import make_queue

COMMANDS = (["queue", "list"], ["publish", "a", "b"], ["user", "list"], ["vhost", "list"])


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of the database's owner."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def stranger(owner: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    """The URL of a login that was granted nothing."""
    async with a_login(owner, database_url) as url:
        yield url


def configured(url: str, **more: str) -> dict[str, str]:
    return {"HOWDAH_DATABASE__URL": url, **more}


# --- a schema that is not migrated, and grants


def test_where_a_dba_made_the_schema_and_nobody_migrated_it_no_grant_is_asked_for(
    database_url: str, stranger: str
) -> None:
    execute(database_url, "CREATE SCHEMA howdah")
    for arguments in COMMANDS:
        words = refusal(howdah(*arguments, environ=configured(stranger)))
        assert "run `howdah migrate`" in words, arguments
        assert "GRANT" not in words, arguments
    found = howdah("doctor", environ=configured(stranger))
    assert "is not migrated\n     -> run howdah migrate" in found.stdout
    assert "GRANT howdah_gateway" not in found.stdout


def test_where_the_schema_is_there_the_grant_is_named(database_url: str, stranger: str) -> None:
    assert howdah("migrate", environ=configured(database_url)).returncode == 0
    user = urlsplit(stranger).username
    for arguments in COMMANDS:
        words = refusal(howdah(*arguments, environ=configured(stranger)))
        assert re.search(rf'GRANT howdah_(operator|gateway) TO "{user}"', words), arguments
        assert "howdah migrate" not in words, arguments


async def test_a_login_is_told_that_a_definition_is_hidden_and_by_which_grant_it_is_not(
    owner: asyncpg.Connection, database_url: str
) -> None:
    assert howdah("migrate", environ=configured(database_url)).returncode == 0
    await make_queue(owner, "q")
    await owner.execute("REVOKE SELECT ON howdah.queue, howdah.binding FROM howdah_operator")
    async with a_login(owner, database_url, "howdah_operator") as url:
        shown = howdah("queue", "show", "q", environ=configured(url)).stdout
        assert "name:         q" in shown
        grant = re.search(r"ask a DBA for (GRANT SELECT .+)", shown)
        assert grant is not None
        await owner.execute(f"{grant[1]} TO {urlsplit(url).username}")
        assert "arguments:    {}" in howdah("queue", "show", "q", environ=configured(url)).stdout
        await owner.execute(f"DROP OWNED BY {urlsplit(url).username}")


async def test_a_login_that_has_the_role_is_told_that_the_schema_may_be_old(
    owner: asyncpg.Connection, database_url: str
) -> None:
    """An old schema is one whose operators could not see virtual hosts."""
    await upgrade(database_url)
    async with a_login(owner, database_url, "howdah_operator") as operator:
        await owner.execute("REVOKE SELECT ON howdah.vhost FROM howdah_operator")
        words = refusal(howdah("queue", "list", "--vhost", "none", environ=configured(operator)))
    assert "howdah migrate" in words
    assert "GRANT" not in words


async def test_a_gateway_migrates_a_schema_that_a_dba_made_for_its_login(
    owner: asyncpg.Connection, database_url: str, stranger: str, tmp_path: Path
) -> None:
    await owner.execute(f"CREATE SCHEMA howdah AUTHORIZATION {urlsplit(stranger).username}")
    await owner.execute(
        "DO $$ BEGIN IF to_regrole('howdah_gateway') IS NULL THEN "
        "CREATE ROLE howdah_gateway; CREATE ROLE howdah_operator; CREATE ROLE howdah_publisher; "
        "CREATE ROLE howdah_reader; END IF; END $$"
    )
    with running(tmp_path / "gateway", {"database": {"url": stranger}}):
        version = await owner.fetchval("SELECT version_num FROM howdah.alembic_version")
    assert version == known_versions()[-1]


# --- limits on connections


@pytest.mark.parametrize("limited", ["role", "database"])
async def test_a_limit_on_connections_is_named_with_what_raises_it(
    owner: asyncpg.Connection, database_url: str, limited: str, tmp_path: Path
) -> None:
    await upgrade(database_url)
    async with a_login(owner, database_url, "howdah_operator", "howdah_gateway") as url:
        name = urlsplit(url).username if limited == "role" else urlsplit(url).path.lstrip("/")
        held = await asyncpg.connect(url)
        await owner.execute(f"ALTER {limited} {name} CONNECTION LIMIT 1")
        try:
            for arguments in (["queue", "list"], ["user", "list"], ["serve"]):
                environ = configured(url, HOWDAH_DATA_DIR=str(tmp_path))
                words = refusal(howdah(*arguments, environ=environ))
                assert f'too many connections for {limited} "{name}"' in words, arguments
                assert f"ALTER {limited.upper()} ... CONNECTION LIMIT" in words, arguments
                assert "max_connections" not in words, arguments
            found = howdah("doctor", environ=configured(url))
            assert f'too many connections for {limited} "{name}"' in found.stdout
        finally:
            await held.close()


# --- doctor, whose database is away


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway whose PostgreSQL has just been stopped."""
    server = EmbeddedPostgres(tmp_path / "database", settings={"shared_buffers": "32MB"})
    with server, running(tmp_path / "gateway", {"database": {"url": server.url}}) as gateway:
        server.stop()
        yield gateway


def test_a_gateway_is_known_by_what_its_listeners_say_of_themselves(
    orphan: GatewayProcess,
) -> None:
    nothing = {f"HOWDAH_LISTENERS__{name}": "null" for name in ("MANAGEMENT", "AMQP")}
    for environ in (
        {},
        {"HOWDAH_LISTENERS__MANAGEMENT": "null"},
        {"HOWDAH_LISTENERS__AMQP": "null", "http_proxy": "http://127.0.0.1:1"},
    ):
        found = orphan.run("doctor", environ=environ)
        assert found.returncode == 1
        assert "FAIL the database cannot be examined" in found.stdout
        assert "listeners: the gateway is running" in found.stdout, environ
        assert "in use" not in found.stdout
    found = orphan.run("doctor", environ=nothing)
    mqtt = (
        f"listeners.mqtt.port: 127.0.0.1:{orphan.ports['mqtt']} is in use, and nobody tells by whom"
    )
    assert mqtt in found.stdout
    assert "it may be the gateway of this configuration" in found.stdout
    assert "another program" not in found.stdout


def test_a_server_of_another_kind_is_not_taken_for_the_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {
            "HOWDAH_DATA_DIR": str(tmp_path),
            "HOWDAH_LISTENERS__AMQP__PORT": str(taken.getsockname()[1]),
            "HOWDAH_LISTENERS__MQTT": "null",
            "HOWDAH_LISTENERS__MQTT_WS": "null",
            "HOWDAH_LISTENERS__MANAGEMENT": "null",
        }
        found = howdah("doctor", environ=configured("postgresql://u:p@127.0.0.1:1/db", **environ))
    assert "the gateway is running" not in found.stdout
    assert "is in use, and nobody tells by whom" in found.stdout
