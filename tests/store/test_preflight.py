"""Before the gateway starts, it is told what its database lacks and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.store.operator import preflight
from queue_core.store.operator.migration import LAST_UNRELEASED, expected_version
from tests.support.postgres import execute


async def _problems(
    url: str, *statements: str, settings: dict[str, str] | None = None
) -> list[str]:
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        for statement in statements:
            await connection.execute(statement)
        return [str(problem) for problem in await preflight.check(connection)]
    finally:
        await connection.close()


@pytest.fixture
def plain_url(postgres_server: EmbeddedPostgres, migrated_url: str) -> Iterator[str]:
    """The URL of a login that was granted nothing."""
    name = f"plain_{os.getpid()}"
    execute(postgres_server.url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    parts = urlsplit(migrated_url)
    yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    execute(migrated_url, f"DROP OWNED BY {name}")
    execute(postgres_server.url, f"DROP ROLE {name}")


async def test_a_migrated_database_is_fit_for_its_owner(migrated_url: str) -> None:
    assert await _problems(migrated_url) == []


async def test_the_role_of_the_gateway_is_enough(migrated_url: str, plain_url: str) -> None:
    execute(migrated_url, f"GRANT howdah_gateway TO {urlsplit(plain_url).username}")
    assert await _problems(plain_url) == []


async def test_a_user_without_grants_is_told_which_to_ask_for(plain_url: str) -> None:
    user = urlsplit(plain_url).username
    assert await _problems(plain_url) == [
        f'the user {user} may not use the schema howdah; run GRANT howdah_gateway TO "{user}"'
    ]


async def test_a_user_who_may_look_but_not_read_the_version_is_told_so(
    migrated_url: str, plain_url: str
) -> None:
    user = urlsplit(plain_url).username
    execute(migrated_url, f"GRANT USAGE ON SCHEMA howdah TO {user}")
    (problem,) = await _problems(plain_url)
    assert "lacks SELECT on howdah.alembic_version" in problem


async def test_each_missing_grant_is_named(migrated_url: str, plain_url: str) -> None:
    user = urlsplit(plain_url).username
    execute(
        migrated_url,
        f"GRANT howdah_gateway TO {user}",
        "REVOKE INSERT ON howdah.message FROM howdah_gateway",
        "REVOKE UPDATE (result) ON howdah.command FROM howdah_gateway",
        "REVOKE EXECUTE ON FUNCTION howdah.drop_generation FROM howdah_gateway",
    )
    (problem,) = await _problems(plain_url)
    assert problem == (
        f"the user {user} lacks INSERT on howdah.message, UPDATE on howdah.command.result, "
        f'EXECUTE on howdah.drop_generation(integer); run GRANT howdah_gateway TO "{user}"'
    )


async def test_a_database_without_the_schema_wants_to_be_migrated(database_url: str) -> None:
    (problem,) = await _problems(database_url)
    assert problem.endswith("has no schema howdah; run howdah migrate")


async def test_a_version_from_the_future_wants_a_newer_release(migrated_url: str) -> None:
    (problem,) = await _problems(
        migrated_url, "UPDATE howdah.alembic_version SET version_num = '9999'"
    )
    assert "is at version 9999, which this release does not know" in problem


async def test_an_old_version_wants_to_be_migrated(migrated_url: str) -> None:
    older = f"UPDATE howdah.alembic_version SET version_num = '{LAST_UNRELEASED}'"
    (problem,) = await _problems(migrated_url, older)
    needed = f"and {expected_version()} is needed; run howdah migrate"
    assert problem.endswith(f"is at version {LAST_UNRELEASED}, {needed}")


async def test_a_version_that_no_step_leads_on_from_wants_an_empty_database(
    migrated_url: str,
) -> None:
    older = "UPDATE howdah.alembic_version SET version_num = '0009'"
    (problem,) = await _problems(migrated_url, older)
    assert "is at version 0009, which this release does not know" in problem
    assert "made before the first release" in problem


@pytest.mark.parametrize(
    ("setting", "value", "cause"),
    [
        ("synchronous_commit", "off", "synchronous_commit is off"),
        ("default_transaction_read_only", "on", "transactions are read-only"),
    ],
)
async def test_a_setting_that_would_break_a_promise_is_a_problem(
    migrated_url: str, setting: str, value: str, cause: str
) -> None:
    (problem,) = await _problems(migrated_url, settings={setting: value})
    assert problem.startswith(cause)
    assert f"SET {setting} =" in problem


async def test_a_session_that_looks_read_only_finds_no_fault_with_itself(
    migrated_url: str,
) -> None:
    assert await _problems(migrated_url, "SET default_transaction_read_only = on") == []


async def test_an_encoding_that_cannot_hold_every_topic_is_a_problem(
    postgres_server: EmbeddedPostgres,
) -> None:
    name = f"latin_{os.getpid()}"
    execute(
        postgres_server.url,
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    try:
        parts = urlsplit(postgres_server.url)
        problems = await _problems(parts._replace(path=f"/{name}").geturl())
        assert [p.partition(";")[0] for p in problems] == [f"database {name} is encoded in LATIN1"]
    finally:
        execute(postgres_server.url, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_server_that_is_too_old_is_a_problem(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "OLDEST_SERVER", 99)
    (problem,) = await _problems(migrated_url)
    assert "and Howdah needs 99 or later; upgrade the server" in problem
