"""The schema explains itself, and keeps the promises that its constraints make."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.store.schema import JOURNAL_TABLES, LOG_TABLES, is_leaf, metadata
from tests.support.seed import append, make_queue, make_segment

_WITHOUT_COMMENT = """
SELECT format('relation %s', c.relname) FROM pg_class c
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL
SELECT format('column %s.%s', c.relname, a.attname)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND col_description(c.oid, a.attnum) IS NULL
UNION ALL
SELECT format('function %s', p.oid::regprocedure) FROM pg_proc p
WHERE p.pronamespace = 'howdah'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
UNION ALL
SELECT 'schema' WHERE obj_description('howdah'::regnamespace, 'pg_namespace') IS NULL
"""


async def test_every_table_column_view_and_function_has_a_comment(db: asyncpg.Connection) -> None:
    await make_segment(db)  # partitions made later as well
    assert [row[0] for row in await db.fetch(_WITHOUT_COMMENT)] == []


async def test_a_fresh_schema_has_one_gateway_row_one_vhost_and_generation_1(
    db: asyncpg.Connection,
) -> None:
    row = await db.fetchrow("SELECT epoch, node FROM howdah.gateway")
    assert row is not None
    assert tuple(row) == (0, None)
    shards = await db.fetch("SELECT id, node_id, epoch, generation FROM howdah.shard ORDER BY id")
    assert [tuple(row) for row in shards] == [(number, None, 0, 1) for number in range(64)]
    assert [row[0] for row in await db.fetch("SELECT name FROM howdah.vhost")] == ["/"]
    for journal in JOURNAL_TABLES:
        assert await db.fetchval("SELECT to_regclass($1)", f"howdah.{journal}_1") is not None


async def test_there_is_never_a_second_gateway_row(db: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await db.execute("INSERT INTO howdah.gateway (id, epoch) VALUES (2, 0)")


def test_leaves_are_told_from_their_parents_by_name() -> None:
    names = {table.name for table in metadata.tables.values()}
    assert not [name for name in names if is_leaf(name)]
    assert all(is_leaf(f"{name}_17") for name in LOG_TABLES + JOURNAL_TABLES)
    assert not is_leaf("message_body")
    assert not is_leaf("queue_1")


async def test_an_offset_that_is_taken_stops_a_second_writer(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "orders"), await make_segment(db)
    await append(db, segment, queue, range(3))
    with pytest.raises(asyncpg.UniqueViolationError):
        await append(db, segment, queue, [2])


async def test_the_same_binding_cannot_be_made_twice_however_long_its_key(
    db: asyncpg.Connection,
) -> None:
    insert = """
        INSERT INTO howdah.binding
            (vhost, source, destination_kind, destination, routing_key, arguments)
        VALUES ('/', 'amq.topic', 'queue', 'q', $1, $2)
    """
    long_key = "x" * 60_000  # no index entry can be as long as that
    await db.execute(insert, long_key, "{}")
    await db.execute(insert, long_key, '{"x-match": "any"}')
    await db.execute(insert, long_key + "y", "{}")
    with pytest.raises(asyncpg.UniqueViolationError):
        await db.execute(insert, long_key, '{"x-match":   "any"}')


async def test_a_vhost_takes_its_definitions_with_it(db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO howdah.vhost (name) VALUES ('test')")
    await make_queue(db, "orders", vhost="test")
    await db.execute("DELETE FROM howdah.vhost WHERE name = 'test'")
    assert await db.fetchval("SELECT count(*) FROM howdah.queue") == 0


async def test_a_user_takes_its_permissions_with_it(db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO howdah.\"user\" (name) VALUES ('ann')")
    await db.execute("INSERT INTO howdah.permission VALUES ('ann', '/', '.*', '.*', '.*')")
    await db.execute("INSERT INTO howdah.topic_permission VALUES ('ann', '/', 'x', '.*', '.*')")
    await db.execute('DELETE FROM howdah."user"')
    assert await db.fetchval("SELECT count(*) FROM howdah.permission") == 0
    assert await db.fetchval("SELECT count(*) FROM howdah.topic_permission") == 0


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(
            "INSERT INTO howdah.queue (vhost, name, kind, shard) VALUES ('/', 'q', 'quorum', 0)",
            id="kind",
        ),
        pytest.param(
            "INSERT INTO howdah.queue (vhost, name, kind, shard) VALUES ('/', 'q', 'classic', 64)",
            id="shard",
        ),
        pytest.param(
            "INSERT INTO howdah.session (vhost, client_id, protocol, state, shard) "
            "VALUES ('/', 'c', 'MQTT 5', 'lost', 0)",
            id="session state",
        ),
        pytest.param(
            "INSERT INTO howdah.binding (vhost, source, destination_kind, destination, routing_key)"
            " VALUES ('/', 'x', 'topic', 'd', 'k')",
            id="destination kind",
        ),
    ],
)
async def test_a_word_outside_the_list_is_refused(db: asyncpg.Connection, statement: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await db.execute(statement)
