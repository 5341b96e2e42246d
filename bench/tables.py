"""Queues in PostgreSQL tables, without a network: append, then consume and settle.

    python -m bench.tables howdah | pgmq-style | pgqueuer [--messages N] [--json]

Each on an embedded PostgreSQL of its own with the same durable settings, in batches of 500 and one
commit a batch where the batch is ours to choose. PGMQ is an extension that Debian does not have:
pgmq-style is its table and its three statements, on bytes instead of JSON, which is to its favour.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import asyncpg
import uvloop

from bench.peers import python_peer
from bench.store import BODY, QUEUE, Bench, Drain, Figure, Load, show
from gateway.garbage_collector import tune_collector
from gateway.postgres.server import EmbeddedPostgres
from queue_core.delivery.consumer import ConsumerSpec
from queue_core.store.operator.migration import upgrade

BATCH: Final = 500
APPEND, CONSUME = "append", "consume and settle"

PGMQ_TABLE: Final = """
    CREATE TABLE pgmq_bench (
        msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        read_ct int NOT NULL DEFAULT 0,
        enqueued_at timestamptz NOT NULL DEFAULT now(),
        vt timestamptz NOT NULL,
        message bytea
    );
    CREATE INDEX ON pgmq_bench (vt);
"""
PGMQ_SEND: Final = """
    INSERT INTO pgmq_bench (vt, message) SELECT clock_timestamp(), m FROM unnest($1::bytea[]) AS m
"""
PGMQ_READ: Final = """
    WITH taken AS (
        SELECT msg_id FROM pgmq_bench WHERE vt <= clock_timestamp()
        ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    UPDATE pgmq_bench AS q SET vt = clock_timestamp() + interval '30 s', read_ct = read_ct + 1
    FROM taken WHERE q.msg_id = taken.msg_id RETURNING q.msg_id, q.message
"""
PGMQ_DELETE: Final = "DELETE FROM pgmq_bench WHERE msg_id = ANY($1::bigint[])"


async def howdah(bench: Bench, total: int) -> list[Figure]:
    await upgrade(bench.url)
    async with bench.manager() as vhost:

        async def append() -> None:
            load = Load(vhost, total)
            load.start()
            await load.done

        async def consume() -> None:
            drain = Drain(vhost, total)
            consumer = await vhost.consume(QUEUE, drain, ConsumerSpec(credit=BATCH))
            consumer.wake()
            await drain.done
            await vhost.writer.flushed()

        return [
            await bench.measure(APPEND, total, append),
            await bench.measure(CONSUME, total, consume),
        ]


async def pgmq_style(bench: Bench, total: int) -> list[Figure]:
    connection = await asyncpg.connect(bench.url)
    await connection.execute(PGMQ_TABLE)

    async def append() -> None:
        for _ in range(total // BATCH):
            await connection.execute(PGMQ_SEND, [BODY] * BATCH)

    async def consume() -> None:
        left = total // BATCH * BATCH
        while left:
            rows = await connection.fetch(PGMQ_READ, BATCH)
            await connection.execute(PGMQ_DELETE, [row["msg_id"] for row in rows])
            left -= len(rows)

    figures = [
        await bench.measure(APPEND, total, append),
        await bench.measure(CONSUME, total, consume),
    ]
    await connection.close()
    return figures


async def pgqueuer(bench: Bench, total: int) -> list[Figure]:
    """Runs pgqueuer's own library in its own environment, which measures its own time and CPU."""
    program = Path(__file__).with_name("pgqueuer_load.py")
    interpreter = await asyncio.to_thread(python_peer, "pgqueuer")

    async def step(what: str) -> Figure:
        command = [str(interpreter), str(program), bench.url, what, str(total), str(BATCH)]
        taken: list[float] = []

        async def work() -> None:
            done = await asyncio.to_thread(
                subprocess.run, command, check=True, capture_output=True, text=True
            )
            taken.extend(float(word) for word in done.stdout.split())

        figure = await bench.measure(what, total, work)
        seconds, cpu = taken
        return replace(figure, per_second=total / seconds, own_cpu_us=cpu / total * 1e6)

    await step("install")
    return [
        replace(await step("append"), name=APPEND),
        replace(await step("consume"), name=CONSUME),
    ]


QUEUES: Final = {"howdah": howdah, "pgmq-style": pgmq_style, "pgqueuer": pgqueuer}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("queue", choices=sorted(QUEUES))
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--json", action="store_true", help="figures for machines")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "data") as postgres:
            tune_collector()
            work = QUEUES[arguments.queue](Bench(postgres), arguments.messages)
            show(uvloop.run(work), arguments.json)


if __name__ == "__main__":
    main()
