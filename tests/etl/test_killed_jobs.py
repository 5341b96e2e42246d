"""kill -9 of the driver after any step of any job: the next run leaves each message once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from spark_etl import archive as archiving
from spark_etl import export as exporting
from spark_etl import replay as replaying
from spark_etl.archive import archive, read_archive, waiting_segments
from spark_etl.export import ExportSettings, export, read_export
from spark_etl.replay import ReplaySettings, replay
from spark_etl.sources import StreamSource
from tests.support.managers import House
from tests.support.until import until_true

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 50
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'howdah spark_etl'"
CHECKPOINT = """SELECT job, "offset", messages FROM howdah.etl_checkpoint ORDER BY job"""
CASES = list(
    zip(exporting.STEPS, cycle(archiving.STEPS), cycle(replaying.STEPS), strict=False),
)


def test_every_step_of_every_job_is_a_case() -> None:
    assert [set(steps) for steps in zip(*CASES, strict=True)] == [
        set(exporting.STEPS),
        set(archiving.STEPS),
        set(replaying.STEPS),
    ]


@pytest.fixture
async def marked(migrated_url: str) -> AsyncIterator[House]:
    """A stream for all jobs in several segments, the older ones kept for archive; and a queue."""
    house = await House(migrated_url).with_segments(12_000).open()
    await house.stream("s")
    await house.queue("q")
    connection = await asyncpg.connect(migrated_url)
    await connection.execute("SELECT howdah.keep_for_archive('s')")
    await connection.close()
    for start in range(0, MESSAGES, 10):
        await house.store("s", *[body(i) for i in range(start, start + 10)])
    await house.upkeep()
    yield house
    await house.close()


def body(number: int) -> bytes:
    return b"%d:".ljust(500, b"x") % number


async def bodies(frame: DataFrame) -> list[tuple[int, bytes]]:
    rows = await asyncio.to_thread(frame.select("offset", "body").collect)
    return sorted((row.offset, bytes(row.body)) for row in rows)


async def kill(url: str, out: Path, steps: tuple[str, ...], db: asyncpg.Connection) -> None:
    """Runs the jobs until they end their own process; its JVM goes as well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.etl.killed_jobs", url, str(out), *steps),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the JVM was faster
    left = SESSIONS + f" AND datname = '{url.rpartition('/')[2]}'"
    await until_true(db, f"SELECT ({left}) = 0")


@pytest.mark.slow
@pytest.mark.timeout(360)  # each case starts a Spark of its own
@pytest.mark.parametrize("steps", CASES, ids=lambda steps: steps[0])
async def test_a_driver_that_is_killed_after_any_step_loses_and_doubles_nothing(
    spark: SparkSession,
    marked: House,
    db: asyncpg.Connection,
    tmp_path: Path,
    steps: tuple[str, str, str],
) -> None:
    url, exported, archived = marked.url, tmp_path / "export", tmp_path / "archive"
    await kill(url, tmp_path, steps, db)
    seen = await bodies(read_export(spark, exported, "s"))
    assert len(seen) == (40 if steps[0] in ("published", "noted") else 20)
    confirmed = await db.fetchval("SELECT count(*) FROM howdah.segment WHERE archive IS NOT NULL")
    assert confirmed == (1 if steps[1] == "confirmed" else 0)
    noted = {row["job"]: row["messages"] for row in await db.fetch(CHECKPOINT)}
    assert noted["replay"] == (40 if steps[2] == "committed" else 20)

    settings, source = ExportSettings(exported, 20, 1), StreamSource(url, "s")
    await asyncio.to_thread(export, spark, url, ["s"], settings)
    await asyncio.to_thread(archive, spark, url, archived)
    again = ReplaySettings("q", rate=200)
    await asyncio.to_thread(replay, spark, url, source, again)

    everything = [(i, body(i)) for i in range(MESSAGES)]
    assert await bodies(read_export(spark, exported, "s")) == everything
    visible = {json.loads(p.read_text())["folder"] for p in exported.glob("_manifest/*/*.json")}
    assert {p.name for p in exported.glob("log=*/*")} == visible
    kept = await bodies(read_archive(spark, archived))
    assert len(kept) >= 20
    assert kept == everything[: len(kept)]
    assert await asyncio.to_thread(waiting_segments, spark, url) == []
    inbox, _ = await marked.consume("q")
    await inbox.has(MESSAGES)
    assert inbox.bodies == [body(i) for i in range(MESSAGES)]
    assert [tuple(row) for row in await db.fetch(CHECKPOINT)] == [
        ("export", MESSAGES - 1, MESSAGES),
        ("replay", MESSAGES - 1, MESSAGES),
    ]
