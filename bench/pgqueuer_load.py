"""Runs pgqueuer's own calls, by the interpreter that has it: URL install|append|consume TOTAL
BATCH.

Prints the seconds and the CPU seconds that it took once it was connected; it knows nothing else of
the bench.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from uuid import uuid4

import asyncpg
from pgqueuer.queries import (  # type: ignore[import-not-found]
    EntrypointExecutionParameter,
    Queries,
)

BODY = bytes(range(256))
NAME = "bench"


async def append(queries: Queries, total: int, batch: int) -> None:
    for _ in range(total // batch):
        await queries.enqueue([NAME] * batch, [BODY] * batch, [0] * batch)


async def consume(queries: Queries, total: int, batch: int) -> None:
    left = total // batch * batch
    worker = uuid4()
    entrypoints = {NAME: EntrypointExecutionParameter(0)}
    while left:
        jobs = await queries.dequeue(batch, entrypoints, worker, None, timedelta(seconds=30))
        await queries.log_jobs([(job, "successful", None) for job in jobs])
        left -= len(jobs)


async def main(url: str, what: str, total: int, batch: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    started, cpu = time.perf_counter(), time.process_time()
    if what == "install":
        await queries.install()
    else:
        await {"append": append, "consume": consume}[what](queries, total, batch)
    print(time.perf_counter() - started, time.process_time() - cpu)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
