"""Offsets that the database has lost: jobs pass over them, say so, and go on with what follows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from spark_etl.export import ExportSettings, export, plan_export, read_export
from spark_etl.replay import ReplaySettings, replay
from spark_etl.sources import StreamSource
from tests.etl.test_stream_source import run_once
from tests.support.managers import House, bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = {"a classic": "classic", "b stream": "stream", "c after it": "stream"}
GAP = range(3, 7)
KEPT = [number for number in range(10) if number not in GAP]


@pytest.fixture
async def torn(house: House, db: asyncpg.Connection) -> House:
    """Queues of ten messages each, of which the first two have lost four in the middle."""
    for name, kind in QUEUES.items():
        await (house.queue(name) if kind == "classic" else house.stream(name))
        await house.store(name, *[b"%d" % number for number in range(10)])
    await house.close()
    await db.execute(
        'DELETE FROM howdah.message WHERE "offset" = ANY($1::int8[]) AND queue_id IN ('
        "SELECT id FROM howdah.queue WHERE name <> 'c after it')",
        list(GAP),
    )
    assert len(await db.fetch("SELECT * FROM howdah.repair()")) == 2
    return await house.open()


async def test_an_export_passes_over_gaps_reports_them_and_exports_what_follows(
    spark: SparkSession, torn: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ExportSettings(tmp_path / "out", 1000, 2)
    plans = await asyncio.to_thread(plan_export, spark, torn.url, None, settings)
    assert [plan.lost for plan in plans] == [4, 4, 0]
    assert "4 lost by the database" in str(plans[1])
    batches = await asyncio.to_thread(export, spark, torn.url, None, settings)
    assert [(b.queue, b.messages, b.missing) for b in batches] == [
        ("a classic", 6, 4),
        ("b stream", 6, 4),
        ("c after it", 10, 0),
    ]
    said = capsys.readouterr().err
    for name in ("a classic", "b stream"):
        assert f"export {name}: offsets 0 to 9: 4 have no message" in said
    assert "export c after it: offsets 0 to 9: 4" not in said
    rows = await asyncio.to_thread(
        lambda: read_export(spark, tmp_path / "out", "b stream").select("offset").collect()
    )
    assert sorted(row.offset for row in rows) == KEPT
    manifests = (tmp_path / "out").glob("_manifest/b_stream-*/*.json")
    assert [json.loads(path.read_text())["missing"] for path in manifests] == [4]
    # And the next run begins behind the gap, not before it.
    await torn.store("b stream", b"10")
    (more,) = await asyncio.to_thread(export, spark, torn.url, None, settings)
    assert (more.queue, more.after, more.messages) == ("b stream", 9, 1)


async def test_an_export_goes_on_behind_what_it_has_already_and_the_database_lost(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    """The export was faster than the standby: files have messages that the stream has lost."""
    await house.stream("s")
    await house.store("s", *[b"%d" % number for number in range(10)])
    settings = ExportSettings(tmp_path / "out", 1000, 2)
    await asyncio.to_thread(export, spark, house.url, ["s"], settings)
    await house.close()
    await db.execute('DELETE FROM howdah.message WHERE "offset" >= 6')
    await db.execute(
        "INSERT INTO howdah.loss (cause, queue_id, first_offset, end_offset, detail) "
        "SELECT 'setback', id, 6, 10, 'behind' FROM howdah.queue"
    )
    await house.open()
    assert await asyncio.to_thread(export, spark, house.url, ["s"], settings) == []
    await house.store("s", b"new")
    (batch,) = await asyncio.to_thread(export, spark, house.url, ["s"], settings)
    assert (batch.after, batch.upto, batch.messages, batch.missing) == (9, 10, 1, 0)


async def test_a_streaming_query_passes_over_a_gap(
    spark: SparkSession, torn: House, tmp_path: Path
) -> None:
    found = await asyncio.to_thread(run_once, spark, torn.url, tmp_path, queue="b stream")
    assert found == [(number, b"%d" % number) for number in KEPT]


async def test_a_replay_passes_over_a_gap(spark: SparkSession, torn: House, tmp_path: Path) -> None:
    await torn.queue("copy")
    source = StreamSource(torn.url, "b stream")
    settings = ReplaySettings("copy", rate=1000.0)
    count = await asyncio.to_thread(replay, spark, torn.url, source, settings)
    assert count == len(KEPT)
    queue = torn.vhost.queue("copy")
    await torn.until(lambda: queue.counts().ready == len(KEPT))
    assert bodies(await torn.drain("copy")) == [b"%d" % number for number in KEPT]
