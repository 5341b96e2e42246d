"""spark.readStream.format("howdah"): resumes where it was, and misses nothing in silence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_etl.stream_source import register
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_once(
    spark: SparkSession, url: str, folder: Path, **options: Any
) -> list[tuple[int, bytes]]:
    """One run over all that is there, from the checkpoint on; everything written so far."""
    register(spark)
    reader = spark.readStream.format("howdah").option("url", url).option("queue", "s")
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(folder / "out")).select("offset", "body").collect()
    return sorted((row.offset, bytes(row.body)) for row in rows)


async def test_a_query_goes_on_where_it_was(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(30)])
    found = await asyncio.to_thread(run_once, spark, house.url, tmp_path, maxRowsPerTrigger=20)
    assert found == [(i, b"%d" % i) for i in range(30)]
    await house.store("s", *[b"%d" % i for i in range(30, 35)])
    found = await asyncio.to_thread(run_once, spark, house.url, tmp_path, maxRowsPerTrigger=20)
    assert found == [(i, b"%d" % i) for i in range(35)]


async def test_an_unknown_option_is_refused(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    with pytest.raises(Exception, match="unknown option startoffset"):
        await asyncio.to_thread(run_once, spark, house.url, tmp_path, startOffset=3)
