"""Packs many messages into one row: the query by which PostgreSQL makes a run of offsets a few long
values.

A row for each message costs Spark more than the message itself: a value object, a copy and a
conversion for each column. Packed, a run of offsets is one row, with all values of a column end to
end in their binary form, and beside them their lengths. `unpacking` makes columns of it again.

Answers for the query and for its bounds. Where messages are large there is nothing to win, and they
travel as they are (`messages.read_range`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_etl.jdbc_options import jdbc_options
from spark_etl.messages import (
    ALWAYS,
    Shape,
    chosen,
    conditions,
    guard,
    values,
)
from spark_etl.queues import Queue, Segments, segments
from spark_etl.ranges import Range
from spark_etl.snapshot import Snapshot, join_statement
from spark_etl.unpacking import NULL_INT, Packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_OFFSETS: Final = 1024  # packed into a row
_FETCH_RUNS: Final = 4

# The most that one value of these may have, so that a run of them has 64 MiB at most. The others
# are short by the protocols' own limits.
LARGEST_VALUE_BYTES: Final = 64 * 1024
_UNBOUNDED: Final = ("headers", "deaths", "delivery", "native", "body")

# A run is found by the index or not at all: the planner must not come to read a segment for each.
_PLAN: Final = "SET LOCAL enable_seqscan = off"


def is_worth_packing(shape: Shape) -> bool:
    """Tells if packing pays. Large bodies, and those that are stored apart, are most of the work by
    themselves."""
    return shape.largest <= LARGEST_VALUE_BYTES and not shape.has_shared_bodies


def read_packed(
    spark: SparkSession,
    url: str,
    queue: Queue,
    wanted: Range,
    *,
    partitions: int,
    snapshot: Snapshot,
    shape: Shape,
) -> DataFrame:
    """Reads a range of a queue, a run of offsets in each row; one connection for each partition."""
    shape = replace(shape, day=None)  # files are written by day anyway
    step = max(1, min(RUN_OFFSETS, -(-len(wanted) // partitions)))
    runs = Range(0, -(-len(wanted) // step)).split(partitions)
    starts = [(wanted.after + part.after * step, wanted.after + part.upto * step) for part in runs]
    options = jdbc_options(url)
    options["sessionInitStatement"] = f"{join_statement(snapshot)}; {_PLAN}"
    options["fetchsize"] = str(_FETCH_RUNS)
    only = segments(snapshot.database, queue, wanted)
    address = options.pop("url")
    frame = spark.read.jdbc(
        address,
        packed_source(queue, wanted, shape, only, step),
        predicates=[f'"first" >= {low} AND "first" < {high}' for low, high in starts],
        properties=options,
    )
    # Straight from the scan to the workers: a filter or a projection would copy each row again.
    return frame.drop("first")


def packed_columns(shape: Shape) -> list[Packed]:
    """Lists the columns of a packed row, for the code that unpacks it."""
    found = []
    for name, _, kind in chosen(shape):
        same = shape.same[name].text if name in shape.same else None
        found.append(Packed(name, kind, name not in ALWAYS and same is None, same))
    return found


def packed_source(queue: Queue, wanted: Range, shape: Shape, only: Segments, step: int) -> str:
    """Makes the table expression: for each run of `step` offsets, one probe of the index."""
    sent = ", ".join(f'{_sent(*each)} AS "{each[0]}"' for each in _wired(shape))
    # False for a null, too: bool_and would pass over one.
    alike = [
        f"m.{name} IS NOT NULL AND m.{name} = {same.literal}" for name, same in shape.same.items()
    ]
    is_plain = " AND ".join([guard(shape), *alike])
    among = " AND ".join(conditions(queue, only))
    return f"""(
        SELECT r.first, p.* FROM generate_series({wanted.after}, {wanted.upto - 1}, {step})
            AS r (first)
        CROSS JOIN LATERAL (
            SELECT count(*) AS messages, {", ".join(_aggregates(shape))}
            FROM (
                SELECT {sent}, {is_plain} AS is_plain FROM howdah.message m
                WHERE {among} AND m."offset" > r.first
                AND m."offset" <= least(r.first + {step}, {wanted.upto})
                OFFSET 0) v
        ) p) t"""


def _wired(shape: Shape) -> list[tuple[str, str, str]]:
    sql = values(shape)
    return [(name, sql[name], kind) for name, _, kind in _differing(shape)]


def _differing(shape: Shape) -> list[tuple[str, str, str]]:
    """Lists the columns that travel: a value that all messages share need not."""
    return [each for each in chosen(shape) if each[0] not in shape.same]


def _sent(name: str, sql: str, kind: str) -> str:
    """Makes the SQL for the binary form of a value. Where all have one size, a value that never
    occurs stands for null."""

    def known(null: str) -> str:
        return sql if name in ALWAYS else f"coalesce({sql}, {null})"

    match kind:
        case "bigint":
            return f"int8send({sql})"
        case "timestamp":
            infinite = "'-infinity'"
            return f"timestamptz_send({known(infinite)})"
        case "int":
            return f"int4send({known(str(NULL_INT))})"
        case "boolean":
            return f"boolsend({sql})"
    return sql  # string and binary: bytes already


def _aggregates(shape: Shape) -> list[str]:
    found, fits = [], ["v.is_plain"]
    for name, _, kind in _differing(shape):
        value = f'v."{name}"'
        if kind not in ("string", "binary"):
            found.append(f"string_agg({value}, '') AS \"{name}\"")
            continue
        size = f"octet_length({value})"
        filtered = ""
        if name in _UNBOUNDED:
            fits.append(f"coalesce({size}, 0) <= {LARGEST_VALUE_BYTES}")
            filtered = f" FILTER (WHERE {size} <= {LARGEST_VALUE_BYTES})"
        found.append(f"string_agg({value}, ''){filtered} AS \"{name}\"")
        known = size if name in ALWAYS else f"coalesce({size}, -1)"
        found.append(f"string_agg(int4send({known}), '') AS \"{name}_sizes\"")
    return [*found, f"coalesce(bool_and({' AND '.join(fits)}), true) AS is_plain"]
