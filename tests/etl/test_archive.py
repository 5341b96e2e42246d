"""archive: no segment goes before its copy is confirmed, whatever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from spark_etl.archive import STEPS, archive, read_archive, waiting_segments
from spark_etl.errors import EtlError
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEALED = "SELECT count(*) FROM howdah.segment WHERE sealed_at IS NOT NULL"


class Killed(BaseException):
    """Not an error that anybody handles."""


@pytest.fixture
async def kept(migrated_url: str) -> AsyncIterator[House]:
    """A stream of 200 messages whose retention is long over, marked for archive."""
    house = await House(migrated_url).with_segments(50_000).open()
    await house.stream("s", max_length_bytes=10_000)
    connection = await asyncpg.connect(migrated_url)
    await connection.execute("SELECT howdah.keep_for_archive('s')")
    await connection.close()
    for start in range(0, 200, 20):
        await house.store("s", *[b"%d:".ljust(1000, b"x") % i for i in range(start, start + 20)])
    await house.upkeep()
    yield house
    await house.close()


async def archived(spark: SparkSession, out: Path) -> list[int]:
    rows = await asyncio.to_thread(lambda: read_archive(spark, out).select("offset").collect())
    return sorted(row.offset for row in rows)


async def test_a_marked_segment_stays_until_its_copy_is_confirmed(
    spark: SparkSession, kept: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    before = await db.fetchval(SEALED)
    assert before >= 2
    assert kept.manager.counters.segments_dropped == 0
    done = await asyncio.to_thread(archive, spark, kept.url, tmp_path / "out")
    assert len(done) == before
    await kept.upkeep()
    assert kept.manager.counters.segments_dropped == before
    found = await archived(spark, tmp_path / "out")
    assert found == list(range(sum(segment.messages for segment in done)))
    assert await asyncio.to_thread(waiting_segments, spark, kept.url) == []


async def test_an_archive_that_ends_after_any_step_is_taken_up_again(
    spark: SparkSession, kept: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for fatal in STEPS:

        def die(step: str, fatal: str = fatal) -> None:
            if step == fatal:
                raise Killed

        before = await db.fetchval("SELECT count(*) FROM howdah.segment WHERE archive IS NOT NULL")
        with pytest.raises(Killed):
            await asyncio.to_thread(archive, spark, kept.url, out, on_step=die)
        after = await db.fetchval("SELECT count(*) FROM howdah.segment WHERE archive IS NOT NULL")
        assert after - before == (1 if fatal == "confirmed" else 0)
    await asyncio.to_thread(archive, spark, kept.url, out)
    found = await archived(spark, out)
    assert found == list(range(len(found)))
    assert await asyncio.to_thread(waiting_segments, spark, kept.url) == []


async def test_the_database_itself_refuses_to_drop_a_marked_segment(
    kept: House, db: asyncpg.Connection
) -> None:
    segment = await db.fetchval("SELECT min(id) FROM howdah.segment")
    with pytest.raises(asyncpg.ObjectInUseError, match="not archived yet"):
        await db.execute("SELECT howdah.drop_segment($1)", segment)
    await db.execute("SELECT howdah.keep_for_archive('s', keep => false)")
    await kept.upkeep()
    assert kept.manager.counters.segments_dropped > 0


async def test_a_directory_with_other_things_in_it_is_left_alone(
    spark: SparkSession, kept: House, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(EtlError, match="no archive of ours"):
        await asyncio.to_thread(archive, spark, kept.url, tmp_path)
