"""A job that reads from a hot standby: what it reads is the primary's, what it notes is there."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from gateway.embedded_postgres import EmbeddedPostgres
from spark_etl.archive import archive, read_archive, waiting_segments
from spark_etl.errors import EtlError
from spark_etl.export import ExportSettings, export, read_export
from spark_etl.messages import read_queue
from spark_etl.replay import ReplaySettings, replay
from spark_etl.snapshot import held_snapshot
from spark_etl.sources import StreamSource
from spark_etl.stats import read_stats
from tests.etl.standby import Standby, running_standby
from tests.store.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def standby(postgres_server: EmbeddedPostgres) -> Iterator[Standby]:
    with tempfile.TemporaryDirectory(prefix="howdah-test-") as folder:
        Path(folder).chmod(0o711)
        with running_standby(postgres_server, Path(folder)) as server:
            yield server


async def test_every_job_reads_from_a_standby_and_notes_on_the_primary(
    spark: SparkSession, standby: Standby, migrated_url: str, db: asyncpg.Connection, tmp_path: Path
) -> None:
    house = await House(migrated_url).with_segments(12_000).open()
    await house.stream("s")
    await house.queue("q")
    await db.execute("SELECT howdah.keep_for_archive('s')")
    bodies = [b"%d:".ljust(500, b"x") % i for i in range(50)]
    for start in range(0, 50, 10):
        await house.store("s", *bodies[start : start + 10])
    await house.upkeep()
    await standby.has_caught_up(migrated_url)
    copy, out = standby.url(migrated_url), tmp_path / "out"

    def jobs() -> None:
        rows = read_queue(spark, copy, "s").collect()
        assert sorted((row.offset, bytes(row.body)) for row in rows) == list(enumerate(bodies))
        settings = ExportSettings(out, 20, 2, checkpoint_url=migrated_url)
        assert sum(batch.messages for batch in export(spark, copy, ["s"], settings)) == 50
        rows = read_export(spark, out, "s").collect()
        assert sorted((row.offset, bytes(row.body)) for row in rows) == list(enumerate(bodies))
        confirmed = archive(spark, copy, tmp_path / "archive", checkpoint_url=migrated_url)
        assert confirmed
        assert waiting_segments(spark, migrated_url) == []
        kept = read_archive(spark, tmp_path / "archive").count()
        assert kept == sum(segment.messages for segment in confirmed)
        source = StreamSource(copy, "s")
        assert replay(spark, migrated_url, source, ReplaySettings("q", rate=1e5)) == 50
        with held_snapshot(spark, copy) as snapshot:
            rows = read_stats(spark, copy, snapshot).where("queue = 's'").collect()
        assert sum(row.messages for row in rows) == 50

    await asyncio.to_thread(jobs)
    noted = await db.fetch('SELECT job, "offset", messages FROM howdah.etl_checkpoint ORDER BY job')
    assert [tuple(row) for row in noted] == [("export", 49, 50), ("replay", 49, 50)]
    inbox, _ = await house.consume("q")
    await inbox.has(50)
    assert inbox.bodies == bodies
    await house.close()


async def test_a_standby_alone_is_refused_before_anything_is_written(
    spark: SparkSession, standby: Standby, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await house.queue("q")
    await house.store("s", b"1")
    await standby.has_caught_up(house.url)
    copy, settings = standby.url(house.url), ExportSettings(tmp_path / "out")
    for job in (
        lambda: export(spark, copy, ["s"], settings),
        lambda: archive(spark, copy, tmp_path / "archive"),
        lambda: replay(spark, copy, StreamSource(copy, "s"), ReplaySettings("q")),
    ):
        with pytest.raises(EtlError, match=r"is a standby.* name the primary with --checkp"):
            await asyncio.to_thread(job)
    assert os.listdir(tmp_path) == []
