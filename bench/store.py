"""The store against its own ceiling: durable append, the full cycle, depth, a long reader, start.

    python -m bench.store append     durable append by 64 publishers, and append + consume + ack,
                                     as a share of the raw batched INSERT on the same PostgreSQL
    python -m bench.store depth      throughput and memory with 1,000,000 messages ready
    python -m bench.store reader     3,000,000 messages through one queue beside a long reader
    python -m bench.store start      start on a database with 1,000 queues: of the manager, and of
                                     `howdah serve` with its own PostgreSQL

With --json, append and depth print their figures as JSON, for the side-by-side run.

Every figure is taken in one run on one embedded PostgreSQL with its durable settings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import asyncpg
import uvloop

from bench.brokers import howdah
from bench.processes import cpu_seconds, resident_bytes
from gateway.garbage_collector import tune_collector
from gateway.postgres.server import EmbeddedPostgres
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.errors import CoreError
from queue_core.manager import Manager
from queue_core.message.message import Message
from queue_core.outcomes import FAILED
from queue_core.queues.spec import QueueSpec
from queue_core.store.operator.migration import upgrade
from queue_core.vhost import Vhost

BODY: Final = bytes(range(256))
PUBLISHERS: Final = 64
WINDOW: Final = 100  # unconfirmed messages a publisher
QUEUE: Final = "bench"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    per_second: float
    own_cpu_us: float
    postgres_cpu_us: float
    resident_bytes: int = 0

    def line(self, base: Figure | None = None) -> str:
        share = "" if base is None else f"  {self.per_second / base.per_second:6.0%} of {base.name}"
        return (
            f"{self.name:32} {self.per_second:10,.0f}/s   CPU a message: gateway "
            f"{self.own_cpu_us:5.1f} us, PostgreSQL {self.postgres_cpu_us:5.1f} us{share}"
        )


class Load:
    """Publishers that keep their window full, and stop when enough was confirmed."""

    def __init__(self, vhost: Vhost, total: int) -> None:
        self.vhost = vhost
        self.total = total
        self.published = 0
        self.confirmed = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.publishers = [_Publisher(self) for _ in range(PUBLISHERS)]

    def start(self) -> None:
        for publisher in self.publishers:
            publisher.publish(WINDOW)


class _Publisher:
    def __init__(self, load: Load) -> None:
        self._load = load

    def publish(self, count: int) -> None:
        load = self._load
        count = min(count, load.total - load.published)
        for _ in range(count):
            load.vhost.publish(Message(BODY, "", routing_key=QUEUE), self, load.published)
            load.published += 1

    def on_committed(self, tokens: list[int]) -> None:
        load = self._load
        load.confirmed += len(tokens)
        if load.confirmed >= load.total and not load.done.done():
            load.done.set_result(None)
        self.publish(len(tokens))

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        self._load.done.set_exception(error)


class Drain:
    """A consumer that acknowledges all it gets, and checks that it is complete and in order."""

    def __init__(self, vhost: Vhost, total: int) -> None:
        self._vhost = vhost
        self._total = total
        self.received = 0
        self.next_offset: int | None = None
        self.marks: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if self.next_offset is not None and delivery.offset != self.next_offset:
                raise SystemExit(f"offset {delivery.offset} came, {self.next_offset} was next")
            self.next_offset = delivery.offset + 1
        before = self.received * 10 // self._total
        self.received += len(deliveries)
        if self.received * 10 // self._total != before:
            self.marks.append(time.perf_counter())
        self._vhost.settle(deliveries)
        if self.received >= self._total and not self.done.done():
            self.done.set_result(None)

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        raise SystemExit("a stored queue has no short way")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.done.set_exception(reason)


class Bench:
    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self.url = postgres.url

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[Vhost]:
        manager = await Manager.open(self.url)
        try:
            vhost = await manager.vhost("/")
            await vhost.declare_queue(QueueSpec.parse(QUEUE))
            yield vhost
        finally:
            await manager.close()

    async def measure(self, name: str, total: int, work: Callable[[], Awaitable[object]]) -> Figure:
        pid = self._postgres.pid
        assert pid is not None
        own, theirs = time.process_time(), cpu_seconds(pid, children=True)
        started = time.perf_counter()
        await work()
        seconds = time.perf_counter() - started
        return Figure(
            name,
            total / seconds,
            (time.process_time() - own) / total * 1e6,
            (cpu_seconds(pid, children=True) - theirs) / total * 1e6,
        )

    async def append(self, total: int) -> list[Figure]:
        figures = [await self._raw(total, batch) for batch in (500, 1000, 2000)]
        base = max(figures, key=lambda figure: figure.per_second)
        async with self.manager() as vhost:

            async def publish() -> None:
                load = Load(vhost, total)
                load.start()
                await load.done

            figure = await self.measure("append", total, publish)
            await vhost.purge_queue(QUEUE)
            cycle = await self.measure(
                "append + consume + ack", total, lambda: cycle_of(vhost, total)
            )
        return [replace(base, name="raw INSERT"), figure, cycle]

    async def _raw(self, total: int, batch: int) -> Figure:
        """Measures INSERT ... SELECT unnest into a partition of the message table, by one
        connection."""
        connection = await asyncpg.connect(self.url)
        segment = await connection.fetchval("SELECT howdah.create_segment(NULL)")
        statement = f"""
            INSERT INTO howdah.message_{segment} (segment_id, queue_id, "offset", enqueued_at,
                durable, exchange, routing_key, form, native, body)
            SELECT {segment}, q, o, $1, true, e, k, f, n, b
            FROM unnest($2::int8[], $3::int8[], $4::text[], $5::text[], $6::int2[], $7::bytea[],
                $8::bytea[]) AS t (q, o, e, k, f, n, b)
        """

        async def insert() -> None:
            for start in range(0, total, batch):
                await connection.execute(
                    statement,
                    datetime.now(UTC),
                    [0] * batch,
                    list(range(start, start + batch)),
                    [""] * batch,
                    [QUEUE] * batch,
                    [0] * batch,
                    [b""] * batch,
                    [BODY] * batch,
                )

        figure = await self.measure(f"raw INSERT, batches of {batch}", total, insert)
        await connection.execute("SELECT howdah.drop_segment($1)", segment)
        await connection.close()
        return figure

    async def depth(self, total: int, deep: int) -> list[Figure]:
        """Measures throughput and memory of an empty and of a deep queue."""
        async with self.manager() as vhost:
            await self._warm(vhost, deep + 2 * total)
            shallow_memory = resident_bytes()
            shallow = await self.measure("depth 0", total, lambda: cycle_of(vhost, total))
            load = Load(vhost, deep)
            load.start()
            await load.done
            deep_memory = resident_bytes()
            deep_figure = await self.measure(
                f"depth {deep:,}", total, lambda: cycle_of(vhost, total)
            )
        return [
            replace(shallow, resident_bytes=shallow_memory),
            replace(deep_figure, resident_bytes=deep_memory),
        ]

    async def reader(self, total: int) -> None:
        reader = await asyncpg.connect(self.url)
        async with self.manager() as vhost:
            await self._warm(vhost, total)
            await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await reader.fetch("SELECT count(*) FROM howdah.message")
            started = time.perf_counter()
            drain = await cycle_of(vhost, total)
            tenths = [b - a for a, b in zip([started, *drain.marks], drain.marks, strict=False)]
            held, segments = await self._log_bytes(), await self._segments()
            await reader.execute("COMMIT")
            seconds = await self._unneeded_are_gone()
            freed, left = await self._log_bytes(), await self._segments()
            for i, seconds in enumerate(tenths, 1):
                print(f"tenth {i:2}: {total / 10 / seconds:10,.0f}/s")
            print(f"last tenth is {tenths[0] / tenths[-1]:.2f}x of the first")
            print(f"with the reader: {held / 2**20:,.0f} MiB in {len(segments)} segments")
            print(f"{seconds:.0f} s after it: {freed / 2**20:,.0f} MiB in {len(left)} segments")
            for line in left:
                print(f"  {line}")
        await reader.close()

    async def _warm(self, vhost: Vhost, total: int) -> None:
        """Sends as much as will be measured, so that no part of it pays for making the write-ahead
        log's files: a server that has run for a while has them."""
        await cycle_of(vhost, total)
        connection = await asyncpg.connect(self.url)
        await connection.execute("CHECKPOINT")
        await connection.close()

    async def _log_bytes(self) -> int:
        connection = await asyncpg.connect(self.url)
        try:
            size: int = await connection.fetchval(
                "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::int8 "
                "FROM pg_inherits WHERE inhparent = 'howdah.message'::regclass"
            )
            return size
        finally:
            await connection.close()

    async def _segments(self) -> list[str]:
        """Lists the segments, each with its state and its size."""
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(
                "SELECT id, CASE WHEN retired_at IS NOT NULL THEN 'not needed any more' "
                "WHEN sealed_at IS NULL THEN 'open' ELSE 'sealed' END AS state, "
                "pg_total_relation_size(format('howdah.message_%s', id)::regclass) AS size "
                "FROM howdah.segment ORDER BY id"
            )
        finally:
            await connection.close()
        return [f"segment {r['id']} ({r['state']}): {r['size'] / 2**20:,.0f} MiB" for r in rows]

    async def _unneeded_are_gone(self) -> float:
        """Waits, for two minutes at most, until no segment is left that is full and all settled;
        returns the seconds that it took."""
        started = time.monotonic()
        settled = (
            "SELECT count(*) FROM howdah.segment WHERE retired_at IS NOT NULL OR "
            "(sealed_at IS NOT NULL AND NOT EXISTS (SELECT FROM howdah.queue_status "
            "WHERE unsettled > 0))"
        )
        connection = await asyncpg.connect(self.url)
        try:
            while await connection.fetchval(settled):
                if time.monotonic() > started + 120:
                    print("segments that nobody needs are still there after two minutes")
                    break
                await asyncio.sleep(0.5)
        finally:
            await connection.close()
        return time.monotonic() - started

    async def start(self, queues: int) -> None:
        async with self.manager() as vhost:
            for number in range(queues):
                await vhost.declare_queue(QueueSpec.parse(f"queue-{number}"))
                vhost.publish(Message(BODY, "", routing_key=f"queue-{number}"))
            await vhost.writer.flushed()
        started = time.perf_counter()
        async with self.manager() as vhost:
            seconds = time.perf_counter() - started
            print(f"manager open with {len(vhost.queues):,} queues: {seconds:.2f} s")


async def cycle_of(vhost: Vhost, total: int) -> Drain:
    """Publishes and consumes at the same time, until all is acknowledged."""
    drain = Drain(vhost, total)
    consumer = await vhost.consume(QUEUE, drain, ConsumerSpec(credit=500))
    consumer.wake()
    load = Load(vhost, total)
    load.start()
    await load.done
    await drain.done
    await vhost.writer.flushed()
    vhost.end_consumer(consumer, FAILED)
    return drain


async def run(arguments: argparse.Namespace, url: EmbeddedPostgres) -> None:
    await upgrade(url.url)
    bench = Bench(url)
    match arguments.scenario:
        case "append":
            figures = await bench.append(arguments.messages or 200_000)
            show(figures, arguments.json)
        case "depth":
            figures = await bench.depth(arguments.messages or 200_000, 1_000_000)
            show(figures, arguments.json)
            if not arguments.json:
                shallow, deep = figures
                grown = (deep.resident_bytes - shallow.resident_bytes) / 2**20
                print(f"{'memory grew by':32} {grown:.1f} MiB")
        case "reader":
            await bench.reader(arguments.messages or 3_000_000)
        case "start":
            await bench.start(arguments.messages or 1_000)


def show(figures: list[Figure], as_json: bool) -> None:
    """Prints figures; the first is what the others are held against."""
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures]))
        return
    base, *others = figures
    print(base.line())
    for figure in others:
        print(figure.line(base))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=("append", "depth", "reader", "start"))
    parser.add_argument("--messages", type=int, help="how many (for start: queues)")
    parser.add_argument("--json", action="store_true", help="figures for machines")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "data") as postgres:
            tune_collector()
            uvloop.run(run(arguments, postgres))
        if arguments.scenario == "start":
            started = time.perf_counter()
            with howdah(Path(folder)):
                seconds = time.perf_counter() - started
            print(f"howdah serve, its PostgreSQL included: {seconds:.2f} s until it listens")


if __name__ == "__main__":
    main()
