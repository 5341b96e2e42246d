"""The views say what the manager knows."""

from __future__ import annotations

import asyncpg

from queue_core.outcomes import ACCEPTED
from tests.support.managers import House, store_dead_letters


async def test_the_views_say_what_the_manager_knows(house: House, db: asyncpg.Connection) -> None:
    await store_dead_letters(house, b"1", b"2")
    await house.queue("w")
    await house.stream("s")
    await house.store("w", *[b"%d" % i for i in range(20)])
    await house.store("s", *[b"%d" % i for i in range(5)])
    inbox, _ = await house.consume("w", credit=7)
    await inbox.has(7)
    house.vhost.settle([inbox.deliveries[i] for i in (0, 1, 4)], ACCEPTED)
    stream = house.vhost.queue("s")
    stream.commit_cursor("g", 1)
    await house.flushed()
    await house.upkeep()
    for name in ("dead", "w", "q"):
        row = await db.fetchrow("SELECT * FROM howdah.queue_status WHERE queue = $1", name)
        assert row is not None
        counts = house.vhost.queue(name).counts()
        assert (row["ready"], row["in_flight"], row["consumers"]) == (
            counts.ready,
            counts.in_flight,
            counts.consumers,
        )
    ready = await db.fetch(
        "SELECT \"offset\" FROM howdah.ready_messages WHERE queue = 'w' ORDER BY 1"
    )
    settled = house.vhost.queue("w").cursor.settled  # type: ignore[attr-defined]
    assert [row["offset"] for row in ready] == [o for o in range(20) if o not in settled]
    dead = await db.fetch("SELECT * FROM howdah.dead_letters")
    assert len(dead) == 2
    lag = await db.fetchrow("SELECT * FROM howdah.consumer_lag WHERE queue = 's'")
    assert lag is not None
    assert (lag["group_name"], lag["floor"], lag["tail"], lag["lag"]) == ("g", 2, 5, 3)
