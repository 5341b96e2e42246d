"""Writes messages into Parquet files, by day.

Answers for how the files are written. It must not know where the messages come from.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_etl import unpacking
from spark_etl.errors import EtlError
from spark_etl.unpacking import Packed

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

# Nobody asks for the least of these.
OPAQUE: Final = ("headers", "deaths", "delivery", "native", "body")

# 1M messages of 256 B, CPU of the JVM beyond the read: 2.5 s as Spark writes by default, 1.4 s
# so. Ids, times and bodies make a dictionary in vain, and what repeats is found by the compression.
OPTIONS: Final = {
    "parquet.block.size": str(32 * 1024 * 1024),
    "parquet.page.size": str(256 * 1024),
    "parquet.size.statistics.enabled": "false",
    "parquet.enable.dictionary": "false",
    **{f"parquet.column.statistics.enabled#{name}": "false" for name in OPAQUE},
}


def write_messages(
    frame: DataFrame, target: Path, day: date | None = None, rate: float | None = None
) -> int:
    """Writes files below target/day=<day in UTC that a message entered its queue on>, and returns
    how many messages were read for them. `rate` is of each partition. With the day of all of them
    given, Spark need not sort rows into folders: 0.4 s less of CPU for 1M messages."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    with _at_workers():
        if rate is not None:
            frame = frame.mapInArrow(unpacking.passer(rate), frame.schema)
        seen = Observation()
        frame = frame.observe(seen, F.count(F.lit(1)).alias("messages"))
        if day is not None:
            frame.write.options(**OPTIONS).parquet(str(target / f"day={day}"))
        else:
            by_day = frame.withColumn("day", F.to_date("enqueued_at"))
            by_day.write.options(**OPTIONS).partitionBy("day").parquet(str(target))
    return int(seen.get["messages"])


class NoArrowError(EtlError):
    """The executors' Python cannot write the files: pyarrow is missing there."""


def write_packed(
    frame: DataFrame, columns: list[Packed], target: Path, rate: float | None = None
) -> int:
    """Writes the files of `write_messages` from packed messages, by the Python workers; `rate` is
    of each. Workers write into a folder of their own, and what a successful task told is moved from
    there: an attempt that failed, or is still running somewhere, leaves nothing among the files."""
    writing = target / "_writing"
    writing.mkdir(parents=True)
    work = unpacking.file_writer(str(writing), columns, frozenset(OPAQUE), rate)
    with _at_workers():
        files = frame.mapInArrow(work, unpacking.WRITTEN).collect()
    for file in files:
        folder = target / f"day={file.day}"
        folder.mkdir(exist_ok=True)
        (writing / file.name).rename(folder / file.name)
    shutil.rmtree(writing)
    return sum(file.messages for file in files)


@contextmanager
def _at_workers() -> Iterator[None]:
    """Sends the code of `unpacking` to workers by value: they need not have this package."""
    from pyspark import cloudpickle
    from pyspark.errors import PythonException

    cloudpickle.register_pickle_by_value(unpacking)  # type: ignore[no-untyped-call]
    try:
        yield
    except PythonException as error:
        if "No module named" in str(error):
            raise NoArrowError("the executors' Python lacks pyarrow or numpy") from error
        if unpacking.SURPRISE in str(error):
            raise EtlError(unpacking.SURPRISE) from error
        raise
