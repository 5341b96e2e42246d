"""Writes packed messages into Parquet files, in Spark's Python workers: column by column, no row in
sight.

Answers for what a worker does. It travels to the workers by value, so that they need pyarrow and
numpy, and nothing of ours. It must not know PostgreSQL, but for the binary form of its values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

NULL_INT: Final = -(2**31)
_NULL_TIME: Final = -(2**63)  # -infinity, which no message may have
_EPOCH: Final = 946_684_800_000_000  # PostgreSQL counts from 2000 on, Parquet from 1970 on
_DAY: Final = 86_400_000_000

# What gathers before it is written: a row group. All days of a task share it.
_GROUP_BYTES: Final = 32 * 1024 * 1024
_PAGE_BYTES: Final = 256 * 1024
_OPEN_FILES: Final = 32

# What a read by a sample says of a message that is different.
SURPRISE: Final = "a message is not as the sample said"

WRITTEN: Final = "name string, day string, messages bigint"

Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True, slots=True)
class Packed:
    """A column of messages: `name` in the packed row, and `name`_sizes where sizes differ.

    Where all messages have the same value, it is here, as text, and in no row.
    """

    name: str
    kind: str
    is_nullable: bool
    same: str | None = None


def file_writer(
    folder: str, columns: list[Packed], opaque: frozenset[str], rate: float | None
) -> Work:
    """Makes the function for mapInArrow that writes packed messages to files in the folder, and
    tells their names. A name is of one attempt at a task alone, and a file is whole when its name
    is told: what else lies in the folder was left by an attempt that failed."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        name = f"{folder}/part-{context.partitionId():05d}-{context.taskAttemptId()}"
        schema = arrow_schema(columns)
        files, pace = DayFiles(name, schema, opaque), Pace(rate)
        try:
            for batch in batches:
                messages = unpacked(batch, columns, schema)
                files.add(messages)
                pace.wait(messages.num_rows)
            files.write()
        finally:
            files.close()
        yield files.told()

    return write


def passer(rate: float) -> Work:
    """Makes the function for mapInArrow that hands rows on, `rate` a second at most."""

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pace = Pace(rate)
        for batch in batches:
            yield batch
            pace.wait(batch.num_rows)

    return hand_on


class Pace:
    """Holds a reader back; what sends to it waits in turn, PostgreSQL at last."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = 1 / rate if rate else 0.0
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def wait(self, count: int) -> None:
        """Waits until as much time has passed as `count` messages more may take."""
        if not self._seconds:
            return
        now = self._clock()
        self._due = max(now - count * self._seconds, self._due) + count * self._seconds
        if self._due > now:
            self._sleep(self._due - now)


def arrow_schema(columns: list[Packed]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    return pa.schema([pa.field(c.name, types[c.kind], c.is_nullable) for c in columns])


def unpacked(batch: pa.RecordBatch, columns: list[Packed], schema: pa.Schema) -> pa.RecordBatch:
    """Unpacks the messages of some packed rows. Values that follow each other in a row and from row
    to row are a column already, but for where each begins."""
    import pyarrow as pa
    from pyarrow import compute

    if not compute.all(batch.column("is_plain")).as_py():
        raise ValueError(SURPRISE)
    count = compute.sum(batch.column("messages")).as_py() or 0
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        if column.same is not None:
            array = _repeated(column, field.type, count)
        elif column.kind in ("string", "binary"):
            sizes = _bytes(batch, f"{column.name}_sizes")
            array = _of_sizes(field.type, count, sizes, _bytes(batch, column.name))
        else:
            array = _of_one_size(column, field.type, count, _bytes(batch, column.name))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes(batch: pa.RecordBatch, name: str) -> Any:
    """Returns all values of a column, end to end: as Arrow keeps them, so nothing is copied."""
    import numpy as np

    array = batch.column(name)
    _, starts, data = array.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(starts, np.int32)[array.offset : array.offset + len(array) + 1]
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _repeated(column: Packed, kind: pa.DataType, count: int) -> pa.Array:
    import pyarrow as pa

    assert column.same is not None
    match column.kind:
        case "boolean":
            value: object = column.same == "true"
        case "int":
            value = int(column.same)
        case _:
            value = column.same
    return pa.repeat(pa.scalar(value, kind), count)


def _of_sizes(kind: pa.DataType, count: int, packed_sizes: Any, data: Any) -> pa.Array:
    """Makes a column of values of all sizes: where each begins follows from the sizes; -1 is
    null."""
    import numpy as np
    import pyarrow as pa

    sizes = np.frombuffer(packed_sizes, ">i4", count).astype(np.int32)
    is_known = sizes >= 0
    starts = np.zeros(count + 1, np.int32)
    np.cumsum(np.where(is_known, sizes, 0), out=starts[1:])
    if starts[-1] != len(data):
        raise ValueError(f"{len(data)} bytes came of {starts[-1]}: the packed messages are damaged")
    return pa.Array.from_buffers(
        kind, count, [_validity(is_known), pa.py_buffer(starts), pa.py_buffer(data)]
    )


def _of_one_size(column: Packed, kind: pa.DataType, count: int, data: Any) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if column.kind == "boolean":
        return pa.array(np.frombuffer(data, np.bool_, count))
    is_int = column.kind == "int"
    found = np.frombuffer(data, ">i4" if is_int else ">i8", count)
    numbers: np.ndarray[Any, Any] = found.astype(np.int32 if is_int else np.int64)
    is_known = numbers != (NULL_INT if is_int else _NULL_TIME)
    if column.kind == "timestamp":
        numbers = numbers + _EPOCH
    validity = _validity(is_known) if column.is_nullable else None
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(numbers)])


def _validity(is_known: np.ndarray[Any, Any]) -> pa.Buffer | None:
    """Makes Arrow's bitmap of what is not null; None where nothing is."""
    import numpy as np
    import pyarrow as pa

    if is_known.all():
        return None
    return pa.py_buffer(np.packbits(is_known, bitorder="little"))


class DayFiles:
    """The files of one attempt at a task, one or more for each day."""

    def __init__(self, name: str, schema: pa.Schema, opaque: frozenset[str]) -> None:
        self._name = name
        self._schema = schema
        self._telling = [name for name in schema.names if name not in opaque]
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: dict[int, tuple[str, parquet.ParquetWriter]] = {}
        self._written: dict[str, tuple[str, int]] = {}  # name -> day and messages

    def add(self, messages: pa.RecordBatch) -> None:
        for day, part in by_day(messages):
            self._waiting.setdefault(day, []).append(part)
        self._waiting_bytes += messages.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Writes the gathered messages as a row group into the file of their day."""
        import pyarrow as pa

        for day, parts in self._waiting.items():
            messages = pa.Table.from_batches(parts)
            path, writer = self._file(day)
            writer.write_table(messages, row_group_size=messages.num_rows)
            text, before = self._written[path]
            self._written[path] = (text, before + messages.num_rows)
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        for _, writer in self._open.values():
            writer.close()
        self._open.clear()

    def told(self) -> pa.RecordBatch:
        """Returns the files and their counts, in WRITTEN."""
        import pyarrow as pa

        names = [path.rpartition("/")[2] for path in self._written]
        days, counts = ([each[i] for each in self._written.values()] for i in range(2))
        arrays = [pa.array(names, pa.string()), pa.array(days, pa.string())]
        arrays.append(pa.array(counts, pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, ["name", "day", "messages"])

    def _file(self, day: int) -> tuple[str, parquet.ParquetWriter]:
        from pyarrow import parquet

        if day not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._open.pop(next(iter(self._open)))[1].close()
            path = f"{self._name}-{len(self._written)}.parquet"
            writer = parquet.ParquetWriter(
                path,
                self._schema,
                compression="snappy",
                use_dictionary=False,
                write_statistics=self._telling,
                data_page_size=_PAGE_BYTES,
                write_page_checksum=True,
                store_schema=False,
            )
            self._open[day] = (path, writer)
            self._written[path] = (str(date(1970, 1, 1) + timedelta(days=day)), 0)
        return self._open[day]


def by_day(messages: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits messages by the day in UTC that they entered their queue on, in days since 1970."""
    import numpy as np
    import pyarrow as pa

    if not messages.num_rows:
        return
    days = messages.column("enqueued_at").view(pa.int64()).to_numpy() // _DAY
    first, last = days.min(), days.max()
    if first == last:
        yield int(first), messages
        return
    for day in np.unique(days):
        yield int(day), messages.filter(pa.array(days == day))
