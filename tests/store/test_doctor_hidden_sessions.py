"""The doctor under a login that PostgreSQL hides other sessions from: it says what it cannot see,
and concludes nothing from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from queue_core.store.operator import doctor_checks
from queue_core.store.operator.finding import Level
from queue_core.store.operator.queue_operations import connect
from tests.support.logins import a_login
from tests.support.seed import make_segment

_OURS = ("howdah_operator",)


@pytest.fixture
async def plain(db: asyncpg.Connection, migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of the login that the guide documents for the gateway."""
    async with a_login(db, migrated_url, "howdah_gateway") as url:
        connection = await connect(url, "doctor")
        yield connection
        await connection.close()


@pytest.fixture
async def reader(db: asyncpg.Connection, migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another login's transaction, which reads the log and holds back vacuum."""
    await make_segment(db)
    connection = await asyncpg.connect(migrated_url)
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetch("SELECT * FROM howdah.message")
        yield connection
    await connection.close()


async def test_that_nobody_holds_back_vacuum_is_not_said_by_one_who_cannot_see_it(
    plain: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    assert await doctor_checks.oldest_reader(plain) == []
    (finding,) = await doctor_checks.sight(plain)
    login = await plain.fetchval("SELECT current_user")
    assert finding.level is Level.WARN
    assert "cannot be told" in finding.what
    assert f'GRANT pg_read_all_stats TO "{login}"' in finding.way_out


async def test_the_grant_that_is_named_shows_everything(
    db: asyncpg.Connection, plain: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    login = await plain.fetchval("SELECT current_user")
    await db.execute(f"GRANT pg_read_all_stats TO {login}")
    (finding,) = await doctor_checks.sight(plain)
    assert finding.level is Level.OK
    (finding,) = await doctor_checks.oldest_reader(plain)
    assert f"pid {reader.get_server_pid()}" in finding.what


async def test_who_keeps_a_segment_is_named_though_it_is_hidden_since_when(
    db: asyncpg.Connection, plain: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    await db.execute("UPDATE howdah.segment SET sealed_at = now() - interval '3 hours'")
    await db.execute("UPDATE howdah.segment SET retired_at = now() - interval '2 hours'")
    (finding,) = await doctor_checks.segments(plain)
    assert f"pid {reader.get_server_pid()}" in finding.way_out
    assert "hidden" in finding.way_out
    assert "start the gateway" not in finding.way_out


async def test_hidden_sessions_count_as_connections(
    plain: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    await reader.fetch("SELECT pg_stat_clear_snapshot()")
    (theirs,) = await doctor_checks.size(reader)
    (finding,) = await doctor_checks.size(plain)
    assert finding.what.rpartition(";")[2] == theirs.what.rpartition(";")[2]


async def test_the_doctor_says_where_plans_are_compiled(plain: asyncpg.Connection) -> None:
    """The server's setting counts: the doctor's own connection does without."""
    assert await plain.fetchval("SHOW jit") == "off"
    is_available = await plain.fetchval("SELECT pg_jit_available()")
    default = await plain.fetchval("SELECT reset_val FROM pg_settings WHERE name = 'jit'")
    (finding,) = await doctor_checks.compiling(plain)
    is_on = is_available and default == "on"
    assert finding.level is (Level.WARN if is_on else Level.OK)


async def test_the_doctor_names_logins_that_may_connect_and_have_no_role_of_ours(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    """An advisory lock needs no right: whoever may connect can hold up every commit."""
    database = await db.fetchval("SELECT current_database()")
    async with a_login(db, migrated_url) as stranger, a_login(db, migrated_url, *_OURS) as ours:
        names = [urlsplit(url).username for url in (stranger, ours)]
        found = await db.fetch(
            doctor_checks._STRANGERS.replace("LIMIT 4", ""), list(doctor_checks.ROLES)
        )
        assert [name in {row["login"] for row in found} for name in names] == [True, False]
        (finding,) = await doctor_checks.strangers(db)
        assert finding.level is Level.WARN
        assert "advisory lock that commits wait for" in finding.what
        await db.execute(
            f"GRANT CONNECT ON DATABASE {database} TO {', '.join(doctor_checks.ROLES)}"
        )
        await db.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
        try:
            (finding,) = await doctor_checks.strangers(db)
            assert finding.level is Level.OK
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await asyncpg.connect(stranger)
            await (await asyncpg.connect(ours)).close()
        finally:
            await db.execute(f"GRANT CONNECT ON DATABASE {database} TO PUBLIC")
