"""`spark.readStream.format("howdah")`: a queue's log as a Structured Streaming source.

Answers for offsets (a queue's own are Spark's) and for the rows between two of them. Python workers
have no JVM to go through, so this one part reads with asyncpg, in Arrow batches. What a micro-batch
reads was committed when it was planned, so that a batch that is repeated reads the same.

    register(spark)
    spark.readStream.format("howdah").option("url", url).option("queue", "audit").load()
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_etl.errors import EtlError
from spark_etl.messages import COLUMNS, SCHEMA, fetch_rows, source
from spark_etl.queues import Queue
from spark_etl.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")

PARTITIONS: Final = 2
ROWS_OF_A_TRIGGER: Final = 100_000
_KNOWN: Final = frozenset(
    ("url", "queue", "vhost", "startingoffset", "partitions", "maxrowspertrigger", "failondataloss")
)
_QUEUE: Final = "SELECT id, vhost, name, kind FROM howdah.queue WHERE vhost = $1 AND name = $2"
_HEAD: Final = 'SELECT "offset" FROM howdah.message WHERE queue_id = $1 ORDER BY 1 LIMIT 1'
_NEWEST: Final = 'SELECT "offset" FROM howdah.message WHERE queue_id = $1 ORDER BY 1 DESC LIMIT 1'
_LOST: Final = """
    SELECT coalesce(sum(upper(r.span) - lower(r.span)), 0)::int8
    FROM unnest((
        SELECT range_agg(int8range(l.first_offset, l.end_offset)) FROM howdah.loss l
        WHERE l.queue_id = $1 AND l.first_offset < l.end_offset
    ) * int8multirange(int8range($2, $3))) AS r (span)
"""
_APPLICATION: Final = {
    "application_name": "howdah spark_etl",
    "default_transaction_read_only": "on",
}
_CONNECT_SECONDS: Final = 10.0
_FETCH_BYTES_OF_A_ROW: Final = 4096


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    spark.dataSource.register(HowdahSource)


class HowdahSource(DataSource):
    """The data source `howdah`. Options: url, queue, vhost, startingOffset (earliest, latest or a
    number), partitions, maxRowsPerTrigger, failOnDataLoss."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        unknown = sorted(set(map(str.lower, options)) - _KNOWN)
        if unknown:
            raise EtlError(f"unknown option {unknown[0]}: known are {', '.join(sorted(_KNOWN))}")
        for name in ("url", "queue"):
            if name not in options:
                raise EtlError(f"option {name} is missing")

    @classmethod
    def name(cls) -> str:
        return "howdah"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> LogReader:
        return LogReader(self.options, schema)


class Part(InputPartition):
    """A range of offsets. `expected` is the number of messages that must be there; None: any."""

    def __init__(self, queue: Queue, wanted: Range, expected: int | None) -> None:
        super().__init__((wanted.after, wanted.upto))
        self.queue = queue
        self.wanted = wanted
        self.expected = expected


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a queue for Structured Streaming. A Spark offset {"offset": n} says: all up to n is
    read."""

    def __init__(self, options: MutableMapping[str, str], schema: StructType) -> None:
        self._url = options["url"]
        self._name = options["queue"]
        self._vhost = options.get("vhost", "/")
        self._start = options.get("startingOffset", "earliest")
        self._partitions = int(options.get("partitions", str(PARTITIONS)))
        self._most = int(options.get("maxRowsPerTrigger", str(ROWS_OF_A_TRIGGER)))
        self._must_be_whole = options.get("failOnDataLoss", "true").lower() != "false"
        self._schema = schema
        self._last: int | None = None  # where a run over what is there now ends

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._newest(-1)

    def initialOffset(self) -> dict[str, int]:
        match self._start:
            case "earliest":
                head = self._asked(_HEAD)
                return {"offset": -1 if head is None else head - 1}
            case "latest":
                return {"offset": self._newest(-1)}
            case text if text.lstrip("-").isdecimal():
                return {"offset": int(text) - 1}
        raise EtlError(f"startingOffset {self._start}: expected earliest, latest or a number")

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        newest = self._newest(start["offset"]) if self._last is None else self._last
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, start["offset"] + limit.max_rows)
        return {"offset": max(start["offset"], newest)}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"offset": self._newest(-1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        wanted = Range(start["offset"], end["offset"])
        if not len(wanted):
            return []
        queue = _run(self._queue())
        parts = wanted.split(self._partitions)
        if not (self._must_be_whole and queue.is_stream):
            return [Part(queue, part, None) for part in parts]
        counts = _run(self._expected(queue, parts))
        return [Part(queue, part, count) for part, count in zip(parts, counts, strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, Part)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        seen = 0
        for rows in _rows(self._url, partition.queue, partition.wanted):
            seen += len(rows)
            yield _record_batch(rows, partition.queue, schema)
        if partition.expected is not None and seen != partition.expected:
            raise EtlError(
                f"stream {partition.queue.name} has {seen} of the {partition.expected} messages "
                f"after {partition.wanted.after}: retention was faster than this query; start "
                "it anew, or set failOnDataLoss to false"
            )

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: Spark's own checkpoint is the cursor, and the queue does not know its
        readers."""

    def _newest(self, otherwise: int) -> int:
        found = self._asked(_NEWEST)
        return otherwise if found is None else found

    def _asked(self, query: str) -> int | None:
        async def ask() -> int | None:
            queue = await self._queue()
            connection = await _connect(self._url)
            try:
                found: int | None = await connection.fetchval(query, queue.id)
                return found
            finally:
                await connection.close()

        return _run(ask())

    async def _expected(self, queue: Queue, parts: list[Range]) -> list[int]:
        """Counts the messages that each part must have: offsets that the database has lost have
        none."""
        connection = await _connect(self._url)
        try:
            return [
                len(part)
                - await connection.fetchval(_LOST, queue.id, part.after + 1, part.upto + 1)
                for part in parts
            ]
        finally:
            await connection.close()

    async def _queue(self) -> Queue:
        connection = await _connect(self._url)
        try:
            row = await connection.fetchrow(_QUEUE, self._vhost, self._name)
        finally:
            await connection.close()
        if row is None:
            raise EtlError(f"there is no durable queue '{self._name}' in '{self._vhost}'")
        return Queue(**dict(row))


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def _connect(url: str) -> asyncpg.Connection:
    try:
        connection = await asyncpg.connect(
            url, timeout=_CONNECT_SECONDS, server_settings=_APPLICATION
        )
        await connection.execute("SET jit = off")
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise EtlError(f"the database cannot be reached: {error}: check the option url") from error
    return connection


def _rows(url: str, queue: Queue, wanted: Range) -> Iterator[list[asyncpg.Record]]:
    """Yields the rows of a range in order, fetched batch by batch."""
    query = (
        f"SELECT * FROM {source(queue)} "
        f'WHERE "offset" > {wanted.after} AND "offset" <= {wanted.upto} ORDER BY "offset"'
    )
    loop = asyncio.new_event_loop()
    try:
        connection = loop.run_until_complete(_connect(url))
        try:
            transaction = connection.transaction(readonly=True)
            loop.run_until_complete(transaction.start())
            cursor = loop.run_until_complete(connection.cursor(query))
            size = fetch_rows(_FETCH_BYTES_OF_A_ROW)
            while rows := loop.run_until_complete(cursor.fetch(size)):
                yield rows
        finally:
            # Also where nobody reads to the end: a session left behind would hold its moment.
            connection.terminate()
            loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def _record_batch(
    rows: list[asyncpg.Record], queue: Queue, schema: pyarrow.Schema
) -> pyarrow.RecordBatch:
    if not all(row["is_plain"] for row in rows):
        raise EtlError(f"queue {queue.name} holds a message with an infinite timestamp")
    count = len(rows)
    known: dict[str, list[Any]] = {
        "vhost": [queue.vhost] * count,
        "queue": [queue.name] * count,
        "queue_id": [queue.id] * count,
    }
    known |= {name: [row[name] for row in rows] for name, _, _ in COLUMNS}
    arrays = [pyarrow.array(known[field.name], type=field.type) for field in schema]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
