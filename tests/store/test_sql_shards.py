"""Shards in SQL: which one a name hashes to, and segments and generations that nodes share."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_core.store.shards import SHARDS, shard_of, shard_of_queue, shard_of_session
from tests.support.seed import append, make_queue, make_segment

NAMES = ["", "orders", "a\nb", "größe", "x" * 255, "$session/a", "\U0001f418"]
JOINED = """
    INSERT INTO howdah.node
        (name, host, link_version, schema_version, state, lease_ms, max_message_size)
    VALUES ($1, 'here', 0, 'x', $2, 0, 0) RETURNING id
"""
FIRST, SECOND = range(32), range(32, 64)


async def joined(db: asyncpg.Connection, name: str, state: str = "up") -> int:
    node: int = await db.fetchval(JOINED, name, state)
    return node


async def own(db: asyncpg.Connection, node: int, shards: range) -> None:
    await db.execute(
        "UPDATE howdah.shard SET node_id = $1, epoch = epoch + 1 WHERE id = ANY($2::int2[])",
        node,
        list(shards),
    )


async def needed_by(db: asyncpg.Connection, segment: int) -> list[int] | None:
    found: list[int] | None = await db.fetchval(
        "SELECT needed_by FROM howdah.segment WHERE id = $1", segment
    )
    return found


# --------------------------------------------------------------------------------------- names


async def test_sql_and_python_agree_on_the_shard_of_a_name(db: asyncpg.Connection) -> None:
    for kind in ("queue", "session", "group", "retained"):
        for name in NAMES:
            found = await db.fetchval("SELECT howdah.shard_of('/', $1, $2)", kind, name)
            assert found == shard_of("/", kind, name), (kind, name)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
async def test_they_agree_whatever_the_name(db: asyncpg.Connection, name: str) -> None:
    assert await db.fetchval("SELECT howdah.shard_of($1, $1, $1)", name) == shard_of(*[name] * 3)


def test_names_are_spread_over_all_shards() -> None:
    counts = [0] * SHARDS
    for number in range(6400):
        counts[shard_of("/", "queue", f"queue {number}")] += 1
    assert min(counts) > 50


def test_the_queue_of_a_session_is_in_the_shard_of_the_session() -> None:
    for client in ("sensor", "a/b", ""):
        assert shard_of_queue("/", f"$session/{client}") == shard_of_session("/", client)
    assert shard_of_queue("/", "$share/g/a/b") == shard_of("/", "group", "g/a/b")


# ------------------------------------------------------------------------------------ segments


async def test_a_sealed_segment_is_needed_by_all_shards_of_its_node(db: asyncpg.Connection) -> None:
    node = await joined(db, "one")
    await own(db, node, FIRST)
    segment = await db.fetchval("SELECT howdah.create_segment(NULL, $1)", node)
    assert await needed_by(db, segment) is None
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    assert await needed_by(db, segment) == list(FIRST)


async def test_the_segments_of_a_stream_belong_to_its_shard_also_when_it_is_deleted(
    db: asyncpg.Connection,
) -> None:
    stream = await make_queue(db, "s", "stream")
    segment = await make_segment(db, stream)
    shard = shard_of_queue("/", "s")
    await db.execute("DELETE FROM howdah.queue")
    assert await needed_by(db, segment) == [shard]
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    assert await needed_by(db, segment) == [shard]


async def test_a_segment_is_dropped_by_the_last_node_that_needs_it(db: asyncpg.Connection) -> None:
    one, two = await joined(db, "one"), await joined(db, "two")
    segment = await make_segment(db)
    await own(db, one, FIRST)
    await own(db, two, SECOND)
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    assert not await db.fetchval("SELECT howdah.release_segment($1, $2)", segment, one)
    assert await needed_by(db, segment) == list(SECOND)
    assert await db.fetchval("SELECT howdah.release_segment($1, $2)", segment, two)
    assert await db.fetchval("SELECT count(*) FROM howdah.segment") == 0
    assert await db.fetchval("SELECT to_regclass($1)", f"howdah.message_{segment}") is None


async def test_of_two_nodes_that_let_a_segment_go_at_the_same_time_one_drops_it(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    one, two = await joined(db, "one"), await joined(db, "two")
    segment = await make_segment(db)
    await own(db, one, FIRST)
    await own(db, two, SECOND)
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    async with db.transaction():
        await db.execute("SELECT howdah.lock_segment($1, $2)", segment, one)
        assert not await db.fetchval("SELECT howdah.release_segment($1, $2)", segment, one)
        await other.execute("SET lock_timeout = '50ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute("SELECT howdah.lock_segment($1, $2)", segment, two)
    assert await other.fetchval("SELECT howdah.release_segment($1, $2)", segment, two)


async def test_a_node_that_lets_a_segment_go_before_others_keeps_nobody_out_of_it(
    db: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    one, two = await joined(db, "one"), await joined(db, "two")
    segment = await make_segment(db)
    await own(db, one, FIRST)
    await own(db, two, SECOND)
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", segment)
    async with db.transaction():
        await db.execute("SELECT howdah.lock_segment($1, $2)", segment, one)
        await other.execute("SET lock_timeout = '50ms'")
        assert await other.fetch(f"SELECT FROM howdah.message_{segment}") == []
        await db.execute("SELECT howdah.retire_segment($1)", segment)
    assert await db.fetchval("SELECT retired_at FROM howdah.segment") is None


async def test_views_pass_over_copies_in_a_segment_that_the_queues_shard_has_left(
    db: asyncpg.Connection,
) -> None:
    """Carried forward, a message lies in two segments for as long as others need the old one."""
    one, two = await joined(db, "one"), await joined(db, "two")
    queue = await make_queue(db, "q")
    shard = shard_of_queue("/", "q")
    old, new = await make_segment(db), await make_segment(db)
    await own(db, one, range(SHARDS))
    await own(db, two, range((shard + 1) % SHARDS, (shard + 1) % SHARDS + 1))
    for segment in (old, new):
        await append(db, segment, queue, [0])
    await db.execute("SELECT howdah.seal_segment($1, 1, 1, now())", old)
    assert not await db.fetchval("SELECT howdah.release_segment($1, $2)", old, one)
    rows = await db.fetch("SELECT segment_id FROM howdah.ready_messages WHERE queue = 'q'")
    assert [row[0] for row in rows] == [new]
    assert len(await db.fetch("SELECT * FROM howdah.peek('q')")) == 1


# ---------------------------------------------------------------------------------- open segments


async def adopted_after(
    db: asyncpg.Connection, dead: int, heirs: dict[int, range]
) -> tuple[int | None, bool, list[int] | None]:
    """The dead node's open segment, once the first of its heirs has adopted: whose it is, whether
    it is sealed, and who needs it."""
    generation = await db.fetchval("SELECT howdah.open_generation($1)", dead)
    await db.execute("UPDATE howdah.shard SET node_id = $1, generation = $2", dead, generation)
    segment = await db.fetchval("SELECT howdah.create_segment(NULL, $1)", dead)
    await db.execute("UPDATE howdah.node SET state = 'gone' WHERE id = $1", dead)
    for heir, shards in heirs.items():
        await own(db, heir, shards)
    await db.execute("SELECT howdah.adopt_segments($1)", next(iter(heirs)))
    row = await db.fetchrow(
        "SELECT node_id, sealed_at IS NOT NULL, needed_by FROM howdah.segment WHERE id = $1",
        segment,
    )
    assert row is not None
    return tuple(row)


async def test_the_only_heir_of_a_node_goes_on_with_its_open_segment(
    db: asyncpg.Connection,
) -> None:
    dead, heir = await joined(db, "dead"), await joined(db, "heir")
    found = await adopted_after(db, dead, {heir: range(SHARDS)})
    assert found == (heir, False, None)


async def test_of_several_heirs_the_first_seals_the_open_segment_for_all_of_them(
    db: asyncpg.Connection,
) -> None:
    dead, one, two = [await joined(db, name) for name in ("dead", "one", "two")]
    found = await adopted_after(db, dead, {one: FIRST, two: SECOND})
    assert found == (one, True, list(range(SHARDS)))


# ------------------------------------------------------------------------------------- generations


async def unused(db: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await db.fetch("SELECT howdah.unused_generations()")]


async def test_a_generation_is_unused_when_no_shard_names_it_and_no_node_writes_it(
    db: asyncpg.Connection,
) -> None:
    node, dead = await joined(db, "one"), await joined(db, "two", "gone")
    left = await db.fetchval("SELECT howdah.open_generation($1)", dead)
    first = await db.fetchval("SELECT howdah.open_generation($1)", node)
    assert await unused(db) == [left]  # 1 is named by shards, and the first is its node's newest
    await db.execute("UPDATE howdah.shard SET generation = $1 WHERE id < 63", first)
    second = await db.fetchval("SELECT howdah.open_generation($1)", node)
    assert await unused(db) == [left]
    await db.execute("UPDATE howdah.shard SET generation = $1", second)
    assert await unused(db) == [1, left, first]


async def test_marks_of_a_living_nodes_generation_stay_for_one_more(db: asyncpg.Connection) -> None:
    node = await joined(db, "one")
    numbers = []
    for _ in range(3):
        numbers.append(await db.fetchval("SELECT howdah.open_generation($1)", node))
        await db.execute("UPDATE howdah.shard SET generation = $1", numbers[-1])
        for generation in await unused(db):
            await db.execute("SELECT howdah.drop_generation($1)", generation)
    rows = await db.fetch("SELECT number FROM howdah.journal_generation ORDER BY number")
    assert [row[0] for row in rows] == numbers[1:]
    for number in numbers[1:]:
        assert await db.fetchval("SELECT to_regclass($1)", f"howdah.commit_mark_{number}")
    assert await db.fetchval("SELECT to_regclass($1)", f"howdah.settlement_{numbers[1]}") is None
