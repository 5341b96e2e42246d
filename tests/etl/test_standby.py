"""A job that reads from a hot standby: what it reads is the primary's, what it notes is there."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from spark_etl.archive import archive, read_archive, waiting_segments
from spark_etl.errors import EtlError, InterruptedReadError
from spark_etl.export import ExportSettings, export, read_export
from spark_etl.messages import read_queue
from spark_etl.replay import ReplaySettings, replay
from spark_etl.snapshot import held_snapshot
from spark_etl.sources import StreamSource
from spark_etl.stats import read_stats
from tests.support.managers import House
from tests.support.postgres import execute, fetch_value
from tests.support.standby import Standby, running_standby
from tests.support.until import until, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def standby(postgres_server: EmbeddedPostgres) -> Iterator[Standby]:
    with tempfile.TemporaryDirectory(prefix="howdah-test-") as folder:
        Path(folder).chmod(0o711)
        with running_standby(postgres_server, Path(folder)) as server:
            yield server


@pytest.mark.timeout(360)  # many jobs, on a machine that may be busy
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


# --- a standby that ends reads which are in its way


@pytest.fixture
async def impatient(standby: Standby, migrated_url: str) -> AsyncIterator[str]:
    """The standby's URL, while it waits for no reader before it replays what the primary did."""
    await standby.has_caught_up(migrated_url)
    copy = standby.url(migrated_url)
    await asyncio.to_thread(set_delay, copy, "0")
    yield copy
    await asyncio.to_thread(set_delay, copy, "DEFAULT")


def set_delay(url: str, value: str) -> None:
    before = fetch_value(url, "SHOW max_standby_streaming_delay")
    execute(url, f"ALTER SYSTEM SET max_standby_streaming_delay = {value}")
    execute(url, "SELECT pg_reload_conf()")
    wait_until(lambda: fetch_value(url, "SHOW max_standby_streaming_delay") != before)


def at(step: str, *work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    """For a job in another thread: each time it has done the step, the next work is done here."""
    loop, left = asyncio.get_running_loop(), list(work)

    def on_step(reached: str) -> None:
        if reached == step and left:
            asyncio.run_coroutine_threadsafe(left.pop(0)(), loop).result(60)

    return on_step


@pytest.mark.timeout(360)
async def test_a_batch_whose_segment_is_dropped_under_it_is_read_again(
    spark: SparkSession, standby: Standby, migrated_url: str, impatient: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Retention on the primary knows nothing of a reader on the standby."""
    house = await House(migrated_url).with_segments(20_000).open()
    await house.stream("s", max_length_bytes=20_000)

    async def store(first: int, end: int) -> None:
        for start in range(first, end, 10):
            bodies = [b"%d:".ljust(1000, b"x") % i for i in range(start, start + 10)]
            await house.store("s", *bodies)

    await store(0, 50)
    await standby.has_caught_up(migrated_url)

    async def retention() -> None:
        await store(50, 100)
        await house.upkeep()
        assert house.manager.counters.segments_dropped > 0
        await standby.has_caught_up(migrated_url)

    settings = ExportSettings(tmp_path / "out", 1000, 2, checkpoint_url=migrated_url)
    on_step = at("planned", retention)
    batches = await asyncio.to_thread(
        lambda: export(spark, impatient, ["s"], settings, on_step=on_step)
    )
    assert "conflict with recovery: reading the batch again" in capsys.readouterr().err
    assert sum(batch.messages + batch.missing for batch in batches) == 50
    again = await asyncio.to_thread(export, spark, impatient, ["s"], settings)
    assert sum(batch.messages + batch.missing for batch in again) == 50
    rows = await asyncio.to_thread(lambda: read_export(spark, tmp_path / "out", "s").collect())
    assert len(rows) == len({row.offset for row in rows})
    assert len(rows) == sum(batch.messages for batch in [*batches, *again])
    assert max(row.offset for row in rows) == 99
    await house.close()


READING = """
    SELECT count(*) FROM pg_stat_activity WHERE application_name = 'howdah spark_etl'
    AND datname = current_database() AND query LIKE '%generate_series%' AND xact_start IS NOT NULL
"""


@pytest.mark.timeout(360)
async def test_a_read_that_is_ended_while_rows_flow_leaves_nothing_and_is_done_again(
    spark: SparkSession, standby: Standby, house: House, db: asyncpg.Connection, impatient: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(12_000)])
    await standby.has_caught_up(house.url)
    out = tmp_path / "out"
    settings = ExportSettings(out, connections=1, checkpoint_url=house.url, rate=6000)
    job = asyncio.create_task(asyncio.to_thread(export, spark, impatient, ["s"], settings))
    watcher = await asyncpg.connect(impatient)

    async def is_reading() -> bool:
        assert not job.done(), job.result()
        return bool(await watcher.fetchval(READING))

    await until(is_reading, "the job reads rows")
    await watcher.close()
    await block(db)
    (batch,) = await job
    assert batch.messages == 12_000
    assert "conflict with recovery: reading the batch again" in capsys.readouterr().err
    rows = await asyncio.to_thread(lambda: read_export(spark, out, "s").select("offset").collect())
    assert sorted(row.offset for row in rows) == list(range(12_000))
    assert len(os.listdir(out / batch.files[0].path.split("/")[0])) == 1


async def block(db: asyncpg.Connection) -> None:
    """A lock that the standby must take, too."""
    async with db.transaction():
        await db.execute("LOCK TABLE howdah.message")


@pytest.mark.timeout(360)
async def test_a_standby_that_ends_every_read_ends_the_job_with_the_way_out(
    spark: SparkSession, standby: Standby, house: House, db: asyncpg.Connection, impatient: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(50)])
    await standby.has_caught_up(house.url)

    async def disturb() -> None:
        await block(db)
        await standby.has_caught_up(house.url)

    out = tmp_path / "out"
    settings = ExportSettings(out, 1000, 2, checkpoint_url=house.url)
    on_step = at("planned", disturb, disturb, disturb)
    with pytest.raises(InterruptedReadError, match=r"raise max_standby_streaming_delay"):
        await asyncio.to_thread(lambda: export(spark, impatient, ["s"], settings, on_step=on_step))
    assert await asyncio.to_thread(read_export(spark, out, "s").count) == 0
    (batch,) = await asyncio.to_thread(export, spark, impatient, ["s"], settings)
    assert batch.messages == 50
