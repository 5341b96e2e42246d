"""Messages of a queue as a DataFrame: the columns, and the read by equal ranges of offsets.

Answers for `read_queue` and for the one schema that every job has at its edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_etl.connection import FETCH_ROWS, jdbc_options
from spark_etl.database import Database, connected
from spark_etl.queues import Queue, edges, find_queue, message_bytes, segments
from spark_etl.ranges import Range
from spark_etl.snapshot import Snapshot, join_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Each open connection is a backend of the server, which the gateway needs as well.
CONNECTIONS: Final = 4
_FETCH_BYTES: Final = 32 * 1024 * 1024

_BODY: Final = """CASE WHEN m.body_id IS NULL THEN m.body ELSE (
    SELECT b.body FROM howdah.message_body b
    WHERE b.id = m.body_id AND b.segment_id = m.segment_id) END"""

# Name, how PostgreSQL computes it, Spark's type. JSON stays text, exactly as PostgreSQL prints it.
COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("offset", 'm."offset"', "bigint"),
    ("enqueued_at", "m.enqueued_at", "timestamp"),
    ("not_before", "m.not_before", "timestamp"),
    ("expires_at", "m.expires_at", "timestamp"),
    ("created_at", "m.created_at", "timestamp"),
    ("priority", "m.priority::int4", "int"),
    ("durable", "m.durable", "boolean"),
    ("exchange", "m.exchange", "string"),
    ("routing_key", "m.routing_key", "string"),
    ("content_type", "m.content_type", "string"),
    ("content_encoding", "m.content_encoding", "string"),
    ("message_id", "m.message_id", "string"),
    ("correlation_id", "m.correlation_id", "string"),
    ("reply_to", "m.reply_to", "string"),
    ("subject", "m.subject", "string"),
    ("app_id", "m.app_id", "string"),
    ("user_id", "m.user_id", "string"),
    ("group_id", "m.group_id", "string"),
    ("headers", "m.headers::text", "string"),
    ("deaths", "m.deaths::text", "string"),
    ("delivery", "m.delivery::text", "string"),
    ("publisher", "m.publisher", "string"),
    ("form", "m.form::int4", "int"),
    ("native", "m.native", "binary"),
    ("body", _BODY, "binary"),
)
SCHEMA: Final = ", ".join(
    (
        "vhost string",
        "queue string",
        "queue_id bigint",
        *(f"`{name}` {kind}" for name, _, kind in COLUMNS),
    )
)
_TIMES: Final = ("enqueued_at", "not_before", "expires_at", "created_at")
_IS_FINITE: Final = " AND ".join(f"coalesce(isfinite(m.{name}), true)" for name in _TIMES)

# A message that outlives its segment is copied into a newer one; until the old one is dropped the
# copy counts. What only lies in a retired segment is still there to be read.
_NOT_COPIED: Final = """(
    m.segment_id <> ALL (ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL))
    OR NOT EXISTS (
        SELECT FROM howdah.message n WHERE n.queue_id = m.queue_id AND n."offset" = m."offset"
        AND n.segment_id > m.segment_id))"""


def read_queue(
    spark: SparkSession,
    url: str,
    queue: str,
    from_: int | None = None,
    to: int | None = None,
    *,
    vhost: str = "/",
    partitions: int = CONNECTIONS,
    snapshot: Snapshot | None = None,
) -> DataFrame:
    """The messages with offsets in (from_, to], in SCHEMA; without ends, all that is there now.

    Each partition is one connection and one range scan of the index, so that `partitions` caps the
    connections. What is committed by now below `to` never changes, but retention may take old
    messages away until the frame is read; inside `held_snapshot` it cannot.
    """
    if snapshot is not None:
        return _planned(
            spark, url, snapshot.database, (queue, vhost), (from_, to), partitions, snapshot
        )
    with connected(spark, url) as database:
        return _planned(spark, url, database, (queue, vhost), (from_, to), partitions, None)


def _planned(
    spark: SparkSession,
    url: str,
    database: Database,
    address: tuple[str, str],
    ends: tuple[int | None, int | None],
    partitions: int,
    snapshot: Snapshot | None,
) -> DataFrame:
    name, vhost = address
    queue = find_queue(database, vhost, name)
    found = edges(database, queue)
    if found is None:
        return spark.createDataFrame([], SCHEMA)
    after, upto = ends
    wanted = Range(
        max(found.head - 1, found.head - 1 if after is None else after),
        min(found.newest, found.newest if upto is None else upto),
    )
    if not len(wanted):
        return spark.createDataFrame([], SCHEMA)
    return read_range(spark, url, database, queue, wanted, partitions=partitions, snapshot=snapshot)


def read_range(
    spark: SparkSession,
    url: str,
    database: Database,
    queue: Queue,
    wanted: Range,
    *,
    partitions: int = CONNECTIONS,
    snapshot: Snapshot | None = None,
) -> DataFrame:
    """That range of a queue that was looked up already."""
    from pyspark.sql import functions as F

    options = jdbc_options(url)
    options["sessionInitStatement"] = join_statement(snapshot)
    size = message_bytes(database, queue, wanted.after, wanted.upto)
    options["fetchsize"] = str(fetch_rows(size))
    only = segments(database, queue) if snapshot is not None else None
    predicates = [
        f'"offset" > {part.after} AND "offset" <= {part.upto}' for part in wanted.split(partitions)
    ]
    address = options.pop("url")
    frame = spark.read.jdbc(address, source(queue, only), predicates=predicates, properties=options)
    refusal = (
        f"queue {queue.name} holds a message with an infinite timestamp, which no file can say"
    )
    finite = F.when(F.col("is_finite"), F.lit(True)).otherwise(
        F.raise_error(F.lit(refusal)).cast("boolean")
    )
    return frame.where(finite).select(
        F.lit(queue.vhost).alias("vhost"),
        F.lit(queue.name).alias("queue"),
        F.lit(queue.id).cast("bigint").alias("queue_id"),
        *(F.col(name).cast(kind).alias(name) for name, _, kind in COLUMNS),
    )


def source(queue: Queue, only: list[int] | None = None) -> str:
    """The table expression; PostgreSQL pulls it up, so that the range reaches the index."""
    chosen = ", ".join(f'{sql} AS "{name}"' for name, sql, _ in COLUMNS)
    conditions = [f"m.queue_id = {queue.id}", _NOT_COPIED]
    if only:
        # Constants: the planner leaves all other partitions out.
        conditions.append(f"m.segment_id IN ({', '.join(map(str, only))})")
    return (
        f"(SELECT {chosen}, {_IS_FINITE} AS is_finite FROM howdah.message m "
        f"WHERE {' AND '.join(conditions)}) t"
    )


def fetch_rows(message_bytes: int) -> int:
    """Rows of one fetch: large bodies must not fill an executor's memory."""
    return max(8, min(FETCH_ROWS, _FETCH_BYTES // max(1, message_bytes)))
