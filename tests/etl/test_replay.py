"""replay: in order, each message once, no faster than asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from queue_core.message.message import Message, Properties
from spark_etl.errors import EtlError
from spark_etl.export import ExportSettings, export
from spark_etl.replay import Pace, ReplaySettings, plan_replay, replay
from spark_etl.sources import Bounds, ParquetSource, StreamSource
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST = 100_000.0


class Killed(BaseException):
    """Not an error that anybody handles."""


def test_messages_are_spread_over_time() -> None:
    now, slept = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    pace = Pace(100, lambda: now, sleep)
    assert pace.at_once == 10
    for _ in range(11):
        pace.wait(10)
    assert sum(slept) == pytest.approx(1.0)


async def test_an_export_goes_back_into_a_queue_in_order_and_once(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    properties = Properties(message_id="m", headers=(("n", 1),), content_type="text/plain")
    for i in range(30):
        house.vhost.publish(
            Message(b"%d\x00" % i, "", routing_key="s", properties=properties, priority=3)
        )
    await house.flushed()
    out = tmp_path / "out"
    await asyncio.to_thread(export, spark, house.url, ["s"], ExportSettings(out, 12))
    await house.queue("q")
    inbox, _ = await house.consume("q")
    source, settings = ParquetSource(out, "s"), ReplaySettings("q", rate=FAST)
    plan = await asyncio.to_thread(plan_replay, spark, house.url, source, settings)
    assert plan.startswith("30 messages from ")
    assert await asyncio.to_thread(replay, spark, house.url, source, settings) == 30
    await inbox.has(30)
    assert inbox.bodies == [b"%d\x00" % i for i in range(30)]
    message = inbox.deliveries[0].message
    assert message.properties.header_map() == {"n": 1}
    assert (message.properties.message_id, message.priority) == ("m", 3)
    assert await asyncio.to_thread(replay, spark, house.url, source, settings) == 0
    again = ReplaySettings("q", rate=FAST, name="again")
    assert await asyncio.to_thread(replay, spark, house.url, source, again) == 30


async def test_a_replay_that_was_killed_goes_on_where_it_was(
    spark: SparkSession, house: House
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(40)])
    await house.queue("q")
    inbox, _ = await house.consume("q")
    source = StreamSource(house.url, "s", Bounds(after=4, upto=34))

    batches = 0

    def die(step: str) -> None:
        nonlocal batches
        batches += step == "committed"
        if batches == 2:
            raise Killed

    slow = ReplaySettings("q", rate=100)
    with pytest.raises(Killed):
        await asyncio.to_thread(replay, spark, house.url, source, slow, on_step=die)
    assert await asyncio.to_thread(replay, spark, house.url, source, slow) == 10
    await inbox.has(30)
    assert inbox.bodies == [b"%d" % i for i in range(5, 35)]


async def test_a_stream_is_replayed_from_a_time_on(spark: SparkSession, house: House) -> None:
    await house.stream("s")
    await house.store("s", b"early")
    await house.later(60)
    await house.store("s", b"late")
    await house.queue("q")
    inbox, _ = await house.consume("q")
    source = StreamSource(house.url, "s", Bounds(since="2027-01-15T08:00:30Z"))
    settings = ReplaySettings("q", rate=FAST)
    assert await asyncio.to_thread(replay, spark, house.url, source, settings) == 1
    await inbox.has(1)
    assert inbox.bodies == [b"late"]


async def test_what_cannot_be_replayed_is_refused_before_anything_is_published(
    spark: SparkSession, house: House, db: asyncpg.Connection, tmp_path: Path
) -> None:
    await house.queue("q")
    await house.stream("s")
    await house.store("s", b"1")
    stream, fast = StreamSource(house.url, "s"), ReplaySettings("q", rate=FAST)
    for source, settings, words in (
        (stream, ReplaySettings("nowhere"), "no durable queue 'nowhere'"),
        (stream, ReplaySettings("q", rate=0), "must be above 0"),
        (StreamSource(house.url, "q"), fast, "classic queue"),
        (ParquetSource(tmp_path / "none"), fast, "does not exist"),
    ):
        with pytest.raises(EtlError, match=words):
            await asyncio.to_thread(replay, spark, house.url, source, settings)
    assert await db.fetchval("SELECT count(*) FROM howdah.outbox") == 0
