"""How much of what SQL has published is in the gateway's memory at a time."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.outcomes import ACCEPTED
from queue_core.store.requests.outbox import CHUNK_BYTES
from tests.support.managers import House, drained
from tests.support.until import until

SIZE = CHUNK_BYTES // 4
TEN_AND_A_PURGE = """
    SELECT howdah.publish_many('q', ARRAY(SELECT repeat(n::text, $1) FROM generate_series(0, 9) n)),
           howdah.purge('q')
"""


async def test_large_messages_are_read_a_few_at_a_time_and_commands_keep_their_place(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of the largest would be 16 GiB."""
    await house.queue("q")
    outbox = house.manager._background._outbox
    publish_all, read = outbox._publish_all, [0]

    def seen(rows: list[asyncpg.Record]) -> None:
        read.append(sum(len(row["body"]) for row in rows))
        publish_all(rows)

    monkeypatch.setattr(outbox, "_publish_all", seen)
    await db.execute(TEN_AND_A_PURGE.replace("$1", str(SIZE)))
    await drained(db)
    assert max(read) <= CHUNK_BYTES + SIZE
    assert sum(read) == 10 * SIZE

    async def is_purged() -> bool:
        return bool(await db.fetchval("SELECT bool_and(state = 'done') FROM howdah.commands"))

    await until(is_purged)
    assert house.vhost.queue("q").counts().ready == 0  # the purge was said after all of them


async def test_large_messages_that_waited_for_a_full_queue_enter_it_a_few_at_a_time(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q", max_length=1, overflow="reject-publish")
    await house.store("q", b"first")
    await db.execute(TEN_AND_A_PURGE.replace("$1", str(SIZE)).partition(",\n")[0])
    waiting = "SELECT count(*) FROM howdah.outbox WHERE waiting_for IS NOT NULL"

    async def all_wait() -> bool:
        return bool(await db.fetchval(waiting) == 10)

    await until(all_wait)
    inbox, _ = await house.consume("q", ACCEPTED)
    await inbox.has(11)
    assert [len(body) for body in inbox.bodies] == [5] + [SIZE] * 10
    await drained(db)
