"""Row-level security: nobody gets around a policy by a partition, and none of it stops the gateway
without a word."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from queue_core.store.operator import doctor_checks, preflight
from queue_core.store.operator.finding import Level
from tests.support.logins import a_login, logged_in
from tests.support.managers import House, bodies
from tests.support.seed import append, make_queue, make_segment


@pytest.fixture
async def two_queues(db: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A message in each of `mine` and `theirs`, and a policy that shows the first one to all."""
    segment = await make_segment(db)
    for name in ("mine", "theirs"):
        await append(db, segment, await make_queue(db, name), [0])
    await db.execute("ALTER TABLE howdah.message ENABLE ROW LEVEL SECURITY")
    await db.execute(
        "CREATE POLICY only_mine ON howdah.message FOR SELECT USING "
        "(queue_id = (SELECT id FROM howdah.queue WHERE name = 'mine'))"
    )
    yield db
    await db.execute("ALTER TABLE howdah.message DISABLE ROW LEVEL SECURITY")


async def test_a_reader_cannot_go_around_a_policy_by_a_partition(
    two_queues: asyncpg.Connection, migrated_url: str
) -> None:
    async with logged_in(two_queues, migrated_url, "howdah_reader") as reader:
        assert len(await reader.fetch("SELECT * FROM howdah.message")) == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.fetch("SELECT * FROM howdah.message_1")


async def test_a_new_segment_has_rights_for_the_gateway_alone(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    async with logged_in(db, migrated_url) as analyst:
        login = await analyst.fetchval("SELECT current_user")
        await db.execute(f"GRANT USAGE ON SCHEMA howdah TO {login}")
        await db.execute(f"GRANT SELECT ON howdah.message TO {login}")
        segment = await make_segment(db)
        granted = await db.fetch(
            "SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a "
            "WHERE c.oid = $1::text::regclass AND a.grantee <> c.relowner",
            f"howdah.message_{segment}",
        )
        assert [row[0] for row in granted] == ["howdah_gateway"]
        await append(db, segment, await make_queue(db, "q"), [0])
        assert len(await analyst.fetch("SELECT * FROM howdah.message")) == 1


async def test_a_gateway_that_policies_hit_does_not_start_and_says_why(
    two_queues: asyncpg.Connection, migrated_url: str
) -> None:
    async with logged_in(two_queues, migrated_url, "howdah_gateway") as gateway:
        (problem,) = await preflight.check(gateway)
        assert "row-level security on howdah.message hits the user" in problem.cause
        assert "BYPASSRLS" in problem.way_out


async def test_a_gateway_that_bypasses_policies_works_with_them(
    two_queues: asyncpg.Connection, migrated_url: str
) -> None:
    async with a_login(two_queues, migrated_url, "howdah_gateway") as url:
        connection = await asyncpg.connect(url)
        login = await connection.fetchval("SELECT current_user")
        await two_queues.execute(f"ALTER ROLE {login} BYPASSRLS")
        assert await preflight.check(connection) == []
        await connection.close()
        house = await House(url).open()
        try:
            await house.queue("q")
            await house.store("q", b"one", b"two")
            assert bodies(await house.drain("q")) == [b"one", b"two"]
        finally:
            await house.close()


async def test_policies_forced_upon_the_owner_are_refused(
    two_queues: asyncpg.Connection, migrated_url: str
) -> None:
    """By the owner's rights SQL publishes and the views read."""
    async with logged_in(two_queues, migrated_url, "howdah_gateway") as gateway:
        login = await gateway.fetchval("SELECT current_user")
        owner = await two_queues.fetchval("SELECT current_user")
        await two_queues.execute("ALTER TABLE howdah.message FORCE ROW LEVEL SECURITY")
        await two_queues.execute(f"ALTER ROLE {login} BYPASSRLS")
        assert await preflight.check(gateway) == []  # the owner is a superuser here
        await two_queues.execute(f"ALTER TABLE howdah.message OWNER TO {login}")
        await two_queues.execute(f"ALTER ROLE {login} NOBYPASSRLS")
        problems = await preflight.check(gateway)
        await two_queues.execute(f"ALTER TABLE howdah.message OWNER TO {owner}")
        assert "forced on howdah.message" in problems[0].cause
        assert "NO FORCE ROW LEVEL SECURITY" in problems[0].way_out


async def test_the_doctor_warns_of_policies_that_the_views_go_around(
    two_queues: asyncpg.Connection,
) -> None:
    (finding,) = await doctor_checks.row_security(two_queues)
    assert finding.level is Level.WARN
    assert "howdah.message" in finding.what
    await two_queues.execute("ALTER TABLE howdah.message DISABLE ROW LEVEL SECURITY")
    (finding,) = await doctor_checks.row_security(two_queues)
    assert finding.level is Level.OK


async def test_a_login_sees_one_queue_through_a_view_made_for_it(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    """The way that the guide shows for rights on single queues."""
    segment = await make_segment(db)
    for name in ("mine", "theirs"):
        await append(db, segment, await make_queue(db, name), [0])
    await db.execute("CREATE SCHEMA team")
    await db.execute(
        "CREATE VIEW team.mine WITH (security_barrier) AS "
        "SELECT * FROM howdah.ready_messages WHERE vhost = '/' AND queue = 'mine'"
    )
    async with logged_in(db, migrated_url) as member:
        login = await member.fetchval("SELECT current_user")
        await db.execute(f"GRANT USAGE ON SCHEMA team TO {login}")
        await db.execute(f"GRANT SELECT ON team.mine TO {login}")
        for forbidden in ("howdah.ready_messages", "howdah.messages_between(2, 0, 9, NULL)"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await member.fetch(f"SELECT * FROM {forbidden}")
        rows = await member.fetch("SELECT * FROM team.mine")
        assert [row["queue"] for row in rows] == ["mine"]
