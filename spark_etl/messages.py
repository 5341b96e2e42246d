"""Reads messages of a queue as a DataFrame: the columns, and the read by equal ranges of offsets.

Answers for `read_queue` and for the one schema that every job has at its edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from spark_etl.database import Database, connected
from spark_etl.jdbc_options import FETCH_ROWS, jdbc_options
from spark_etl.queues import Queue, Segments, edges, find_queue, message_bytes, segments
from spark_etl.ranges import Range
from spark_etl.snapshot import Snapshot, join_statement
from spark_etl.unpacking import SURPRISE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
# What all messages of a queue have in common, then what each has.
ORIGIN: Final = ("vhost", "queue", "queue_id")
MESSAGE_SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, _, kind in COLUMNS)
SCHEMA: Final = f"vhost string, queue string, queue_id bigint, {MESSAGE_SCHEMA}"
_TIMES: Final = ("enqueued_at", "not_before", "expires_at", "created_at")
IS_FINITE: Final = " AND ".join(f"coalesce(isfinite(m.{name}), true)" for name in _TIMES)

# What PostgreSQL never leaves out, and what stands in for it in Spark, which must be told so: a
# Parquet column that cannot be null is written without a level for each value.
ALWAYS: Final[dict[str, str]] = {
    "offset": "0L",
    "enqueued_at": "timestamp_micros(0)",
    "durable": "false",
    "exchange": "''",
    "routing_key": "''",
    "form": "0",
}

# A message that outlives its segment is copied into a newer one; until the old one is dropped the
# copy counts. What only lies in a retired segment is still there to be read.
_NOT_COPIED: Final = """(
    m.segment_id <> ALL (ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL))
    OR NOT EXISTS (
        SELECT FROM howdah.message n WHERE n.queue_id = m.queue_id AND n."offset" = m."offset"
        AND n.segment_id > m.segment_id))"""

# What often is the same in all messages of a queue.
_ALIKE: Final = (
    "priority",
    "durable",
    "exchange",
    "routing_key",
    "content_type",
    "content_encoding",
    "reply_to",
    "subject",
    "app_id",
    "user_id",
    "publisher",
    "form",
)
_SAMPLES: Final = 20
_SAMPLE_ROWS: Final = 10


def _same(name: str) -> str:
    """Makes the SQL for a value that all messages of a sample share, as SQL writes it and as it is;
    else null."""
    holds = f"count(*) = count(m.{name}) AND count(DISTINCT m.{name}) = 1"
    value = f"min(m.{name}::text)"
    return (
        f"CASE WHEN {holds} THEN quote_literal({value}) END AS literal_{name}, "
        f"CASE WHEN {holds} THEN {value} END AS same_{name}"
    )


_SHAPE: Final = f"""
    SELECT min((m.enqueued_at AT TIME ZONE 'UTC')::date) AS first,
           max((m.enqueued_at AT TIME ZONE 'UTC')::date) AS last,
           count(m.body_id) > 0 AS has_shared_bodies,
           max(greatest(octet_length(m.body), octet_length(m.native), pg_column_size(m.headers),
               pg_column_size(m.deaths), pg_column_size(m.delivery))) AS largest,
           {", ".join(f"count(m.{name}) > 0 AS has_{name}" for name, _, _ in COLUMNS)},
           {", ".join(_same(name) for name in _ALIKE)}
    FROM unnest(?::int8[], ?::int8[]) AS r (low, high) CROSS JOIN LATERAL (
        SELECT * FROM howdah.message n
        WHERE n.queue_id = ? AND n."offset" > r.low AND n."offset" <= r.high
        ORDER BY n."offset" LIMIT {_SAMPLE_ROWS}) m
"""


@dataclass(frozen=True, slots=True)
class Same:
    """A value that all messages share: as it is, in text, and as SQL writes it."""

    text: str
    literal: str


@dataclass(frozen=True, slots=True)
class Shape:
    """The traits that the messages of a range have in common: a read that relies on them costs
    less, and stops at the first message that is different."""

    columns: frozenset[str]  # all others are null
    day: date | None  # in UTC; None: several
    has_shared_bodies: bool
    largest: int  # bytes of the largest value
    same: Mapping[str, Same]  # what all have in common, by column


def sample_shape(database: Database, queue: Queue, wanted: Range) -> Shape | None:
    """Finds the shape of a range by a sample all over it; None if nothing is there."""
    parts = [*wanted.split(_SAMPLES), Range(max(wanted.after, wanted.upto - 1), wanted.upto)]
    ends = [[p.after for p in parts], [p.upto for p in parts]]
    lows, highs = ("{" + ",".join(map(str, end)) + "}" for end in ends)
    (row,) = database.fetch(_SHAPE, lows, highs, queue.id)
    if row["first"] is None or "infinity" in row["first"] + row["last"]:
        return None
    used = {name for name, _, _ in COLUMNS if row[f"has_{name}"] or name in ALWAYS}
    is_one_day = row["first"] == row["last"]
    day = date.fromisoformat(row["first"]) if is_one_day else None
    same = {
        name: Same(row[f"same_{name}"], row[f"literal_{name}"])
        for name in _ALIKE
        if row[f"same_{name}"] is not None
    }
    columns = frozenset({"body", *used})
    return Shape(columns, day, row["has_shared_bodies"], row["largest"] or 0, same)


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
    """Reads the messages with offsets in (from_, to], in SCHEMA; without ends, all that is there
    now. Each partition is one connection and one range scan of the index, so that `partitions` caps
    the connections. What is committed by now below `to` never changes, but retention may take old
    messages away until the frame is read; inside `held_snapshot` it cannot."""
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
    shape: Shape | None = None,
) -> DataFrame:
    """Reads a range of a queue that was looked up already; in SCHEMA, or in less of it by a
    shape."""
    from pyspark.sql import functions as F

    options = jdbc_options(url)
    options["sessionInitStatement"] = join_statement(snapshot)
    size = message_bytes(database, queue, wanted.after, wanted.upto)
    options["fetchsize"] = str(fetch_rows(size))
    only = segments(database, queue, wanted) if snapshot is not None else None
    predicates = [
        f'"offset" > {part.after} AND "offset" <= {part.upto}' for part in wanted.split(partitions)
    ]
    address = options.pop("url")
    table = source(queue, only, values(shape), guard(shape))
    frame = spark.read.jdbc(address, table, predicates=predicates, properties=options)
    refusal = (
        f"queue {queue.name} holds a message with an infinite timestamp, which no file can say"
    )
    return frame.where(plain_or_raise(SURPRISE if shape is not None else refusal)).select(
        F.lit(queue.vhost).alias("vhost"),
        F.lit(queue.name).alias("queue"),
        F.lit(queue.id).cast("bigint").alias("queue_id"),
        *(_typed(name, kind) for name, _, kind in chosen(shape)),
    )


def plain_or_raise(refusal: str) -> Column:
    """Makes a condition that stops the job where a message is not what the read relies on."""
    from pyspark.sql import functions as F

    refused = F.raise_error(F.lit(refusal)).cast("boolean")
    return F.when(F.col("is_plain"), F.lit(True)).otherwise(refused)


def chosen(shape: Shape | None) -> list[tuple[str, str, str]]:
    return [each for each in COLUMNS if shape is None or each[0] in shape.columns]


def values(shape: Shape | None) -> dict[str, str]:
    """Returns how each column travels. Text as bytes: Spark keeps text in UTF-8, and the driver
    would decode it into a Java string and encode it again."""
    found = {
        name: f"textsend({sql})" if kind == "string" else sql for name, sql, kind in chosen(shape)
    }
    if shape is not None and not shape.has_shared_bodies:
        found["body"] = "m.body"
    return found


def guard(shape: Shape | None) -> str:
    """Makes the condition that holds for each message that a shape is right about, and that a file
    can say."""
    if shape is None:
        return IS_FINITE
    tests = [f"m.{name} IS NULL" for name, _, _ in COLUMNS if name not in shape.columns]
    if not shape.has_shared_bodies:
        tests.append("m.body_id IS NULL")
    times = [name for name in _TIMES if name in shape.columns]
    if shape.day is not None:
        times.remove("enqueued_at")
        after = shape.day + timedelta(days=1)
        tests.append(f"m.enqueued_at >= '{shape.day} 00:00Z' AND m.enqueued_at < '{after} 00:00Z'")
    tests += [f"coalesce(isfinite(m.{name}), true)" for name in times]
    return " AND ".join(tests) or "true"


def _typed(name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name).cast(kind)
    return (F.coalesce(column, F.expr(ALWAYS[name])) if name in ALWAYS else column).alias(name)


def source(
    queue: Queue,
    only: Segments | None = None,
    columns: Mapping[str, str] | None = None,
    is_plain: str = IS_FINITE,
) -> str:
    """Makes the table expression; PostgreSQL pulls it up, so that the range reaches the index."""
    wanted = columns or {name: sql for name, sql, _ in COLUMNS}
    selected = ", ".join(f'{sql} AS "{name}"' for name, sql in wanted.items())
    return (
        f"(SELECT {selected}, {is_plain} AS is_plain FROM howdah.message m "
        f"WHERE {' AND '.join(conditions(queue, only))}) t"
    )


def conditions(queue: Queue, only: Segments | None = None) -> list[str]:
    """Lists conditions that find each message of the queue once, though it may lie in two
    segments."""
    found = [f"m.queue_id = {queue.id}"]
    if only is None or only.has_retired:
        found.append(_NOT_COPIED)
    if only is not None and only.ids:
        # Constants: the planner leaves all other partitions out.
        found.append(f"m.segment_id IN ({', '.join(map(str, only.ids))})")
    return found


def fetch_rows(message_bytes: int) -> int:
    """Returns the rows of one fetch: large bodies must not fill an executor's memory."""
    return max(8, min(FETCH_ROWS, _FETCH_BYTES // max(1, message_bytes)))
