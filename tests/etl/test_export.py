"""export: each message once, whatever is killed, and nothing overwritten, whatever is asked."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED
from spark_etl.checkpoints import Ledger
from spark_etl.database import connected
from spark_etl.errors import EtlError
from spark_etl.export import ExportSettings, export, plan_export, read_export
from spark_etl.manifest import Batch
from tests.support.managers import House
from tests.support.postgres import execute

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

CHECKPOINT = 'SELECT "offset", messages FROM howdah.etl_checkpoint'


async def run(
    spark: SparkSession, url: str, out: Path, *queues: str, batch: int = 1000, **more: Any
) -> list[Batch]:
    settings = ExportSettings(out, batch, 2)
    return await asyncio.to_thread(export, spark, url, list(queues) or None, settings, **more)


async def checkpoint(db: asyncpg.Connection) -> tuple[int, int] | None:
    row = await db.fetchrow(CHECKPOINT)
    return None if row is None else (row[0], row[1])


async def exported(spark: SparkSession, out: Path, queue: str = "s") -> list[tuple[int, bytes]]:
    def read() -> list[tuple[int, bytes]]:
        rows = read_export(spark, out, queue).select("offset", "body").collect()
        return sorted((row.offset, bytes(row.body)) for row in rows)

    return await asyncio.to_thread(read)


def numbered(*bounds: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(*bounds)]


async def fill(house: House, *bounds: int, queue: str = "s") -> None:
    await house.store(queue, *[b"%d" % i for i in range(*bounds)])


async def test_each_run_adds_what_is_new_and_only_that(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 50)
    out = tmp_path / "out"
    batches = await run(spark, house.url, out, "s", batch=20)
    assert [(b.after, b.upto, b.messages) for b in batches] == [
        (-1, 19, 20),
        (19, 39, 20),
        (39, 49, 10),
    ]
    assert await run(spark, house.url, out, "s") == []
    await fill(house, 50, 60)
    assert [b.after for b in await run(spark, house.url, out, "s")] == [49]
    assert await exported(spark, out) == numbered(60)
    assert await checkpoint(db) == (59, 60)
    days = {path.name for path in out.rglob("day=*")}
    assert days == {"day=2027-01-15"}


async def test_what_the_files_say_is_what_the_gateway_has(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    for i in range(10):
        properties = Properties(
            message_id=f"m{i}", headers=(("n", 2**60 + i), ("list", [1.5, None, "ü"]))
        )
        house.vhost.publish(Message(bytes([i, 0, 255]), "", routing_key="s", properties=properties))
    await house.flushed()
    await run(spark, house.url, tmp_path / "out", "s")
    stored = await db.fetch(
        'SELECT "offset", message_id, headers::text, native, body, '
        "extract(epoch FROM enqueued_at)::float8 AS at FROM howdah.message ORDER BY 1"
    )
    rows = await asyncio.to_thread(
        lambda: read_export(spark, tmp_path / "out", "s").orderBy("offset").collect()
    )
    found = [
        (
            r.offset,
            r.message_id,
            r.headers,
            bytes(r.native),
            bytes(r.body),
            r.enqueued_at.timestamp(),
        )
        for r in rows
    ]
    assert found == [tuple(row) for row in stored]
    assert json.loads(rows[3].headers)["n"] == 2**60 + 3


async def test_a_run_that_was_killed_before_its_note_is_noted_by_the_next(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 10)

    def die(step: str) -> None:
        if step == "published":
            raise Killed

    with pytest.raises(Killed):
        await run(spark, house.url, tmp_path / "out", "s", on_step=die)
    assert await db.fetchrow(CHECKPOINT) is None
    assert await run(spark, house.url, tmp_path / "out", "s") == []
    assert await checkpoint(db) == (9, 10)


class Killed(BaseException):
    """Not an error that anybody handles."""


async def test_a_slow_transaction_that_commits_after_a_faster_one_is_not_skipped(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    """The slow one published first, has the lower number in the outbox, and commits last."""
    await house.stream("s")
    inbox, _ = await house.consume("s")
    slow = await asyncpg.connect(house.url)
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute("SELECT howdah.publish('s', 'slow')")
    await db.execute("SELECT howdah.publish('s', 'fast')")
    await inbox.has(1)
    await run(spark, house.url, tmp_path / "out", "s")
    assert await exported(spark, tmp_path / "out") == [(0, b"fast")]
    await transaction.commit()
    await slow.close()
    await inbox.has(2)
    await run(spark, house.url, tmp_path / "out", "s")
    assert await exported(spark, tmp_path / "out") == [(0, b"fast"), (1, b"slow")]


async def test_a_hole_in_a_stream_is_an_error_and_is_never_passed_over(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    """The gateway makes none; whoever writes to the log by hand may."""
    await house.stream("s")
    await fill(house, 10)
    await db.execute('DELETE FROM howdah.message WHERE "offset" = 5')
    with pytest.raises(EtlError, match="has 9 messages, and 10 were to be read"):
        await run(spark, house.url, tmp_path / "out", "s")
    assert await exported(spark, tmp_path / "out") == []


def typed(number: int, queue: str) -> Message:
    """A message with something of each type that a header may have."""
    made = datetime(2026, 3, 29, 0, 59, 59, tzinfo=timezone(timedelta(hours=number % 24 - 12)))
    headers = (("n", 2**60 + number), ("half", number + 0.5), ("deep", {"ü": [None, True, "ß"]}))
    properties = Properties(
        message_id=f"m-{number}" if number % 3 else None, created_at=made, headers=headers
    )
    body = bytes([number % 256, 0, 255]) * 50
    return Message(body, "", routing_key=queue, properties=properties, priority=4)


async def test_publishers_consumers_and_retention_go_on_during_an_export(
    spark: SparkSession, migrated_url: str, tmp_path: Path
) -> None:
    """Then the files are held against what the gateway delivered to a consumer of its own."""
    house = await House(migrated_url).with_segments(20_000).open()
    await house.stream("s", max_length_bytes=60_000)
    await house.queue("q")
    record, _ = await house.consume("s", ACCEPTED)
    stop = asyncio.Event()
    sent = 0

    async def publish() -> None:
        nonlocal sent
        while sent < 2000 or not stop.is_set():
            for number in range(sent, sent + 20):
                for queue in ("s", "q"):
                    house.vhost.publish(typed(number, queue))
            sent += 20
            await house.flushed()
            await house.drain("q")
            await house.upkeep()
            await asyncio.sleep(0.02)  # the pace of a publisher beside the exports

    publisher = asyncio.create_task(publish())
    out = tmp_path / "out"
    for _ in range(4):
        await run(spark, house.url, out, batch=500)
    stop.set()
    await publisher
    await run(spark, house.url, out)
    rows = await asyncio.to_thread(lambda: read_export(spark, out, "s").collect())
    missing = sum(json.loads(p.read_text())["missing"] for p in out.glob("_manifest/s-*/*.json"))
    assert len({row.offset for row in rows}) == len(rows)
    assert len(rows) + missing == sent
    await record.has(sent)
    delivered = {delivery.offset: delivery.message for delivery in record.deliveries}
    assert len(delivered) == sent
    for row in rows:
        message = delivered[row.offset]
        assert said_by(row) == said_by_gateway(message), row.offset
    classic = await asyncio.to_thread(lambda: read_export(spark, out, "q").collect())
    assert len({row.offset for row in classic}) == len(classic)
    for row in classic:
        assert said_by(row) == said_by_gateway(delivered[row.offset]), row.offset
    for _ in range(100):  # whoever was kept waiting by the exports comes back ever more rarely
        await house.upkeep()
    assert house.manager.counters.segments_dropped > 0
    await house.close()


def said_by(row: Row) -> tuple[object, ...]:
    headers = json.loads(row.headers)
    return bytes(row.body), row.message_id, headers, row.created_at.timestamp(), row.priority


def said_by_gateway(message: Message) -> tuple[object, ...]:
    known = message.properties
    assert known.created_at is not None
    made = known.created_at.timestamp()
    return message.body, known.message_id, known.header_map(), made, message.priority


async def test_a_message_that_no_sample_told_of_is_exported_with_all_it_has(
    spark: SparkSession, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most columns are empty and left out by a guess; the guess is wrong for one message."""
    await house.stream("s")
    await fill(house, 330)  # no place that a sample looks at
    house.vhost.publish(
        Message(b"330", "", routing_key="s", properties=Properties(reply_to="me"), priority=1)
    )
    await fill(house, 331, 700)
    out = tmp_path / "out"
    await run(spark, house.url, out, "s")
    assert "a message is not as the sample said" in capsys.readouterr().err
    assert await exported(spark, out) == numbered(700)
    (row,) = await asyncio.to_thread(
        lambda: read_export(spark, out, "s").where("reply_to IS NOT NULL").collect()
    )
    assert (row.offset, row.reply_to, row.priority) == (330, "me", 1)
    (folder,) = out.glob("log=*/*")  # what the wrong guess had written is gone
    assert [p.name for p in folder.glob("day=*")] == ["day=2027-01-15"]


async def test_a_message_that_is_in_a_newer_segment_than_one_that_is_retired_is_exported_once(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 10)
    await db.execute("SELECT howdah.create_segment(id) FROM howdah.queue")
    old, new = [row["id"] for row in await db.fetch("SELECT id FROM howdah.segment ORDER BY id")]
    await db.execute(
        'CREATE TEMP TABLE copy AS SELECT * FROM howdah.message WHERE "offset" IN (3, 5)'
    )
    await db.execute("UPDATE copy SET segment_id = $1", new)
    await db.execute("INSERT INTO howdah.message SELECT * FROM copy")
    await db.execute("UPDATE howdah.segment SET retired_at = now() WHERE id = $1", old)
    await run(spark, house.url, tmp_path / "out", "s")
    assert await exported(spark, tmp_path / "out") == numbered(10)


async def test_messages_of_several_days_are_written_by_day(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 10)
    await house.later(86_400)
    await fill(house, 10, 20)
    out = tmp_path / "out"
    await run(spark, house.url, out, "s")
    assert {p.name for p in out.rglob("day=*")} == {"day=2027-01-15", "day=2027-01-16"}
    assert await exported(spark, out) == numbered(20)
    late = read_export(spark, out, "s").where("day = date'2027-01-16'")
    assert await asyncio.to_thread(late.count) == 10


async def test_batches_from_before_a_new_column_are_read_together_with_those_after(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 5)
    out = tmp_path / "out"
    (old,) = await run(spark, house.url, out, "s")

    def age() -> None:
        """Writes the files anew, as by a version that did not know two of the columns."""
        (folder,) = out.glob("log=*/*")
        frame = spark.read.parquet(str(folder)).drop("delivery", "deaths")
        frame.coalesce(1).write.partitionBy("day").parquet(str(tmp_path / "aged"))
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "aged", folder)
        manifest = next(out.glob("_manifest/*/*.json"))
        text = json.loads(manifest.read_text())
        text["files"] = [
            {"path": str(p.relative_to(out)), "bytes": p.stat().st_size}
            for p in folder.rglob("*.parquet")
        ]
        manifest.write_text(json.dumps(text))

    await asyncio.to_thread(age)
    await fill(house, 5, 8)
    await run(spark, house.url, out, "s")
    assert old.upto == 4
    assert await exported(spark, out) == numbered(8)
    frame = read_export(spark, out, "s")
    assert frame.where("delivery IS NULL").count() >= 5


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 7)
    settings = ExportSettings(tmp_path / "out")
    (plan,) = await asyncio.to_thread(plan_export, spark, house.url, ["s"], settings)
    assert str(plan).startswith("s (stream): offsets 0 to 6 -> ")
    assert not (tmp_path / "out").exists()
    assert await db.fetchrow(CHECKPOINT) is None


# --- what cannot be done


async def test_an_infinite_time_stops_the_export_and_nothing_is_published(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 3)
    await db.execute("UPDATE howdah.message SET expires_at = 'infinity' WHERE \"offset\" = 1")
    with pytest.raises(EtlError, match="queue s holds a message with an infinite timestamp"):
        await run(spark, house.url, tmp_path / "out", "s")
    assert await exported(spark, tmp_path / "out") == []


async def test_two_exports_of_one_queue_at_once_are_refused(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 3)
    out = tmp_path / "out"
    await run(spark, house.url, out, "s")
    with connected(spark, house.url) as other:
        (row,) = other.fetch("SELECT id FROM howdah.queue")
        ledger = Ledger(other, "export", str(out), row["id"])
        with connected(spark, house.url) as second, ledger.locked():
            rival = Ledger(second, "export", str(out), row["id"])
            with pytest.raises(EtlError, match="another export of this queue"), rival.locked(0.1):
                raise AssertionError("two runners")


async def test_a_manifest_is_never_overwritten(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    """Even if the lock did not help, as on two databases with one directory."""
    await house.stream("s")
    await fill(house, 3)
    out = tmp_path / "out"

    def rival(step: str) -> None:
        if step == "synced":
            log = next(out.glob("log=s-*")).name.removeprefix("log=")
            (out / "_manifest" / log).mkdir(parents=True)
            (out / "_manifest" / log / f"{0:020d}.json").write_text("theirs")

    with pytest.raises(EtlError, match="nothing was overwritten"):
        await run(spark, house.url, out, "s", on_step=rival)
    assert next(out.glob("_manifest/*/*.json")).read_text() == "theirs"


async def test_a_directory_with_other_things_in_it_is_left_alone(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(EtlError, match="not empty and no export of ours"):
        await run(spark, house.url, tmp_path, "s")
    assert os.listdir(tmp_path) == ["thesis.txt"]


async def test_a_lost_or_short_file_is_named_and_nothing_is_changed(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 3)
    out = tmp_path / "out"
    await run(spark, house.url, out, "s")
    file = next(out.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:10])
    await fill(house, 3, 6)
    with pytest.raises(EtlError, match=r"has 10 of \d+ bytes: restore it"):
        await run(spark, house.url, out, "s")
    file.unlink()
    with pytest.raises(EtlError, match="is missing: restore it"):
        await run(spark, house.url, out, "s")


async def test_lost_manifests_are_noticed(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await fill(house, 3)
    out = tmp_path / "out"
    await run(spark, house.url, out, "s")
    next(out.glob("_manifest/*/*.json")).unlink()
    with pytest.raises(EtlError, match="was exported up to 2: manifests are missing"):
        await run(spark, house.url, out, "s")
    assert list(out.rglob("*.parquet"))


async def test_what_retention_took_before_the_export_came_is_counted(
    spark: SparkSession, migrated_url: str, tmp_path: Path
) -> None:
    house = await House(migrated_url).with_segments(20_000).open()
    await house.stream("s", max_length_bytes=20_000)
    for start in range(0, 100, 10):
        await house.store("s", *[b"%d:".ljust(1000, b"x") % i for i in range(start, start + 10)])
    await house.upkeep()
    (batch,) = await run(spark, house.url, tmp_path / "out", "s")
    assert batch.missing > 0
    assert batch.messages + batch.missing == 100
    await house.close()


@pytest.fixture
def reader_url(migrated_url: str) -> Iterator[str]:
    name = f"etl_reader_{os.getpid()}"
    execute(migrated_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE howdah_reader")
    parts = urlsplit(migrated_url)
    yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    execute(migrated_url, f"DROP ROLE {name}")


async def test_the_role_howdah_reader_is_enough(
    spark: SparkSession, house: House, db: asyncpg.Connection, reader_url: str, tmp_path: Path
) -> None:
    await house.queue("q")
    await house.vhost.bind("amq.fanout", house.vhost.queue("q"))
    await house.vhost.bind("amq.fanout", await house.queue("r"))
    house.vhost.publish(Message(b"z" * 100_000, "amq.fanout", routing_key=""))
    await house.flushed()
    await run(spark, reader_url, tmp_path / "out", "q")
    assert await exported(spark, tmp_path / "out", "q") == [(0, b"z" * 100_000)]
    assert await db.fetchval("SELECT changed_by FROM howdah.etl_checkpoint") == (
        urlsplit(reader_url).username
    )
