"""Writes the files of one batch, in the cheapest way that its messages allow.

A sample says what the messages of a batch have in common. Where they are small they travel packed,
without the values that all share; else one by one, in the columns that the sample saw. Each read
checks the sample's word for every message, and where it is wrong the batch is read again: first
with what seemed shared, then one by one and with every column.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_etl.database import explained, place
from spark_etl.errors import EtlError
from spark_etl.messages import ORIGIN, Shape, read_range, sample_shape
from spark_etl.packing import is_worth_packing, packed_columns, read_packed
from spark_etl.parquet import NoArrowError, write_messages, write_packed
from spark_etl.queues import Queue
from spark_etl.ranges import Range
from spark_etl.snapshot import Snapshot
from spark_etl.unpacking import SURPRISE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# First a sample is not believed that values are the same in all messages, then nothing.
_FULL_TRUST: Final = 2


class BatchWriter:
    """Writes batches of one queue; a way that failed for one is not tried with the next."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        queue: Queue,
        connections: int,
        *,
        must_pace: bool,  # a rate was asked for; else it is kept where that is possible
    ) -> None:
        self._spark = spark
        self._url = url
        self._queue = queue
        self._connections = connections
        self._must_pace = must_pace
        self._has_arrow = True  # as far as we know: packing and pacing are done with it
        self._rate: float | None = None  # messages a second of each connection
        self._trust = _FULL_TRUST
        self._notes: list[str] = []

    def notes(self) -> list[str]:
        """Returns the notes for a person since the last call."""
        found, self._notes = self._notes, []
        return found

    def write(self, snapshot: Snapshot, wanted: Range, target: Path, rate: float = inf) -> int:
        """Writes files below target/day=<day>, and returns how many messages were read for them:
        `rate` a second at most, all connections together."""
        is_paced = self._has_arrow and rate < inf
        self._rate = rate / self._connections if is_paced else None
        if not len(wanted):
            target.mkdir(parents=True)
            return 0
        while (count := self._attempt(snapshot, wanted, target)) is None:
            shutil.rmtree(target, ignore_errors=True)
        return count

    def _attempt(self, snapshot: Snapshot, wanted: Range, target: Path) -> int | None:
        """Tries to write the batch in one way; None if another must be tried."""
        shape = self._shape(snapshot, wanted)
        try:
            if shape is not None and self._has_arrow and is_worth_packing(shape):
                return self._write_packed(shape, snapshot, wanted, target)
            return self._write_rows(shape, snapshot, wanted, target)
        except NoArrowError as error:
            if self._rate is not None and self._must_pace:
                raise EtlError(
                    f"{error}, and a rate needs them: install them there, or give no rate"
                ) from error
            self._has_arrow, self._rate = False, None
            self._notes.append(f"{error}: messages are written one by one, which is slower")
        except EtlError as error:
            if shape is None or SURPRISE not in str(error):
                raise
            self._notes.append(f"{SURPRISE}: the batch was read again, with less faith in samples")
            self._trust -= 1
        return None

    def _shape(self, snapshot: Snapshot, wanted: Range) -> Shape | None:
        """Returns the shape of a sample, as far as samples are trusted."""
        if self._trust == 0:
            return None
        shape = sample_shape(snapshot.database, self._queue, wanted)
        if shape is None or self._trust == _FULL_TRUST:
            return shape
        return replace(shape, same={})

    def _write_packed(self, shape: Shape, snapshot: Snapshot, wanted: Range, target: Path) -> int:
        frame = read_packed(
            self._spark,
            self._url,
            self._queue,
            wanted,
            partitions=self._connections,
            snapshot=snapshot,
            shape=shape,
        )
        with explained(place(self._url)):
            return write_packed(frame, packed_columns(shape), target, self._rate)

    def _write_rows(
        self, shape: Shape | None, snapshot: Snapshot, wanted: Range, target: Path
    ) -> int:
        frame = read_range(
            self._spark,
            self._url,
            snapshot.database,
            self._queue,
            wanted,
            partitions=self._connections,
            snapshot=snapshot,
            shape=shape,
        )
        with explained(place(self._url)):
            # Where they come from is in the manifest, not in each row.
            day = shape.day if shape is not None else None
            return write_messages(frame.drop(*ORIGIN), target, day, self._rate)
