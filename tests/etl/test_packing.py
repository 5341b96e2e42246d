"""Packed messages: what PostgreSQL packs is what the files say, value by value."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, date, datetime, timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pytest
from pyarrow import parquet

from queue_core.message.message import Message, Properties
from spark_etl import batch_writer
from spark_etl.errors import EtlError
from spark_etl.export import ExportSettings, export, read_export
from spark_etl.messages import COLUMNS, Same, Shape
from spark_etl.packing import LARGEST_VALUE_BYTES, RUN_OFFSETS, packed_source
from spark_etl.parquet import NoArrowError, write_packed
from spark_etl.queues import Queue, Segments
from spark_etl.ranges import Range
from spark_etl.unpacking import DayFiles, Pace, Packed, arrow_schema, by_day, unpacked
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = datetime(2026, 3, 29, 0, 59, 59, 123456, tzinfo=UTC)
SINCE_2000 = (MOMENT - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

# A column, and how PostgreSQL packs it: its cells, and the values that they hold.
VECTORS = [
    pytest.param(
        Packed("x", "bigint", False),
        {"x": struct.pack("!2q", 2**53 + 1, -1)},
        [2**53 + 1, -1],
        id="numbers",
    ),
    pytest.param(
        Packed("x", "timestamp", True),
        {"x": struct.pack("!2q", SINCE_2000, -(2**63))},
        [MOMENT, None],
        id="times, and none",
    ),
    pytest.param(
        Packed("x", "int", True), {"x": struct.pack("!2i", 7, -(2**31))}, [7, None], id="small"
    ),
    pytest.param(Packed("x", "boolean", False), {"x": b"\1\0"}, [True, False], id="truth"),
    pytest.param(
        Packed("x", "string", True),
        {"x": "üß".encode(), "x_sizes": struct.pack("!2i", 4, -1)},
        ["üß", None],
        id="text, and none",
    ),
    pytest.param(
        Packed("x", "string", True),
        {"x": b"", "x_sizes": struct.pack("!2i", 0, -1)},
        ["", None],
        id="an empty text is not none",
    ),
    pytest.param(
        Packed("x", "binary", True),
        {"x": None, "x_sizes": struct.pack("!2i", -1, -1)},
        [None, None],
        id="nothing at all",
    ),
    pytest.param(
        Packed("x", "binary", False),
        {"x": b"\0\xffab", "x_sizes": struct.pack("!2i", 3, 1)},
        [b"\0\xffa", b"b"],
        id="bytes",
    ),
]


def packed_row(
    cells: dict[str, bytes | None], count: int, *, is_plain: bool = True
) -> pa.RecordBatch:
    arrays: dict[str, Any] = {name: pa.array([cell], pa.binary()) for name, cell in cells.items()}
    told = {"messages": pa.array([count]), "is_plain": pa.array([is_plain])}
    return pa.RecordBatch.from_pydict({**told, **arrays})


@pytest.mark.parametrize(("column", "cells", "values"), VECTORS)
def test_a_packed_column_is_unpacked(
    column: Packed, cells: dict[str, bytes | None], values: list[object]
) -> None:
    row, schema = packed_row(cells, len(values)), arrow_schema([column])
    found = unpacked(row, [column], schema)
    found.validate(full=True)
    assert found.column("x").to_pylist() == values
    several = pa.Table.from_batches([row] * 3).combine_chunks().to_batches()[0]
    assert unpacked(several, [column], schema).column("x").to_pylist() == values * 3
    assert unpacked(several.slice(1, 1), [column], schema).column("x").to_pylist() == values


def test_bytes_that_do_not_fit_their_sizes_are_refused() -> None:
    column = Packed("x", "binary", False)
    row = packed_row({"x": b"abc", "x_sizes": struct.pack("!2i", 1, 1)}, 2)
    with pytest.raises(ValueError, match="3 bytes came of 2"):
        unpacked(row, [column], arrow_schema([column]))


@pytest.mark.parametrize(
    ("kind", "text", "value"), [("string", "ü", "ü"), ("int", "-7", -7), ("boolean", "true", True)]
)
def test_what_all_messages_have_in_common_needs_no_row(kind: str, text: str, value: object) -> None:
    column = Packed("x", kind, False, text)
    found = unpacked(packed_row({}, 3), [column], arrow_schema([column]))
    assert found.column("x").to_pylist() == [value] * 3


def test_a_message_that_is_not_as_the_sample_said_is_told_of() -> None:
    with pytest.raises(ValueError, match="a message is not as the sample said"):
        unpacked(packed_row({}, 3, is_plain=False), [], arrow_schema([]))


def entered(*moments: datetime) -> pa.RecordBatch:
    times = pa.array(moments, pa.timestamp("us", "UTC"))
    schema = pa.schema([pa.field("enqueued_at", times.type, False)])
    return pa.RecordBatch.from_arrays([times], schema=schema)


def test_a_day_begins_at_midnight_in_utc_also_before_1970() -> None:
    moments = [EPOCH - timedelta(microseconds=1), EPOCH, EPOCH + timedelta(days=1)]
    days = {day: part.num_rows for day, part in by_day(entered(*moments))}
    assert days == {-1: 1, 0: 1, 1: 1}


def test_more_days_than_files_may_be_open_are_written_nevertheless(tmp_path: Path) -> None:
    files = DayFiles(f"{tmp_path}/part", entered().schema, frozenset())
    moments = [EPOCH + timedelta(days=day) for day in range(40)]
    files.add(entered(*moments))
    files.write()
    files.add(entered(*moments[:2]))  # the files of these are closed already
    files.write()
    files.close()
    told = files.told().to_pylist()
    assert [each["day"] for each in told[:2]] == ["1970-01-01", "1970-01-02"]
    assert sum(each["messages"] for each in told) == 42
    for each in told:
        assert parquet.read_metadata(tmp_path / each["name"]).num_rows == each["messages"]


def test_a_pace_holds_back_whoever_is_faster_and_saves_nothing_up() -> None:
    now = 100.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(10, clock=lambda: now, sleep=sleep)
    pace.wait(5)
    assert slept == [0.5]
    now += 60  # slow by itself
    pace.wait(5)
    assert slept == [0.5]
    pace.wait(20)
    assert slept == [0.5, 2.0]
    Pace(None, clock=lambda: now, sleep=sleep).wait(1000)
    assert len(slept) == 2


# --- with PostgreSQL

INSERT = """
    INSERT INTO howdah.message (segment_id, queue_id, "offset", {})
    SELECT s.id, q.id, $1, {} FROM howdah.segment s, howdah.queue q WHERE q.name = 's'
    ORDER BY s.id DESC LIMIT 1
"""
FULL = {
    "enqueued_at": "'2026-01-31 23:59:59.999999+00'",
    "not_before": "'2026-02-01 12:00+02'",
    "expires_at": "'0044-03-15 12:00+00 BC'",
    "created_at": "'9999-12-31 23:59:59+00'",
    "priority": "4",
    "durable": "true",
    "exchange": "'e'",
    "routing_key": "'schlüssel'",
    "content_type": "'text/plain'",
    "content_encoding": "''",
    "message_id": "'m'",
    "correlation_id": "'c'",
    "reply_to": "'r'",
    "subject": "'s'",
    "app_id": "'a'",
    "user_id": "'u'",
    "group_id": "'g'",
    "headers": """'{"n": 1152921504606846976, "ü": [null, 1.5]}'""",
    "deaths": """'[{"queue": "q"}]'""",
    "delivery": """'{"qos": 1}'""",
    "publisher": "'p'",
    "form": "2",
    "native": r"'\x00ff'",
    "body": r"'\x00'",
}
BARE = {name: FULL[name] for name in ("enqueued_at", "durable", "exchange", "routing_key")}


async def insert(db: asyncpg.Connection, offset: int, values: dict[str, str]) -> None:
    names = ", ".join(values)
    await db.execute(INSERT.format(names, ", ".join(values.values())), offset)


async def queue_of(db: asyncpg.Connection) -> Queue:
    row = await db.fetchrow("SELECT id, vhost, name, kind FROM howdah.queue WHERE name = 's'")
    assert row is not None
    return Queue(**dict(row))


def test_every_column_has_a_value_in_the_full_message() -> None:
    assert {name for name, _, _ in COLUMNS} == {"offset", *FULL}


async def test_what_is_packed_reads_as_what_is_read_message_by_message(
    spark: SparkSession,
    house: House,
    db: asyncpg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every column full, every column empty, next to each other, over more than one run."""
    await house.stream("s")
    await house.store("s", b"first")
    for offset in range(1, 9):
        await insert(db, offset, FULL if offset % 2 else {**BARE, "body": r"'\x'"})
    first = await asyncio.to_thread(run, spark, house.url, tmp_path / "packed")
    monkeypatch.setattr(batch_writer, "is_worth_packing", lambda shape: False)
    second = await asyncio.to_thread(run, spark, house.url, tmp_path / "rows")
    assert len(first) == 9
    assert first == second
    assert {row.day for row in first} == {date(2026, 1, 31), date(2027, 1, 15)}
    written = [parquet.read_schema(p).metadata for p in (tmp_path / "packed").rglob("*.parquet")]
    assert not any(b"org.apache.spark.version" in (each or {}) for each in written)
    (late,) = {row.expires_at_us for row in first if row.expires_at_us is not None}
    assert late == await db.fetchval(
        "SELECT (extract(epoch FROM expires_at) * 1000000)::int8 FROM howdah.message "
        "WHERE expires_at IS NOT NULL LIMIT 1"
    )


def run(spark: SparkSession, url: str, out: Path, **more: Any) -> list[Row]:
    """Exports the stream, and reads the export back. Times as numbers: Python has no year -43."""
    export(spark, url, ["s"], ExportSettings(out, 1000, 2, **more))
    frame = read_export(spark, out, "s")
    times = [name for name, _, kind in COLUMNS if kind == "timestamp"]
    rest = [name for name in frame.columns if name not in times]
    numbers = [f"unix_micros({name}) AS {name}_us" for name in times]
    return frame.selectExpr(*(f"`{name}`" for name in rest), *numbers).orderBy("offset").collect()


async def test_a_run_of_offsets_is_one_probe_of_the_index_in_the_segments_that_have_it(
    house: House, db: asyncpg.Connection
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(3000)])
    await db.execute("ANALYZE howdah.message")
    columns = frozenset(("offset", "enqueued_at", "durable", "body"))
    shape = Shape(columns, None, False, 0, {"durable": Same("true", "'true'")})
    queue = await queue_of(db)
    table = packed_source(
        queue, Range(-1, 2999), shape, Segments([1], has_retired=False), RUN_OFFSETS
    )
    query = f'SELECT * FROM {table} WHERE "first" >= 0 AND "first" < 2000'
    plan = "\n".join(r[0] for r in await db.fetch(f"EXPLAIN {query}"))
    assert f'(queue_id = {queue.id}) AND ("offset" > r.first) AND ("offset" <= LEAST(' in plan
    assert "Seq Scan on message_" not in plan
    assert "Sort" not in plan
    counts = await db.fetch(f'SELECT "first", messages FROM {table} ORDER BY 1')
    assert [tuple(row) for row in counts] == [
        (-1, RUN_OFFSETS),
        (RUN_OFFSETS - 1, RUN_OFFSETS),
        (2 * RUN_OFFSETS - 1, 952),
    ]


async def test_a_large_message_among_small_ones_is_exported_message_by_message(
    spark: SparkSession, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run of messages may become larger than memory allows."""
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(330)])
    await house.store("s", b"x" * (LARGEST_VALUE_BYTES + 1))
    await house.store("s", *[b"%d" % i for i in range(331, 700)])
    rows = await asyncio.to_thread(run, spark, house.url, tmp_path / "out")
    assert [row.offset for row in rows] == list(range(700))
    assert len(rows[330].body) == LARGEST_VALUE_BYTES + 1
    assert "a message is not as the sample said" in capsys.readouterr().err


async def test_a_value_that_all_but_one_message_have_is_that_messages_own(
    spark: SparkSession, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the one has none at all, and where SQL must be told of the value with care."""
    await house.stream("s")
    odd = "it's ? \\ %s"
    for offset in range(700):
        subject = {330: None, 331: "other"}.get(offset, odd)
        properties = Properties(subject=subject)
        house.vhost.publish(Message(b"x", "", routing_key="s", properties=properties))
    await house.flushed()
    rows = await asyncio.to_thread(run, spark, house.url, tmp_path / "out")
    assert [row.subject for row in rows] == [odd] * 330 + [None, "other"] + [odd] * 368
    assert capsys.readouterr().err.count("a message is not as the sample said") == 1


async def test_a_rate_holds_back_either_way_of_reading_and_changes_nothing_else(
    spark: SparkSession, house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(30)])
    plain = await asyncio.to_thread(run, spark, house.url, tmp_path / "plain")
    assert await asyncio.to_thread(run, spark, house.url, tmp_path / "packed", rate=1e5) == plain
    monkeypatch.setattr(batch_writer, "is_worth_packing", lambda shape: False)
    assert await asyncio.to_thread(run, spark, house.url, tmp_path / "rows", rate=1e5) == plain
    with pytest.raises(EtlError, match="the rate is 0, and must be above 0"):
        await asyncio.to_thread(run, spark, house.url, tmp_path / "none", rate=0)


def test_at_a_low_rate_batches_are_small_so_that_no_moment_is_held_for_long(tmp_path: Path) -> None:
    assert ExportSettings(tmp_path, rate=100).most_after(0) == 6000
    assert ExportSettings(tmp_path, 50, rate=100).most_after(0) == 50
    assert ExportSettings(tmp_path, 50).most_after(0) == 50


def test_a_long_run_becomes_gentle_and_a_short_one_is_not_held_back(tmp_path: Path) -> None:
    gentle = ExportSettings(tmp_path, 700_000)
    assert (gentle.rate_after(0), gentle.most_after(0)) == (inf, 700_000)
    assert (gentle.rate_after(700_000), gentle.most_after(700_000)) == (inf, 300_000)
    assert (gentle.rate_after(1_000_000), gentle.most_after(1_000_000)) == (20_000, 700_000)
    unbound = ExportSettings(tmp_path, 700_000, rate=inf)
    assert (unbound.rate_after(1_000_000), unbound.most_after(1_000_000)) == (inf, 700_000)


# --- what workers leave behind, and what they lack


class Frame:
    """Stands for a frame whose workers do what a test says."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def mapInArrow(self, function: Any, schema: str) -> Frame:
        return self

    def collect(self) -> list[Any]:
        found: list[Any] = self._work()
        return found


def test_what_a_failed_attempt_of_a_task_left_is_not_among_the_files(tmp_path: Path) -> None:
    from pyspark.sql import Row

    def work() -> list[Row]:
        for name in ("told.parquet", "left.parquet"):
            (tmp_path / "out" / "_writing" / name).touch()
        return [Row(name="told.parquet", day="2026-01-31", messages=3)]

    assert write_packed(Frame(work), [], tmp_path / "out") == 3  # type: ignore[arg-type]
    found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert found == ["out/day=2026-01-31/told.parquet"]


def test_workers_without_arrow_are_told_from_other_failures(tmp_path: Path) -> None:
    from pyspark.errors import PythonException

    def lacking() -> list[Any]:
        raise PythonException("ModuleNotFoundError: No module named 'pyarrow'")

    def failing() -> list[Any]:
        raise PythonException("ValueError: something else")

    with pytest.raises(NoArrowError, match="lacks pyarrow or numpy"):
        write_packed(Frame(lacking), [], tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(PythonException, match="something else"):
        write_packed(Frame(failing), [], tmp_path / "b")  # type: ignore[arg-type]


async def test_without_arrow_at_the_workers_the_export_is_slower_and_the_same(
    spark: SparkSession,
    house: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(10)])

    def lacking(*_: Any) -> int:
        raise NoArrowError("the executors' Python lacks pyarrow or numpy")

    monkeypatch.setattr(batch_writer, "write_packed", lacking)
    rows = await asyncio.to_thread(run, spark, house.url, tmp_path / "out")
    assert [row.offset for row in rows] == list(range(10))
    assert "written one by one, which is slower" in capsys.readouterr().err
    with pytest.raises(EtlError, match="a rate needs them"):
        await asyncio.to_thread(run, spark, house.url, tmp_path / "paced", rate=1e5)


async def test_files_that_vanish_before_they_are_counted_are_not_published(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    """How many messages a classic queue should have nobody knows, but how many were read."""
    await house.queue("q")
    await house.store("q", *[b"%d" % i for i in range(10)])
    out = tmp_path / "out"

    def vanish(step: str) -> None:
        if step == "written":
            next(out.rglob("*.parquet")).unlink()

    def work() -> None:
        export(spark, house.url, ["q"], ExportSettings(out, 1000, 2), on_step=vanish)

    with pytest.raises(EtlError, match="has 5 messages, and 10 were read: not published"):
        await asyncio.to_thread(work)
    assert not list(out.glob("_manifest/*/*.json"))
