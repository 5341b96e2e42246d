"""The sources of a replay: an export, any Parquet files, or a range of a stream.

Answers for cutting them into chunks in the order of their offsets. A chunk is small enough for the
driver's memory; the frame of a chunk is read when it is its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from spark_etl.database import connected
from spark_etl.errors import EtlError
from spark_etl.export import read_batches
from spark_etl.manifest import MARKER, Batch, ExportDirectory
from spark_etl.messages import read_range
from spark_etl.queues import edges, find_queue, message_bytes, offset_at
from spark_etl.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHUNK_BYTES: Final = 64 * 1024 * 1024
_CHUNK_MESSAGES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Chunk:
    queue_id: int
    wanted: Range
    read: Callable[[SparkSession, Range], DataFrame]

    def frame(self, spark: SparkSession) -> DataFrame:
        return self.read(spark, self.wanted)

    def after(self, offset: int) -> Chunk:
        """Returns the part of the chunk above that offset."""
        start = min(max(self.wanted.after, offset), self.wanted.upto)
        return replace(self, wanted=Range(start, self.wanted.upto))

    def __str__(self) -> str:
        return f"offsets {self.wanted.after + 1} to {self.wanted.upto}"


class Source(Protocol):
    def chunks(self, spark: SparkSession) -> Iterator[Chunk]:
        """Yields all messages of the source, in chunks and in order."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets (after, upto], or moments [since, until) in RFC 3339; None: no bound."""

    after: int | None = None
    upto: int | None = None
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A range of a stream, as it is in the database."""

    url: str
    name: str
    bounds: Bounds = Bounds()
    vhost: str = "/"

    def __str__(self) -> str:
        return f"stream {self.name}"

    def chunks(self, spark: SparkSession) -> Iterator[Chunk]:
        with connected(spark, self.url) as database:
            queue = find_queue(database, self.vhost, self.name)
            if not queue.is_stream:
                raise EtlError(
                    f"{self.name} is a classic queue: what is settled there is gone; replay a "
                    "stream, or an export"
                )
            found = edges(database, queue)
            if found is None:
                return
            low, high = found.head - 1, found.newest
            if self.bounds.since is not None:
                first = offset_at(database, queue, self.bounds.since)
                low = high if first is None else max(low, first - 1)
            if self.bounds.until is not None:
                first = offset_at(database, queue, self.bounds.until)
                high = high if first is None else first - 1
            whole = _within(Range(low, high), self.bounds)
            size = message_bytes(database, queue, whole.after, whole.upto)

        def read(spark: SparkSession, wanted: Range) -> DataFrame:
            with connected(spark, self.url) as database:
                return read_range(spark, self.url, database, queue, wanted, partitions=1)

        yield from _cut(queue.id, whole, size, read)


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """An export directory of ours, or other Parquet files with at least `offset` and `body`."""

    path: Path
    name: str | None = None  # one queue of an export
    bounds: Bounds = Bounds()
    vhost: str = "/"

    def __str__(self) -> str:
        return f"{self.path.absolute()}" + (f" ({self.name})" if self.name else "")

    def chunks(self, spark: SparkSession) -> Iterator[Chunk]:
        if self.bounds.since is not None or self.bounds.until is not None:
            raise EtlError("a time range is for a stream: give offsets for Parquet files")
        if (self.path / MARKER).exists():
            yield from self._exported()
        elif self.path.exists():
            yield from self._plain(spark)
        else:
            raise EtlError(f"{self.path} does not exist")

    def _exported(self) -> Iterator[Chunk]:
        batches = list(ExportDirectory(self.path).batches(self.name, self.vhost))
        if len({(batch.vhost, batch.queue) for batch in batches}) > 1:
            known = ", ".join(sorted({batch.queue for batch in batches}))
            raise EtlError(f"{self.path} holds several queues: name one of them: {known}")
        if not batches:
            raise EtlError(f"{self.path} holds nothing of queue {self.name}")
        for batch in sorted(batches, key=lambda each: (each.queue_id, each.after)):
            if batch.messages:
                size = sum(file.bytes for file in batch.files) // batch.messages
                whole = _within(batch.range, self.bounds)
                yield from _cut(batch.queue_id, whole, size, self._batch_reader(batch))

    def _batch_reader(self, batch: Batch) -> Callable[[SparkSession, Range], DataFrame]:
        def read(spark: SparkSession, wanted: Range) -> DataFrame:
            return _only(read_batches(spark, self.path, [batch]), wanted)

        return read

    def _plain(self, spark: SparkSession) -> Iterator[Chunk]:
        frame = spark.read.parquet(str(self.path))
        if not {"offset", "body"} <= set(frame.columns):
            raise EtlError(f"{self.path} has no columns offset and body: not messages")
        (ends,) = frame.selectExpr(
            "min(offset) AS low", "max(offset) AS high", "avg(octet_length(body)) AS size"
        ).collect()
        if ends.low is not None:
            whole = _within(Range(ends.low - 1, ends.high), self.bounds)
            yield from _cut(0, whole, int(ends.size or 0), _reader(str(self.path)))


def _reader(place: str) -> Callable[[SparkSession, Range], DataFrame]:
    def read(spark: SparkSession, wanted: Range) -> DataFrame:
        return _only(spark.read.parquet(place), wanted)

    return read


def _only(frame: DataFrame, wanted: Range) -> DataFrame:
    return frame.where(f"offset > {wanted.after} AND offset <= {wanted.upto}").coalesce(1)


def _within(whole: Range, bounds: Bounds) -> Range:
    low = whole.after if bounds.after is None else max(whole.after, bounds.after)
    high = whole.upto if bounds.upto is None else min(whole.upto, bounds.upto)
    return Range(low, max(low, high))


def _cut(
    queue_id: int, whole: Range, size: int, read: Callable[[SparkSession, Range], DataFrame]
) -> Iterator[Chunk]:
    if not len(whole):
        return
    most = max(100, min(_CHUNK_MESSAGES, _CHUNK_BYTES // max(1, size)))
    for part in whole.split(-(-len(whole) // most)):
        yield Chunk(queue_id, part, read)
