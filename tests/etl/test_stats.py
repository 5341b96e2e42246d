"""stats: the figures are those of the gateway, and the page needs nothing but itself."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queue_core.outcomes import ACCEPTED, Outcome, Verdict
from spark_etl.report import Minute, page
from spark_etl.snapshot import held_snapshot
from spark_etl.stats import read_stats
from tests.store.managers import START, House

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
    for verdict in (ACCEPTED, Verdict(Outcome.REJECTED)):
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


def test_the_page_stands_alone_and_shows_no_markup_of_a_name() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        Minute("/", "<b>", moment, 5, 10, 1.0, 2.0, 3.0, 1, {"expired": 2}),
        Minute("/", "<b>", moment.replace(minute=1), 7, 10, None, None, None, 0, {}),
    ]
    text = page(rows, moment)
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "expired 2" in text
    assert text.count("<svg") == 3
    assert not re.search(r"(src|href)=|https?://|@import|url\(", text)
