"""Each role may do what it needs, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from queue_core.store.operator import preflight
from queue_core.store.operator.queue_operations import OperationError, Operations
from queue_core.store.schema import is_leaf
from tests.support.logins import logged_in
from tests.support.seed import append, change, death, make_queue, make_segment

DEFINITION_TABLES = (
    "alembic_version",
    "gateway",
    "shard",
    "node",
    "vhost",
    "exchange",
    "queue",
    "binding",
    "policy",
    "segment",
    "definitions_import",
)
LOSS_TABLES = ("loss", "log_end", "ownership", "commit_mark")
ROLES = ("howdah_gateway", "howdah_operator", "howdah_publisher", "howdah_reader")

_TABLE_GRANTS = """
SELECT c.relname, a.privilege_type
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND a.grantee = $1::text::regrole
"""
_COLUMN_GRANTS = """
SELECT c.relname, t.attname, a.privilege_type
FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE c.relnamespace = 'howdah'::regnamespace AND a.grantee = $1::text::regrole
"""
_FUNCTION_GRANTS = """
SELECT p.proname FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
WHERE p.pronamespace = 'howdah'::regnamespace AND a.grantee = $1::text::regrole
"""
_OPEN_TO_ALL = """
SELECT p.proname FROM pg_proc p
WHERE p.pronamespace = 'howdah'::regnamespace
  AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0))
UNION ALL
SELECT c.relname FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.relnamespace = 'howdah'::regnamespace AND a.grantee = 0
"""
# Functions that the views call, by the key which is their last argument.
_KEYED = """
SELECT p.proname::text, ARRAY(
    SELECT format_type(a.type, NULL)
    FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (type, place)
    ORDER BY a.place)
FROM pg_proc p
WHERE p.pronamespace = 'howdah'::regnamespace AND p.prosecdef
  AND p.prosrc LIKE '%PERFORM howdah.check_view_key(view_key)%'
"""
_PURE = (
    "protocol_name",
    "slashed",
    "dotted",
    "body_text",
    "body_json",
    "failure_text",
    "topic_matches",
    "held_offsets",
    "is_served",
    "name_matches",
    "unsupported_keys",
    "limit_rank",
    "merged_limits",
)

_VIEWS = {
    "commands",
    "consumer_status",
    "in_flight",
    "outbox_status",
    "settlement_state",
    "consumer_lag",
    "queue_status",
    "queue_policy",
    "ready_messages",
    "dead_letters",
    "etl_status",
    "segment_status",
}
_OPERATORS_VIEWS = {"session_status", "session_subscriptions", "retained_messages"}


@asynccontextmanager
async def _acting_as(db: asyncpg.Connection, role: str) -> AsyncIterator[None]:
    await db.execute(f"SET ROLE {role}")
    try:
        yield
    finally:
        await db.execute("RESET ROLE")


@pytest.fixture
async def seeded(db: asyncpg.Connection) -> asyncpg.Connection:
    """A queue `q` with one dead letter in segment 1."""
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    assert segment == 1
    await append(db, segment, queue, [0])
    await change(db, queue, 0, deaths=[death("orders")])
    return db


ALLOWED = [
    ("howdah_gateway", "UPDATE howdah.gateway SET epoch = epoch + 1"),
    ("howdah_gateway", "SELECT version_num FROM howdah.alembic_version"),
    (
        "howdah_gateway",
        "INSERT INTO howdah.queue (vhost, name, kind, shard) VALUES ('/', 'n', 'classic', 0)",
    ),
    ("howdah_gateway", "DELETE FROM howdah.session"),
    ("howdah_gateway", "SELECT howdah.create_segment()"),
    ("howdah_gateway", "SELECT howdah.seal_segment(1, 1, 1, now())"),
    ("howdah_gateway", "SELECT howdah.release_segment(1, 1)"),
    ("howdah_gateway", "SELECT howdah.open_generation(1)"),
    ("howdah_gateway", "UPDATE howdah.shard SET generation = 1"),
    ("howdah_gateway", "INSERT INTO howdah.message_body VALUES (1, 1, 'x')"),
    ("howdah_gateway", "INSERT INTO howdah.message_body_1 VALUES (1, 1, 'x')"),
    ("howdah_gateway", "DELETE FROM howdah.outbox"),
    ("howdah_gateway", "UPDATE howdah.outbox SET waiting_for = ARRAY['q']"),
    ("howdah_operator", "SELECT * FROM howdah.outbox_status"),
    ("howdah_gateway", "UPDATE howdah.command SET done_at = now(), result = '{}', error = 'e'"),
    ("howdah_operator", "SELECT * FROM howdah.queue_status"),
    ("howdah_operator", "SELECT * FROM howdah.vhost"),
    ("howdah_operator", "SELECT * FROM howdah.queue, howdah.exchange, howdah.binding"),
    ("howdah_operator", "SELECT * FROM howdah.segment, howdah.gateway, howdah.alembic_version"),
    ("howdah_operator", "SELECT * FROM howdah.torn_tables()"),
    ("howdah_reader", "SELECT * FROM howdah.torn_tables()"),
    ("howdah_operator", "SELECT * FROM howdah.ready_messages"),
    ("howdah_operator", "SELECT * FROM howdah.dead_letters"),
    ("howdah_operator", "SELECT * FROM howdah.consumer_lag"),
    ("howdah_operator", "SELECT *, howdah.body_text(body) FROM howdah.peek('q')"),
    ("howdah_operator", "SELECT howdah.redrive('q', 'protocol = ''SQL''')"),
    ("howdah_operator", "SELECT * FROM howdah.command_status(howdah.purge('q'))"),
    ("howdah_operator", "SELECT howdah.delete_queue('q')"),
    ("howdah_operator", "SELECT howdah.declare_queue('n')"),
    ("howdah_operator", "SELECT howdah.bind_topic('q', 'a/#'), howdah.unbind('q', 'a.#')"),
    ("howdah_operator", "SELECT howdah.publish('q', 'x')"),
    ("howdah_operator", "SELECT howdah.publish_topic('a/b', 'x')"),
    ("howdah_operator", "SELECT * FROM howdah.commands"),
    ("howdah_operator", "SELECT howdah.is_served() FROM howdah.consumer_status, howdah.in_flight"),
    ("howdah_reader", "SELECT * FROM howdah.consumer_status, howdah.in_flight"),
    ("howdah_gateway", "TRUNCATE howdah.consumer"),
    ("howdah_operator", "SELECT * FROM howdah.browse('q'), howdah.dead_letter_causes('q')"),
    ("howdah_operator", "SELECT howdah.offset_at('q', now()), howdah.message_life('q', 0)"),
    ("howdah_operator", "SELECT * FROM howdah.session_status, howdah.session_subscriptions"),
    ("howdah_operator", "SELECT * FROM howdah.retained_messages, howdah.etl_status"),
    ("howdah_gateway", "SELECT * FROM howdah.browse('q'), howdah.segment_status"),
    ("howdah_publisher", "SELECT howdah.publish('q', 'x'::bytea)"),
    ("howdah_publisher", "SELECT howdah.publish_many('q', ARRAY['a', 'b']), howdah.wake()"),
    ("howdah_publisher", "SELECT howdah.publish('q', '{}'::jsonb)"),
    ("howdah_publisher", "SELECT howdah.publish_topic('a/b', 'x', retain => true)"),
    ("howdah_reader", "SELECT * FROM howdah.message"),
    ("howdah_reader", "SELECT * FROM howdah.message_body"),
    ("howdah_reader", "SELECT * FROM howdah.queue, howdah.segment, howdah.settlement"),
    ("howdah_reader", "SELECT * FROM howdah.ready_messages"),
    ("howdah_reader", "SELECT * FROM howdah.queue_status"),
]

REFUSED = [
    ("howdah_gateway", 'UPDATE howdah.message SET "offset" = 1'),
    ("howdah_gateway", "DELETE FROM howdah.message"),
    ("howdah_gateway", "DELETE FROM howdah.message_1"),
    ("howdah_gateway", "TRUNCATE howdah.settlement"),
    ("howdah_gateway", "DELETE FROM howdah.gateway"),
    ("howdah_gateway", "DROP TABLE howdah.message_1"),
    ("howdah_gateway", "UPDATE howdah.segment SET bytes = 0"),
    ("howdah_gateway", "UPDATE howdah.outbox SET body = 'x'"),
    ("howdah_gateway", "UPDATE howdah.command SET requested_by = 'me'"),
    ("howdah_gateway", "UPDATE howdah.alembic_version SET version_num = 'x'"),
    ("howdah_gateway", "CREATE TABLE howdah.mine ()"),
    ("howdah_gateway", "SELECT howdah.attach_leaf('message', 'segment_id', 9)"),
    ("howdah_gateway", "SELECT howdah.publish('q', 'x')"),
    ("howdah_operator", "SELECT * FROM howdah.message"),
    ("howdah_operator", "SELECT * FROM howdah.settlement"),
    ("howdah_operator", "SELECT * FROM howdah.session"),
    ("howdah_operator", 'SELECT * FROM howdah."user"'),
    ("howdah_operator", "INSERT INTO howdah.command DEFAULT VALUES"),
    ("howdah_operator", "SELECT howdah.drop_segment(1)"),
    ("howdah_operator", "DELETE FROM howdah.queue"),
    ("howdah_operator", "INSERT INTO howdah.vhost VALUES ('v')"),
    ("howdah_publisher", "SELECT * FROM howdah.queue_status"),
    ("howdah_publisher", "SELECT * FROM howdah.peek('q')"),
    ("howdah_publisher", "SELECT howdah.purge('q')"),
    ("howdah_publisher", "SELECT * FROM howdah.browse('q')"),
    ("howdah_reader", "SELECT * FROM howdah.session_status"),
    ("howdah_reader", "SELECT * FROM howdah.retained_messages"),
    ("howdah_publisher", "SELECT * FROM howdah.commands"),
    ("howdah_publisher", "SELECT * FROM howdah.consumer_status"),
    ("howdah_operator", "SELECT * FROM howdah.consumer"),
    ("howdah_publisher", "SELECT * FROM howdah.outbox"),
    ("howdah_publisher", "INSERT INTO howdah.outbox DEFAULT VALUES"),
    ("howdah_reader", 'SELECT * FROM howdah."user"'),
    ("howdah_reader", "SELECT * FROM howdah.session"),
    ("howdah_reader", "SELECT * FROM howdah.outbox"),
    ("howdah_reader", "DELETE FROM howdah.message"),
    # Policies are the parent's: what has a right of its own on a partition would go around them.
    ("howdah_reader", "SELECT * FROM howdah.message_1"),
    ("howdah_reader", "SELECT * FROM howdah.message_body_1"),
    ("howdah_reader", "SELECT * FROM howdah.settlement_1"),
    ("howdah_reader", "SELECT howdah.purge('q')"),
    ("howdah_reader", "SELECT howdah.publish('q', 'x')"),
    ("pg_monitor", "SELECT * FROM howdah.queue_status"),
    ("pg_monitor", "SELECT howdah.publish('q', 'x')"),
]


@pytest.mark.parametrize(("role", "statement"), ALLOWED)
async def test_a_role_may(seeded: asyncpg.Connection, role: str, statement: str) -> None:
    async with _acting_as(seeded, role):
        await seeded.fetch(statement)


@pytest.mark.parametrize(("role", "statement"), REFUSED)
async def test_a_role_may_not(seeded: asyncpg.Connection, role: str, statement: str) -> None:
    async with _acting_as(seeded, role):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await seeded.fetch(statement)


async def test_nothing_is_open_to_everyone_but_what_shows_nothing(db: asyncpg.Connection) -> None:
    """Functions of the views answer to nobody without their key; the others are pure."""
    await make_segment(db)
    opened = {row[0] for row in await db.fetch(_OPEN_TO_ALL)}
    assert opened == {*_PURE, *(row[0] for row in await db.fetch(_KEYED))}


@pytest.mark.parametrize("view", sorted(_VIEWS | _OPERATORS_VIEWS))
async def test_a_view_that_is_granted_can_be_read_without_any_role_of_ours(
    seeded: asyncpg.Connection, migrated_url: str, view: str
) -> None:
    expected = await seeded.fetchval(f"SELECT count(*) FROM howdah.{view}")
    async with logged_in(seeded, migrated_url) as stranger:
        login = await stranger.fetchval("SELECT current_user")
        await seeded.execute(f"GRANT USAGE ON SCHEMA howdah TO {login}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"for view {view}"):
            await stranger.fetch(f"SELECT * FROM howdah.{view}")
        await seeded.execute(f"GRANT SELECT ON howdah.{view} TO {login}")
        assert len(await stranger.fetch(f"SELECT * FROM howdah.{view}")) == expected


async def test_no_function_of_the_views_answers_without_their_key(
    seeded: asyncpg.Connection, migrated_url: str
) -> None:
    functions = await seeded.fetch(_KEYED)
    assert len(functions) > 8
    async with logged_in(seeded, migrated_url) as stranger:
        login = await stranger.fetchval("SELECT current_user")
        # Whoever may read a view has no more than the view.
        await seeded.execute(f"GRANT USAGE ON SCHEMA howdah TO {login}")
        await seeded.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA howdah TO {login}")
        await seeded.execute(f"REVOKE ALL ON howdah.view_key FROM {login}")
        for name, types in functions:
            others = "".join(f"NULL::{each}, " for each in types[:-1])
            for key in ("NULL", f"'{uuid4()}'"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="is for the views"):
                    await stranger.fetch(f"SELECT * FROM howdah.{name}({others}{key}::uuid)")


async def test_no_role_reads_the_key_of_the_views(db: asyncpg.Connection) -> None:
    for role in ROLES:
        async with _acting_as(db, role):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.fetch("TABLE howdah.view_key")


async def test_no_role_can_log_in_or_do_more_than_it_was_granted(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY ($1) AND NOT "
        "(rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication)",
        ROLES,
    )
    assert {row[0] for row in rows} == set(ROLES)


async def test_the_gateway_is_granted_exactly_what_the_preflight_asks_for(
    db: asyncpg.Connection,
) -> None:
    granted: dict[str, set[str]] = {}
    for name, privilege in await db.fetch(_TABLE_GRANTS, "howdah_gateway"):
        if not is_leaf(name):
            granted.setdefault(name, set()).add(privilege)
    assert granted == {n: set(p.split(", ")) for n, p in preflight.TABLE_RIGHTS.items()}
    columns = await db.fetch(_COLUMN_GRANTS, "howdah_gateway")
    assert {(table, column): p for table, column, p in columns} == preflight.COLUMN_RIGHTS
    functions = {row[0] for row in await db.fetch(_FUNCTION_GRANTS, "howdah_gateway")}
    assert functions == {signature.partition("(")[0] for signature in preflight.FUNCTIONS}


async def test_operators_and_readers_see_all_views_and_publishers_see_nothing(
    db: asyncpg.Connection,
) -> None:
    seen = {role: set(await db.fetch(_TABLE_GRANTS, role)) for role in ROLES}
    operators = (*_VIEWS, *_OPERATORS_VIEWS, *DEFINITION_TABLES, *LOSS_TABLES)
    expected = {(name, "SELECT") for name in operators}
    assert {tuple(row) for row in seen["howdah_operator"]} == expected
    assert {tuple(row) for row in seen["howdah_reader"]} >= {(v, "SELECT") for v in _VIEWS}
    assert {privilege for _, privilege in seen["howdah_reader"]} == {"SELECT"}
    assert seen["howdah_publisher"] == set()


async def test_functions_that_lend_rights_fix_their_search_path(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT proname, proconfig FROM pg_proc "
        "WHERE pronamespace = 'howdah'::regnamespace AND prosecdef"
    )
    assert len(rows) >= 9
    assert [
        row["proname"]
        for row in rows
        if "search_path=pg_catalog, pg_temp" not in (row["proconfig"] or ())
    ] == []


async def test_an_operator_is_told_that_there_is_no_such_virtual_host(
    db: asyncpg.Connection,
) -> None:
    async with _acting_as(db, "howdah_operator"):
        operations = Operations(db)
        assert await operations.queues("/") == []
        with pytest.raises(OperationError, match="no virtual host 'nowhere'"):
            await operations.queues("nowhere")


async def test_comments_of_partitions_in_use_change_with_their_parents(
    db: asyncpg.Connection,
) -> None:
    rows = await db.fetch(
        "SELECT col_description(attrelid, attnum) FROM pg_attribute "
        "JOIN pg_class c ON c.oid = attrelid WHERE attname = 'amended' AND relkind IN ('r', 'p') "
        "AND relnamespace = 'howdah'::regnamespace"
    )
    assert len(rows) > 1
    assert {row[0].partition(":")[0] for row in rows} == {"Tells rows of the same count apart"}
