"""The role howdah_gateway is enough for a whole life: what it is not granted, no manager needs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.store.database import StoreSettings
from queue_core.store.operator import preflight
from queue_core.store.write.segments import SegmentLimits
from tests.support.managers import BRISK, House, bodies
from tests.support.postgres import execute

SMALL_SEGMENTS = replace(BRISK, store=StoreSettings(segments=SegmentLimits(10_000)))


@pytest.fixture
async def plain_house(postgres_server: EmbeddedPostgres, migrated_url: str) -> AsyncIterator[House]:
    """A manager that owns nothing in the database, and cuts a segment for every few messages."""
    name = f"gateway_{os.getpid()}"
    execute(
        postgres_server.url,
        f"CREATE ROLE {name} LOGIN PASSWORD 'secret' NOSUPERUSER IN ROLE howdah_gateway",
    )
    parts = urlsplit(migrated_url)
    url = parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    house = await House(url, settings=SMALL_SEGMENTS).open()
    yield house
    await house.close()
    execute(postgres_server.url, f"DROP ROLE {name}")


async def test_the_preflight_lets_the_role_pass(plain_house: House) -> None:
    connection = await asyncpg.connect(plain_house.url)
    try:
        assert await preflight.check(connection) == []
    finally:
        await connection.close()


async def test_the_role_learns_which_server_and_timeline_it_is_on(
    plain_house: House, db: asyncpg.Connection
) -> None:
    (row,) = await db.fetch("SELECT server, timeline, database FROM howdah.ownership")
    assert row["server"] == await db.fetchval(
        "SELECT system_identifier::text FROM pg_control_system()"
    )
    assert row["timeline"] == 1
    assert row["database"] > 0


async def test_queues_fill_and_empty_and_their_segments_go(
    plain_house: House, db: asyncpg.Connection
) -> None:
    house = plain_house
    await house.queue("q")
    await house.stream("s")
    for number in range(6):
        await house.store("q", b"%d" % number, b"x" * 6_000)
        await house.store("s", b"y" * 6_000)
        await house.upkeep()
    first, *_ = await db.fetchval("SELECT array_agg(id ORDER BY id) FROM howdah.segment")
    drained = await house.drain("q")
    assert bodies(drained)[::2] == [b"%d" % number for number in range(6)]
    await house.upkeep()
    assert await db.fetchval("SELECT count(*) FROM howdah.segment WHERE id = $1", first) == 0


async def test_what_outlives_its_segment_is_carried_forward(
    plain_house: House, db: asyncpg.Connection
) -> None:
    house = plain_house
    await house.queue("slow")
    await house.queue("fast")
    await house.store("slow", b"still here")
    for _ in range(3):
        await house.store("fast", *[b"x" * 50] * 300)
        await house.upkeep()
    await house.drain("fast")
    await house.upkeep()
    await house.upkeep()
    await house.store("fast", b"opens the segment that it goes to")
    await house.upkeep()
    await house.upkeep()
    assert house.manager.counters.carried_forward == 1
    rows = await db.fetch("SELECT body FROM howdah.ready_messages WHERE queue = 'slow'")
    assert [row[0] for row in rows] == [b"still here"]


async def test_work_from_sql_is_taken(plain_house: House, db: asyncpg.Connection) -> None:
    house = plain_house
    await house.queue("q")
    await db.execute("SELECT howdah.publish('q', 'from SQL')")
    inbox, _ = await house.consume("q")
    assert bodies(await inbox.has(1)) == [b"from SQL"]


async def test_it_starts_again_where_it_left_off(plain_house: House) -> None:
    await plain_house.queue("q")
    await plain_house.store("q", b"a", b"b")
    await plain_house.reopen()
    assert bodies(await plain_house.drain("q")) == [b"a", b"b"]
