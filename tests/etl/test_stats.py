"""stats: the figures are those of the gateway, and the page needs nothing but itself."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, Verdict
from spark_etl.plots import Axis, bars, curves, duration
from spark_etl.report import Minute, page
from spark_etl.snapshot import held_snapshot
from spark_etl.stats import read_stats
from tests.support.clock import START, Clock
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stats(spark: SparkSession, url: str) -> dict[tuple[str, datetime], Any]:
    with held_snapshot(spark, url) as snapshot:
        rows = read_stats(spark, url, snapshot).collect()
    return {(row.queue, row.minute.astimezone(UTC)): row for row in rows}


async def test_messages_bytes_and_dead_letters_are_counted_by_the_minute(
    spark: SparkSession, house: House
) -> None:
    await house.queue("dead")
    await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.store("q", b"12345", b"1")
    await house.later(60)
    await house.store("q", b"123")
    for verdict in (ACCEPTED, REJECTED):
        delivery = await house.vhost.get("q")
        assert delivery is not None
        house.vhost.settle([delivery], verdict)
    await house.flushed()
    found = await asyncio.to_thread(stats, spark, house.url)
    first, second = (datetime.fromtimestamp(START + 60 * i, UTC) for i in range(2))
    assert (found["q", first].messages, found["q", first].bytes) == (2, 6)
    assert (found["q", second].messages, found["q", second].bytes) == (1, 3)
    assert found["q", first].timed == 2
    assert found["q", second].dead_letters == {"rejected": 1}
    assert found["dead", second].messages == 1


class WallClock(Clock):
    """The machine's own time, as PostgreSQL has it."""

    def __call__(self) -> float:
        return time.time()


def percentile(values: list[float], share: float) -> float:
    """Between the two nearest values, by how near it is to each."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


async def test_percentiles_of_the_time_in_queue_are_those_of_a_plain_computation(
    spark: SparkSession, migrated_url: str, db: asyncpg.Connection
) -> None:
    house = await House(migrated_url, clock=WallClock()).open()
    await house.queue("q")
    await house.store("q", *[b"%d" % i for i in range(40)])
    inbox, _ = await house.consume("q")
    deliveries = list(await inbox.has(40))
    for start in (20, 0, 30, 10):  # not in order: ranges above the floor, and the floor
        house.vhost.settle(deliveries[start : start + 9], ACCEPTED)
        await house.flushed()
    settled: dict[int, datetime] = {}
    floor = 0
    for row in await db.fetch(
        "SELECT floor, acked, written_at FROM howdah.settlement ORDER BY seq"
    ):
        spans = [range(span.lower, span.upper) for span in row["acked"]]
        for offset in [*range(floor, row["floor"]), *(o for span in spans for o in span)]:
            settled.setdefault(offset, row["written_at"])
        floor = max(floor, row["floor"])
    assert len(settled) == 36
    waited: dict[datetime, list[float]] = {}
    for row in await db.fetch('SELECT "offset", enqueued_at FROM howdah.message'):
        if row["offset"] in settled:
            minute = row["enqueued_at"].replace(second=0, microsecond=0)
            took = (settled[row["offset"]] - row["enqueued_at"]) / timedelta(milliseconds=1)
            waited.setdefault(minute, []).append(took)
    found = await asyncio.to_thread(stats, spark, house.url)
    assert {minute for _, minute in found} >= set(waited)
    for minute, values in waited.items():
        row = found["q", minute]
        assert row.timed == len(values)
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            assert row[name] == pytest.approx(percentile(values, share)), name
    await house.close()


async def test_redeliveries_are_counted_and_dead_letters_by_their_reason(
    spark: SparkSession, house: House
) -> None:
    to_dead = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    await house.queue("dead")
    await house.queue("refused", **to_dead)
    await house.queue("old", message_ttl=1000, **to_dead)
    await house.queue("full", max_length=1, **to_dead)
    await house.queue("failing", delivery_limit=2, **to_dead)
    for queue, count in (("refused", 3), ("old", 2), ("full", 5), ("failing", 1)):
        await house.store(queue, *[b"x"] * count)
    for _ in range(3):
        await settle_one(house, "refused", REJECTED)
    while await settle_one(house, "failing", FAILED):
        pass
    await house.later(2)
    found = await asyncio.to_thread(stats, spark, house.url)
    deaths: Counter[tuple[str, str]] = Counter()
    failures: Counter[str] = Counter()
    for (queue, _), row in found.items():
        deaths.update({(queue, reason): count for reason, count in row.dead_letters.items()})
        failures[queue] += row.redeliveries
    assert deaths == {
        ("refused", "rejected"): 3,
        ("old", "expired"): 2,
        ("full", "maxlen"): 4,
        ("failing", "delivery_limit"): 1,
    }
    assert {queue for queue, count in failures.items() if count} == {"failing"}
    assert failures["failing"] == 2


async def settle_one(house: House, queue: str, verdict: Verdict) -> bool:
    delivery = await house.vhost.get(queue)
    if delivery is not None:
        house.vhost.settle([delivery], verdict)
        await house.flushed()
    return delivery is not None


# --- the page

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def minute(queue: str, number: int, messages: int = 1, p99: float | None = None) -> Minute:
    at = MOMENT + timedelta(minutes=number)
    return Minute("/", queue, at, messages, 10 * messages, p99, p99, p99, 0, {})


def test_the_page_stands_alone_and_shows_no_markup_of_a_name() -> None:
    rows = [
        Minute("/", "<b>", MOMENT, 5, 10, 1.0, 2.0, 3.0, 1, {"<i>": 2}),
        Minute("/", "<b>", MOMENT.replace(minute=1), 7, 10, None, None, None, 0, {}),
    ]
    text = page(rows, MOMENT, [("<u>", "empty")])
    assert "&lt;b&gt;" in text
    assert "&lt;i&gt; 2" in text
    assert not re.search("<[biu]>", text)
    assert text.count("<svg") == 4
    assert not re.search(r'src=|href="[^#]|https?://|@import|url\(', text)


def test_a_queue_without_messages_is_on_the_page_and_has_no_plots() -> None:
    text = page([minute("busy", 0)], MOMENT, [("/", "busy"), ("/", "idle")])
    assert '<tr class="empty"><td>idle</td><td>0</td>' in text
    assert text.count("<h2") == 1
    nothing = page([], MOMENT, [("/", "idle")])
    assert "1 queue, as of 2026-01-01 00:00 UTC. There is nothing to show." in nothing


def test_all_plots_share_one_time_and_a_minute_without_messages_is_none() -> None:
    axis = Axis.of([MOMENT, MOMENT + timedelta(minutes=9)])
    times = [MOMENT, MOMENT + timedelta(minutes=5)]
    assert axis.count == 10
    drawn = bars("t", axis, times, {"": (0, [4.0, 4.0])})
    assert drawn.count("z") == 2  # a bar each, and no line from one to the other
    line = curves("t", axis, times, {"p50": (0, [4.0, 4.0])})
    assert "L" not in line.partition("curve")[2].partition("/>")[0]


def test_a_page_of_a_year_is_no_larger_than_one_of_a_day() -> None:
    day = [minute("q", number, p99=1.0 + number % 7) for number in range(1440)]
    year = [minute("q", number, p99=1.0 + number % 7) for number in range(0, 525_600, 30)]
    assert len(page(year, MOMENT)) < 1.2 * len(page(day, MOMENT)) < 60_000
    axis = Axis.of([each.minute for each in year])
    assert (axis.count <= 360, axis.column(year[-1].minute) < axis.count) == (True, True)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.25, "0.25 ms"), (830.4, "830 ms"), (1500, "1.5 s"), (60_000, "1 min"), (8.64e8, "10 d")],
)
def test_a_duration_is_said_in_its_own_unit(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text
