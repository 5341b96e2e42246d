"""Adoption: a new owner finds all that the owner before has committed, also when one that came
between has died half way; and its own journal is all that counts from then on."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.delivery.consumer import Delivery
from queue_core.errors import StoreUnavailable
from queue_core.outcomes import ACCEPTED, FAILED
from queue_core.store import adoption
from tests.store.sessions import world
from tests.support.managers import House, bodies
from tests.support.seed import make_queue, settle

GENERATIONS = "SELECT DISTINCT generation FROM howdah.shard"
STATE = "SELECT queue, group_name, floor, acked::text FROM howdah.settlement_state ORDER BY 1, 2"


async def generations(db: asyncpg.Connection) -> list[int]:
    return sorted(row[0] for row in await db.fetch(GENERATIONS))


async def leaves(db: asyncpg.Connection, parent: str) -> list[str]:
    rows = await db.fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = $1::text::regclass ORDER BY c.oid",
        f"howdah.{parent}",
    )
    return [row[0] for row in rows]


async def got(house: House, count: int) -> list[Delivery]:
    found = [await house.vhost.get("q") for _ in range(count)]
    return [each for each in found if each is not None]


async def used_queue(house: House) -> None:
    """A queue with messages of which some are settled out of order, and one failed twice."""
    await house.queue("q", delivery_limit=10)
    await house.store("q", *(b"%d" % number for number in range(10)))
    taken = await got(house, 10)
    house.vhost.settle([taken[number] for number in (0, 1, 4, 7)], ACCEPTED)
    house.vhost.settle([taken[5]], FAILED)
    house.vhost.settle(await got(house, 1), FAILED)
    await house.flushed()


async def test_a_node_owns_all_shards_when_it_is_alone_and_writes_a_generation_of_its_own(
    house: House, db: asyncpg.Connection
) -> None:
    node = house.manager.writer.fence.node.id
    rows = await db.fetch("SELECT DISTINCT node_id, epoch, generation FROM howdah.shard")
    assert [tuple(row) for row in rows] == [(node, 1, house.manager.writer.generation)]
    await house.reopen()
    later = house.manager.writer.fence.node.id
    rows = await db.fetch("SELECT DISTINCT node_id, epoch, generation FROM howdah.shard")
    assert [tuple(row) for row in rows] == [(later, 2, house.manager.writer.generation)]


@pytest.mark.parametrize("way", ["reopen", "crash_and_reopen"])
async def test_a_queue_is_adopted_with_what_is_settled_and_what_failed(
    house: House, db: asyncpg.Connection, way: str
) -> None:
    await used_queue(house)
    before = await db.fetch(STATE)
    await getattr(house, way)()
    assert await db.fetch(STATE) == before
    found = await got(house, 6)
    assert sorted(each.message.body for each in found) == [b"2", b"3", b"5", b"6", b"8", b"9"]
    failures = {each.message.body: each.failures for each in found}
    assert failures[b"5"] == 2
    assert await house.vhost.get("q") is None


async def test_one_full_row_says_all_of_a_group_after_an_adoption(
    house: House, db: asyncpg.Connection
) -> None:
    await used_queue(house)
    await house.crash_and_reopen()
    rows = await db.fetch(
        "SELECT floor, acked::text, is_full FROM howdah.settlement WHERE generation = $1",
        house.manager.writer.generation,
    )
    assert [tuple(row) for row in rows] == [(2, "{[4,5),[7,8)}", True)]


async def test_the_generation_before_is_dropped_when_no_shard_names_it(
    house: House, db: asyncpg.Connection
) -> None:
    await used_queue(house)
    await house.crash_and_reopen()
    assert len(await leaves(db, "settlement")) > 1
    await house.upkeep()
    assert await leaves(db, "settlement") == [f"settlement_{house.manager.writer.generation}"]
    await house.crash_and_reopen()
    assert len(await got(house, 6)) == 6


async def test_a_node_that_dies_while_it_adopts_has_changed_nothing_and_the_next_one_adopts(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await used_queue(house)
    before, counted = await db.fetch(STATE), await generations(db)
    await house.crash()
    with monkeypatch.context() as patch:
        patch.setattr(
            adoption,
            "COPIES",
            (*adoption.COPIES[:2], "SELECT pg_terminate_backend(pg_backend_pid())"),
        )
        with pytest.raises(
            (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, StoreUnavailable)
        ):
            await house.open()
    assert await generations(db) == counted
    assert await db.fetch(STATE) == before
    await house.open()
    assert await db.fetch(STATE) == before
    assert len(await got(house, 6)) == 6
    await house.upkeep()  # what the dead one opened is dropped as well
    assert await leaves(db, "packet") == [f"packet_{house.manager.writer.generation}"]


async def test_rows_that_a_node_left_in_another_generation_do_not_count(
    house: House, db: asyncpg.Connection
) -> None:
    """Not those of a node that was fenced while it wrote, either."""
    await used_queue(house)
    stale = await generations(db)
    await house.crash_and_reopen()
    queue = await db.fetchval("SELECT id FROM howdah.queue")
    await settle(db, queue, 999_999, 10, is_full=True, generation=stale[0])
    await house.crash_and_reopen()
    assert len(await got(house, 6)) == 6
    assert await db.fetchval("SELECT floor FROM howdah.settlement_state") == 2


async def test_shards_of_several_generations_are_adopted_into_one(
    house: House, db: asyncpg.Connection
) -> None:
    """As after two nodes have died: each queue's own generation counts for it, and no other."""
    await house.close()
    other = await db.fetchval("SELECT howdah.open_generation(NULL)")
    first, second = await make_queue(db, "a"), await make_queue(db, "b")
    current = (await generations(db))[0]
    await db.execute(
        "UPDATE howdah.shard SET generation = $1 WHERE id = howdah.shard_of('/', 'queue', 'b')",
        other,
    )
    for queue, generation, floor in (
        *((first, current, 3), (first, other, 90)),
        *((second, current, 90), (second, other, 4)),
    ):
        await settle(db, queue, 1, floor, is_full=True, generation=generation)
    assert [row["floor"] for row in await db.fetch(STATE)] == [3, 4]
    await house.open()
    assert await generations(db) == [house.manager.writer.generation]
    assert [row["floor"] for row in await db.fetch(STATE)] == [3, 4]
    tails = {queue.name: queue.log.tail for queue in house.manager._database.queues.queues.values()}
    assert tails == {"a": 3, "b": 4}


async def test_a_missing_partition_of_the_journal_is_never_taken_for_an_empty_one(
    house: House, db: asyncpg.Connection
) -> None:
    await used_queue(house)
    (counted,) = await generations(db)
    await house.close()
    await db.execute(f"DROP TABLE howdah.settlement_{counted}")
    with pytest.raises(StoreUnavailable, match=f"howdah.settlement_{counted} is missing"):
        await house.open()
    assert await generations(db) == [counted]


async def test_sessions_wills_and_queues_are_stored_with_their_shard(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with world(migrated_url) as here:
        await here.open("sensor")
        rows = await db.fetch(
            "SELECT shard FROM howdah.session UNION ALL SELECT shard FROM howdah.queue"
        )
        expected = await db.fetchval("SELECT howdah.shard_of('/', 'session', 'sensor')")
        assert [row[0] for row in rows] == [expected] * 2


async def test_the_segment_that_was_open_is_written_to_after_a_restart(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue()
    await house.store("q", b"1")
    await house.crash_and_reopen()
    await house.store("q", b"2")
    rows = await db.fetch("SELECT node_id, sealed_at FROM howdah.segment")
    assert [tuple(row) for row in rows] == [(house.manager.writer.fence.node.id, None)]
    assert bodies(await house.drain()) == [b"1", b"2"]
