"""read_queue: every message of a range once, typed, by index range scans, of one moment."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED
from spark_etl.errors import EtlError
from spark_etl.jdbc_options import jdbc_options
from spark_etl.messages import fetch_rows, read_queue, source
from spark_etl.queues import Queue
from spark_etl.ranges import Range
from spark_etl.snapshot import held_snapshot
from tests.support.managers import House
from tests.support.postgres import execute

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def rows_of(spark: SparkSession, url: str, queue: str, *ends: int | None, **more: Any) -> list[Row]:
    return sorted(read_queue(spark, url, queue, *ends, **more).collect(), key=lambda r: r.offset)


@pytest.mark.parametrize(
    ("whole", "parts", "sizes"),
    [
        (Range(-1, 9), 2, [5, 5]),
        (Range(-1, 9), 3, [3, 3, 4]),
        (Range(4, 6), 8, [1, 1]),
        (Range(4, 5), 1, [1]),
    ],
)
def test_ranges_are_equal_and_leave_nothing_out(whole: Range, parts: int, sizes: list[int]) -> None:
    found = whole.split(parts)
    assert [len(part) for part in found] == sizes
    assert [found[0].after, *(part.upto for part in found)] == [
        whole.after,
        *(part.after for part in found[1:]),
        whole.upto,
    ]


def test_large_messages_are_fetched_few_at_a_time() -> None:
    assert fetch_rows(0) == fetch_rows(256) == 2000
    assert fetch_rows(16 * 1024 * 1024) == 8


async def test_a_message_comes_with_all_that_it_says_in_its_own_type(
    spark: SparkSession, house: House
) -> None:
    made = datetime(2026, 3, 29, 1, 30, 0, 123000, UTC)
    await house.stream("s")
    properties = Properties(
        content_type="text/plain",
        message_id="m-1",
        created_at=made,
        headers=(("n", 2**53 + 1), ("deep", {"a": [1, None]}), ("ü", "ß")),
    )
    house.vhost.publish(
        Message(b"\x00\xffbody", "", routing_key="s", properties=properties, priority=7)
    )
    await house.flushed()
    (row,) = await asyncio.to_thread(rows_of, spark, house.url, "s")
    assert (row.vhost, row.queue, row.offset) == ("/", "s", 0)
    assert bytes(row.body) == b"\x00\xffbody"
    assert json.loads(row.headers) == {"n": 2**53 + 1, "deep": {"a": [1, None]}, "ü": "ß"}
    assert (row.content_type, row.message_id, row.priority) == ("text/plain", "m-1", 7)
    assert row.created_at.astimezone(UTC) == made
    assert row.enqueued_at.timestamp() == house.clock.now
    assert row.expires_at is None


async def test_a_range_has_what_is_above_its_start_up_to_its_end(
    spark: SparkSession, house: House
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(20)])
    rows = await asyncio.to_thread(rows_of, spark, house.url, "s", 4, 11, partitions=3)
    assert [row.offset for row in rows] == list(range(5, 12))
    assert [bytes(row.body) for row in rows] == [b"%d" % i for i in range(5, 12)]
    everything = await asyncio.to_thread(rows_of, spark, house.url, "s", partitions=3)
    assert [row.offset for row in everything] == list(range(20))
    assert await asyncio.to_thread(rows_of, spark, house.url, "s", 19) == []


async def test_a_body_that_is_kept_apart_is_found(spark: SparkSession, house: House) -> None:
    for name in ("a", "b"):
        await house.vhost.bind("amq.fanout", await house.queue(name))
    house.vhost.publish(Message(b"z" * 100_000, "amq.fanout", routing_key=""))
    await house.flushed()
    for name in ("a", "b"):
        (row,) = await asyncio.to_thread(rows_of, spark, house.url, name)
        assert bytes(row.body) == b"z" * 100_000


async def test_what_was_carried_into_a_newer_segment_is_read_once(
    spark: SparkSession, migrated_url: str
) -> None:
    house = await House(migrated_url).with_segments(50_000).open()
    await house.queue()
    await house.store("q", *[b"%d:".ljust(1000, b"x") % i for i in range(200)])
    inbox, _ = await house.consume("q")
    await inbox.has(200)
    house.vhost.settle([d for d in inbox.deliveries if d.offset not in (0, 77)], ACCEPTED)
    await house.store("q", *[b"%d:".ljust(1000, b"x") % i for i in range(200, 220)])
    await house.upkeep()
    assert house.manager.counters.carried_forward == 2
    rows = await asyncio.to_thread(rows_of, spark, house.url, "q")
    offsets = [row.offset for row in rows]
    assert len(offsets) == len(set(offsets))
    assert {0, 77, *range(200, 220)} <= set(offsets)
    await house.close()


async def test_inside_a_snapshot_retention_takes_nothing_and_nothing_new_appears(
    spark: SparkSession, migrated_url: str
) -> None:
    house = await House(migrated_url).with_segments(20_000).open()
    await house.stream("s", max_length_bytes=20_000)
    await house.store("s", *[b"%d:".ljust(1000, b"x") % i for i in range(100)])
    with await asyncio.to_thread(_entered, spark, house.url) as snapshot:
        await house.store("s", *[b"late".ljust(1000, b"x")] * 100)
        await house.upkeep()
        rows = await asyncio.to_thread(rows_of, spark, house.url, "s", snapshot=snapshot)
        assert [row.offset for row in rows] == list(range(100))
    for _ in range(3):
        await house.upkeep()
    assert house.manager.counters.segments_dropped > 0
    left = await asyncio.to_thread(rows_of, spark, house.url, "s")
    assert left[-1].offset == 199
    assert left[0].offset > 0
    await house.close()


class _entered:
    """A held snapshot that was entered in another thread."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._context = held_snapshot(spark, url)
        self._snapshot = self._context.__enter__()

    def __enter__(self) -> Any:
        return self._snapshot

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


async def test_each_partition_is_an_index_range_scan(house: House, db: asyncpg.Connection) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(2000)])
    row = await db.fetchrow("SELECT id, vhost, name, kind FROM howdah.queue")
    assert row is not None
    queue = Queue(**dict(row))
    await db.execute("ANALYZE howdah.message")
    query = f'SELECT * FROM {source(queue)} WHERE "offset" > 99 AND "offset" <= 110'
    plan = "\n".join(r[0] for r in await db.fetch(f"EXPLAIN {query}"))
    assert "Index Scan using message_" in plan
    assert f'(queue_id = {queue.id}) AND ("offset" > 99) AND ("offset" <= 110)' in plan
    assert "Seq Scan on message_" not in plan


async def test_each_partition_is_one_session_that_says_who_it_is(
    spark: SparkSession, house: House
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(100)])
    frame = await asyncio.to_thread(read_queue, spark, house.url, "s", partitions=2)
    assert frame.rdd.getNumPartitions() == 2
    query = "SELECT current_setting('application_name') AS name"
    options = jdbc_options(house.url)
    (row,) = spark.read.format("jdbc").options(**options).load(query=query).collect()
    assert row.name == "howdah spark_etl"


def test_an_infinite_time_is_refused(spark: SparkSession, migrated_url: str) -> None:
    execute(
        migrated_url,
        "INSERT INTO howdah.queue (vhost, name, kind, shard) VALUES ('/', 's', 'stream', 0)",
        "SELECT howdah.create_segment(1)",
        'INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, expires_at, '
        "durable, exchange, routing_key, body) "
        "VALUES (1, 1, 0, now(), 'infinity', true, '', 's', 'x')",
    )
    with pytest.raises(Exception, match="infinite timestamp"):
        read_queue(spark, migrated_url, "s").collect()


# --- what cannot be done


def test_an_unknown_queue_is_named_with_those_that_are_there(
    spark: SparkSession, migrated_url: str
) -> None:
    execute(
        migrated_url,
        "INSERT INTO howdah.queue (vhost, name, kind, shard) VALUES ('/', 'orders', 'classic', 0)",
    )
    with pytest.raises(EtlError, match=r"no durable queue 'order' .* known there: orders"):
        read_queue(spark, migrated_url, "order")


def test_an_unreachable_database_is_named_without_its_password(spark: SparkSession) -> None:
    with pytest.raises(EtlError, match=r"127\.0\.0\.1:1/db: .*check host and port") as caught:
        read_queue(spark, "postgresql://me:secret@127.0.0.1:1/db", "q")
    assert "secret" not in str(caught.value)


def test_a_database_without_the_schema_says_to_migrate(
    spark: SparkSession, database_url: str
) -> None:
    with pytest.raises(EtlError, match="howdah migrate"):
        read_queue(spark, database_url, "q")


@pytest.fixture
def login(migrated_url: str) -> Iterator[str]:
    """The URL of a login without any rights, and its name."""
    name = f"etl_login_{os.getpid()}"
    execute(migrated_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    parts = urlsplit(migrated_url)
    yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    execute(migrated_url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_a_login_without_rights_is_told_what_to_ask_for_and_a_reader_may_read(
    spark: SparkSession, house: House, login: str
) -> None:
    await house.stream("s")
    await house.store("s", b"1")
    with pytest.raises(EtlError, match="GRANT howdah_reader"):
        await asyncio.to_thread(read_queue, spark, login, "s")
    execute(house.url, f"GRANT howdah_reader TO {urlsplit(login).username}")
    assert len(await asyncio.to_thread(rows_of, spark, login, "s")) == 1
