"""stats: tells how each queue did, minute by minute, as Parquet and as a page.

Answers for the figures; the page is drawn elsewhere. Only sizes and times cross the wire, no body.

The time in a queue is from a message's entry to the flush that settled it; of a stream, to the
first group that did. The journal of settlements starts anew now and then, so that old messages have
no time: `timed` says how many have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_etl.jdbc_options import jdbc_options
from spark_etl.snapshot import Snapshot, join_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATS_SCHEMA: Final = (
    "vhost string, queue string, minute timestamp, messages bigint, bytes bigint, timed bigint, "
    "p50_ms double, p95_ms double, p99_ms double, redeliveries bigint, "
    "dead_letters map<string, bigint>"
)
_BUCKET: Final = 1000  # offsets that are looked up together

_MESSAGES: Final = """
    SELECT q.vhost, q.name AS queue, m.queue_id, m."offset", m.enqueued_at,
           coalesce(octet_length(m.body), (
               SELECT octet_length(b.body) FROM howdah.message_body b
               WHERE b.id = m.body_id AND b.segment_id = m.segment_id), 0)::int8 AS bytes,
           m.deaths -> 0 ->> 'queue' AS died_in,
           m.deaths -> 0 ->> 'reason' AS reason,
           to_timestamp((m.deaths -> 0 ->> 'time')::float8) AS died_at
    FROM howdah.message m JOIN howdah.queue q ON q.id = m.queue_id
"""
# What each flush settled: the ranges above the floor, and what the floor passed. The first full row
# of a generation repeats what earlier ones said, so its time says nothing.
_SETTLED: Final = """
    SELECT s.queue_id, lower(r.span) AS low, upper(r.span) AS high, s.written_at
    FROM (
        SELECT j.queue_id, j.written_at, j.acked, j.floor,
               lag(j.floor) OVER w AS before, row_number() OVER w AS number, j.is_full
        FROM howdah.settlement j
        JOIN howdah.queue q ON q.id = j.queue_id
        JOIN howdah.shard h ON h.id = q.shard AND h.generation = j.generation
        WINDOW w AS (PARTITION BY j.queue_id, j.group_name ORDER BY j.seq)
    ) s
    CROSS JOIN LATERAL unnest(
        s.acked + int8multirange(int8range(coalesce(s.before, 0), greatest(s.floor, s.before, 0)))
    ) AS r(span)
    WHERE NOT (s.is_full AND s.number = 1 AND s.floor > 0)
"""
_REDELIVERIES: Final = """
    SELECT q.vhost, q.name AS queue, f.written_at
    FROM howdah.redelivery f JOIN howdah.queue q ON q.id = f.queue_id
    JOIN howdah.shard h ON h.id = q.shard AND h.generation = f.generation
"""


def read_stats(spark: SparkSession, url: str, snapshot: Snapshot) -> DataFrame:
    """Reads the figures of all durable queues, in STATS_SCHEMA, as of one moment."""

    def read(query: str) -> DataFrame:
        options = jdbc_options(url)
        options["sessionInitStatement"] = join_statement(snapshot)
        return spark.read.format("jdbc").options(**options).load(query=query)

    messages = read(_MESSAGES)
    return combined(
        traffic(messages, read(_SETTLED)),
        redeliveries(read(_REDELIVERIES)),
        dead_letters(messages),
    )


def traffic(messages: DataFrame, settled: DataFrame) -> DataFrame:
    """Counts messages per queue and minute of entry, with the time that they stayed."""
    from pyspark.sql import functions as F

    spans = settled.select(
        "queue_id",
        "low",
        "high",
        "written_at",
        F.explode(F.expr(f"sequence(low div {_BUCKET}, (high - 1) div {_BUCKET})")).alias("bucket"),
    )
    entered = messages.withColumn("bucket", F.expr(f"offset div {_BUCKET}"))
    within = (F.col("offset") >= F.col("low")) & (F.col("offset") < F.col("high"))
    left = (
        entered.join(spans, ["queue_id", "bucket"])
        .where(within)
        .groupBy("queue_id", "offset")
        .agg(F.min("written_at").alias("settled_at"))
    )
    stayed = F.expr("(unix_micros(settled_at) - unix_micros(enqueued_at)) / 1000.0D")
    return (
        messages.join(left, ["queue_id", "offset"], "left")
        .withColumn("ms", stayed)
        .groupBy("vhost", "queue", F.date_trunc("minute", "enqueued_at").alias("minute"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.count("ms").alias("timed"),
            F.percentile("ms", 0.5).alias("p50_ms"),
            F.percentile("ms", 0.95).alias("p95_ms"),
            F.percentile("ms", 0.99).alias("p99_ms"),
        )
    )


def redeliveries(failed: DataFrame) -> DataFrame:
    """Counts failed deliveries per queue and minute of the failure."""
    from pyspark.sql import functions as F

    minute = F.date_trunc("minute", "written_at").alias("minute")
    return failed.groupBy("vhost", "queue", minute).agg(F.count("*").alias("redeliveries"))


def dead_letters(messages: DataFrame) -> DataFrame:
    """Counts deaths by reason, per queue that they died in and minute."""
    from pyspark.sql import functions as F

    minute = F.date_trunc("minute", "died_at").alias("minute")
    by_reason = (
        messages.where("died_in IS NOT NULL AND reason IS NOT NULL AND died_at IS NOT NULL")
        .groupBy("vhost", F.col("died_in").alias("queue"), minute, "reason")
        .agg(F.count("*").alias("deaths"))
    )
    entries = F.map_from_entries(F.collect_list(F.struct("reason", "deaths")))
    return by_reason.groupBy("vhost", "queue", "minute").agg(entries.alias("dead_letters"))


def combined(entered: DataFrame, failed: DataFrame, died: DataFrame) -> DataFrame:
    """Joins the figures to one row per queue and minute that has any."""
    from pyspark.sql import functions as F

    key = ["vhost", "queue", "minute"]
    joined = entered.join(failed, key, "full").join(died, key, "full")
    counts = ("messages", "bytes", "timed", "redeliveries")
    filled = joined.fillna(0, subset=list(counts))
    empty = F.expr("cast(map() AS map<string, bigint>)")
    return filled.select(
        *key,
        "messages",
        "bytes",
        "timed",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "redeliveries",
        F.coalesce("dead_letters", empty).alias("dead_letters"),
    ).orderBy(*key)
