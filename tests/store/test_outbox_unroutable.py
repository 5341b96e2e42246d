"""Messages that SQL publishes to where nothing is bound."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support.managers import House, drained
from tests.support.sql_requests import publish


async def test_a_message_for_nobody_is_taken_away_counted_and_told_of(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(db, "nobody", "1")
    await drained(db)
    assert house.manager.counters.unroutable == 1
    assert "nothing is bound for exchange '' with key 'nobody'; dropped" in caplog.text


async def test_a_retained_message_for_nobody_is_kept_and_not_called_dropped(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await db.fetchval("SELECT howdah.publish_topic('plant/7/setpoint', '21.5', retain => true)")
    await drained(db)
    assert await db.fetchval("SELECT count(*) FROM howdah.retained") == 1
    assert house.manager.counters.unroutable == 0
    assert "dropped" not in caplog.text
