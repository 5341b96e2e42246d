"""Lost messages are not counted and not numbered again: partitions taken away by hand, and holes
that an earlier release left."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.errors import StoreUnavailable
from queue_core.store.operator import doctor_checks, preflight
from queue_core.store.operator.finding import Level
from queue_core.store.read.recovery import TornTables
from tests.support.managers import House, bodies

SEGMENT = "SELECT max(id) FROM howdah.segment"
NEWEST = """
    SELECT max(m."offset") FROM howdah.message m JOIN howdah.queue q ON q.id = m.queue_id
    WHERE q.name = $1
"""


async def failing(db: asyncpg.Connection) -> str:
    return "\n".join(
        each.what for each in await doctor_checks.examine(db) if each.level is Level.FAIL
    )


async def test_a_dropped_partition_is_named_and_numbers_go_on_behind_it(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1", b"2")
    await house.upkeep()
    await house.close()
    segment = await db.fetchval(SEGMENT)
    await db.execute(f"DROP TABLE howdah.message_{segment}")
    assert f"howdah.message_{segment} is missing" in await failing(db)
    with pytest.raises(TornTables, match=r"howdah\.repair\(\)"):
        await house.open()
    (lost,) = await db.fetch("SELECT * FROM howdah.repair()")
    assert (lost["queue"], lost["first_offset"]) == ("q", 0)
    assert await failing(db) == ""
    await house.open()
    assert house.vhost.queue("q").counts().ready == 0
    await house.store("q", b"new")
    assert await db.fetchval(NEWEST, "q") == lost["end_offset"] >= 3
    assert bodies(await house.drain("q")) == [b"new"]


async def test_numbers_do_not_begin_again_when_a_partition_is_put_back_by_hand_and_empty(
    house: House, db: asyncpg.Connection
) -> None:
    await house.stream("s")
    await house.store("s", b"0", b"1")
    await house.upkeep()
    await house.close()
    segment = await db.fetchval(SEGMENT)
    await db.execute(f"TRUNCATE howdah.message_{segment}")
    await house.open()
    await house.store("s", b"new")
    assert await db.fetchval(NEWEST, "s") >= 2
    assert house.vhost.queue("s").counts().ready == 1
    assert await db.fetchval("SELECT cause FROM howdah.loss") == "torn"


async def test_a_partition_that_was_renamed_gets_its_name_back(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1")
    await house.close()
    segment = await db.fetchval(SEGMENT)
    await db.execute(f"ALTER TABLE howdah.message_{segment} RENAME TO kept")
    assert "is called howdah.kept now" in await failing(db)
    assert await db.fetch("SELECT * FROM howdah.repair()") == []
    await house.open()
    assert bodies(await house.drain("q")) == [b"0", b"1"]


async def test_phantoms_and_holes_are_found_and_repaired(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.stream("s")
    for queue in ("q", "s"):
        await house.store(queue, *(b"%d" % number for number in range(6)))
    await house.close()
    await db.execute('DELETE FROM howdah.message WHERE "offset" IN (2, 3)')
    found = await db.fetch("SELECT queue, first_offset, end_offset FROM howdah.find_gaps()")
    assert [tuple(row) for row in found] == [("q", 2, 4), ("s", 2, 4)]
    assert len(await db.fetch("SELECT * FROM howdah.repair()")) == 2
    assert await db.fetch("SELECT * FROM howdah.find_gaps()") == []
    await house.open()
    assert [house.vhost.queue(name).counts().ready for name in ("q", "s")] == [4, 4]
    assert bodies(await house.drain("q")) == [b"0", b"1", b"4", b"5"]


async def test_a_repair_waits_for_no_gateway(house: House, db: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.ObjectInUseError, match="a gateway owns this database"):
        await db.fetch("SELECT * FROM howdah.repair()")


async def test_a_table_that_was_renamed_is_not_told_to_be_migrated(db: asyncpg.Connection) -> None:
    await db.execute("ALTER TABLE howdah.outbox RENAME TO outbox_old")
    (problem,) = await preflight.check(db)
    assert "has lost howdah.outbox" in problem.cause
    assert "howdah migrate does not make it again" in problem.way_out


async def test_an_end_that_could_not_be_noted_is_noted_when_it_can_be(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"1", b"2")
    await db.execute("ALTER TABLE howdah.log_end RENAME TO elsewhere")
    with pytest.raises(StoreUnavailable):
        await house.manager._background.keep_up()
    await db.execute("ALTER TABLE howdah.elsewhere RENAME TO log_end")
    await house.manager._background.keep_up()
    assert await db.fetchval("SELECT noted FROM howdah.log_end") == 2


async def test_a_gateway_that_was_replaced_notes_no_ends(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"1", b"2")
    await db.execute("UPDATE howdah.node SET state = 'gone'")
    with pytest.raises(StoreUnavailable, match="another gateway has taken over"):
        await house.manager._background.keep_up()
    assert await db.fetchval("SELECT count(*) FROM howdah.log_end") == 0
