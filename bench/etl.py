"""Measures the speed of the export, beside a bare Spark JDBC read of the same rows in the same run.

    python -m bench.etl --messages 1000000 --url postgresql://...

Fills a stream (by SQL, as the gateway would store it), then reads it to `noop` and exports it, with
one partition and with two, in turns. Ratios are those of the medians; `cpu_us` is the processor
time of Spark and PostgreSQL together for each row, which other work on the machine hardly changes.
Without --url it runs a private PostgreSQL; with it, `cpu_us` is Spark's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from bench.processes import cpu_seconds
from gateway.postgres.server import EmbeddedPostgres
from queue_core.store.operator import migration
from spark_etl.export import ExportSettings, export
from spark_etl.jdbc_options import jdbc_options
from spark_etl.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE: Final = "bench.etl"  # no name that a load would use, and delete
SEGMENT_MESSAGES: Final = 250_000
BYTES: Final = 256
_INSERT: Final = """
    INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, durable, exchange,
                                routing_key, content_type, headers, body)
    SELECT $1, $2, i, now(), true, '', 'bench', 'application/octet-stream', '{"k": 1}',
           substring(decode(string_agg(md5((i * 16 + j)::text), ''), 'hex') FOR $5)
    FROM generate_series($3::int8, $4::int8) i, generate_series(1, 16) j GROUP BY i ORDER BY i
"""


async def fill(url: str, messages: int, name: str = QUEUE) -> int:
    """Makes a stream of so many messages, and returns its queue id."""
    await migration.upgrade(url)
    connection = await asyncpg.connect(url)
    try:
        queue: int = await connection.fetchval(
            "INSERT INTO howdah.queue (vhost, name, kind, arguments, shard) "
            """VALUES ('/', $1, 'stream', '{"x-queue-type": "stream"}', 0) RETURNING id""",
            name,
        )
        for start in range(0, messages, SEGMENT_MESSAGES):
            segment = await connection.fetchval("SELECT howdah.create_segment($1)", queue)
            last = min(messages, start + SEGMENT_MESSAGES) - 1
            await connection.execute(_INSERT, segment, queue, start, last, BYTES, timeout=600)
        return queue
    finally:
        await connection.close()


def bare_read(spark: SparkSession, url: str, queue: int, messages: int, parts: int) -> None:
    """Reads the queue by Spark alone: every column, equal ranges, thrown away."""
    cuts = [messages * i // parts for i in range(parts + 1)]
    predicates = [
        f'queue_id = {queue} AND "offset" >= {low} AND "offset" < {high}'
        for low, high in pairwise(cuts)
    ]
    options = jdbc_options(url)
    address = options.pop("url")
    frame = spark.read.jdbc(address, "howdah.message", predicates=predicates, properties=options)
    frame.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True, slots=True)
class Run:
    """One read or export of everything."""

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """Times work, and what Spark and PostgreSQL spend on it."""

    def __init__(self, processes: list[int]) -> None:
        self._processes = processes
        self.runs: dict[str, list[Run]] = defaultdict(list)

    def time(self, name: str, work: Callable[[], object]) -> None:
        cpu, began = self._cpu(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        self.runs[name].append(Run(seconds, self._cpu() - cpu))

    def _cpu(self) -> float:
        return sum(cpu_seconds(pid, children=True) for pid in self._processes)


def measure(url: str, messages: int, rounds: int, servers: list[int]) -> dict[str, list[Run]]:
    """Measures reads and exports in turns, after one of each to warm up."""
    queue = asyncio.run(fill(url, messages))
    spark = local_session("howdah bench", cores=2)
    jvm: Any = spark._jvm
    watch = Stopwatch([int(jvm.java.lang.ProcessHandle.current().pid()), *servers])
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        targets = (Path(folder) / str(number) for number in count())

        def export_all(parts: int) -> None:
            target = next(targets)
            export(spark, url, [QUEUE], ExportSettings(target, messages, parts, rate=inf))
            shutil.rmtree(target)

        for parts in (2, 1):
            bare_read(spark, url, queue, messages, parts)
            export_all(parts)
        for _ in range(rounds):
            for parts in (1, 2):
                watch.time(f"bare_{parts}", partial(bare_read, spark, url, queue, messages, parts))
                watch.time(f"export_{parts}", partial(export_all, parts))
    spark.stop()
    return watch.runs


def report(messages: int, runs: dict[str, list[Run]]) -> dict[str, object]:
    rates = {name: messages / median(r.seconds for r in each) for name, each in runs.items()}
    costs = {name: median(r.cpu_seconds for r in each) / messages for name, each in runs.items()}
    return {
        "messages": messages,
        "rows_per_s": {name: round(rate) for name, rate in rates.items()},
        "cpu_us": {name: round(cost * 1e6, 2) for name, cost in costs.items()},
        "export_to_bare_1": round(rates["export_1"] / rates["bare_1"], 2),
        "export_to_bare_2": round(rates["export_2"] / rates["bare_2"], 2),
        "export_2_to_1": round(rates["export_2"] / rates["export_1"], 2),
        "bare_to_export_cpu_1": round(costs["bare_1"] / costs["export_1"], 2),
        "bare_to_export_cpu_2": round(costs["bare_2"] / costs["export_2"], 2),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", help="an empty database (default: a private PostgreSQL)")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.url:
        found = measure(options.url, options.messages, options.rounds, [])
    else:
        with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
            Path(folder).chmod(0o711)
            with EmbeddedPostgres(Path(folder) / "data") as server:
                found = measure(server.url, options.messages, options.rounds, [server.pid])
    print(json.dumps(report(options.messages, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
