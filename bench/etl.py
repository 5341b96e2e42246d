"""How fast the export is, beside a bare Spark JDBC read of the same rows in the same run.

    python -m bench.etl --messages 1000000 --url postgresql://...

Fills a stream (by SQL, as the gateway would store it), then reads it to `noop` and exports it, with
one partition and with two. Without --url it runs a private PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

from queue_core.store import migration
from spark_etl.connection import jdbc_options
from spark_etl.export import ExportSettings, export
from spark_etl.runtime import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE: Final = "bench"
SEGMENT_MESSAGES: Final = 250_000
BYTES: Final = 256
_INSERT: Final = """
    INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, durable, exchange,
                                routing_key, content_type, headers, body)
    SELECT $1, $2, i, now(), true, '', 'bench', 'application/octet-stream', '{"k": 1}',
           substring(decode(string_agg(md5((i * 16 + j)::text), ''), 'hex') FOR $5)
    FROM generate_series($3::int8, $4::int8) i, generate_series(1, 16) j GROUP BY i ORDER BY i
"""


async def fill(url: str, messages: int) -> int:
    """A stream of so many messages; its queue id."""
    await migration.upgrade(url)
    connection = await asyncpg.connect(url)
    try:
        queue: int = await connection.fetchval(
            "INSERT INTO howdah.queue (vhost, name, kind) VALUES ('/', $1, 'stream') RETURNING id",
            QUEUE,
        )
        for start in range(0, messages, SEGMENT_MESSAGES):
            segment = await connection.fetchval("SELECT howdah.create_segment($1)", queue)
            last = min(messages, start + SEGMENT_MESSAGES) - 1
            await connection.execute(_INSERT, segment, queue, start, last, BYTES, timeout=600)
        return queue
    finally:
        await connection.close()


def bare_read(spark: SparkSession, url: str, queue: int, messages: int, parts: int) -> None:
    """What Spark alone does: every column, equal ranges, thrown away."""
    cuts = [messages * i // parts for i in range(parts + 1)]
    predicates = [
        f'queue_id = {queue} AND "offset" >= {low} AND "offset" < {high}'
        for low, high in pairwise(cuts)
    ]
    options = jdbc_options(url)
    address = options.pop("url")
    frame = spark.read.jdbc(address, "howdah.message", predicates=predicates, properties=options)
    frame.write.format("noop").mode("overwrite").save()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(url: str, messages: int, rounds: int) -> dict[str, float]:
    """Rows a second of each; the best of the rounds, taken in turns."""
    queue = asyncio.run(fill(url, messages))
    spark = local_session("howdah bench", cores=2)
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        bare_read(spark, url, queue, min(messages, 10_000), 2)  # the JVM warms up
        for number in range(rounds):
            for parts in (1, 2):
                settings = ExportSettings(Path(folder) / f"{number}-{parts}", messages, parts)
                runs = {
                    f"bare_{parts}": lambda parts=parts: bare_read(
                        spark, url, queue, messages, parts
                    ),
                    f"export_{parts}": lambda settings=settings: export(
                        spark, url, [QUEUE], settings
                    ),
                }
                for name, work in runs.items():
                    best[name] = max(best.get(name, 0.0), messages / timed(work))
    spark.stop()
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", help="an empty database (default: a private PostgreSQL)")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.url:
        found = measure(options.url, options.messages, options.rounds)
    else:
        from gateway.embedded_postgres import EmbeddedPostgres

        with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
            Path(folder).chmod(0o711)
            with EmbeddedPostgres(Path(folder) / "data") as server:
                found = measure(server.url, options.messages, options.rounds)
    figures = {name: round(rate) for name, rate in found.items()}
    ratios = {
        "export_to_bare_1": round(found["export_1"] / found["bare_1"], 2),
        "export_to_bare_2": round(found["export_2"] / found["bare_2"], 2),
        "export_2_to_1": round(found["export_2"] / found["export_1"], 2),
    }
    print(json.dumps({"messages": options.messages, "rows_per_s": figures, **ratios}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
