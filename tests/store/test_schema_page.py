"""docs/schema.sql, the schema in one place for a DBA: it is current, and it is true."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from migrations import statements
from tools.schema import PAGE, render, sections

# Everything that a server does by the schema. Partitions are made at run time; comments are
# comments on the page.
_CATALOG = {
    "columns": """
        SELECT c.relname, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname,
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attstorage, pg_get_expr(d.adbin, d.adrelid), c.relkind,
               c.reloptions, pg_get_partkeydef(c.oid)
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND NOT c.relispartition
    """,
    "constraints": """
        SELECT c.relname, x.conname, pg_get_constraintdef(x.oid)
        FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid
        WHERE c.relnamespace = 'howdah'::regnamespace AND NOT c.relispartition
    """,
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid), i.indisvalid
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        WHERE c.relnamespace = 'howdah'::regnamespace AND NOT c.relispartition
    """,
    "views": """
        SELECT relname, pg_get_viewdef(oid) FROM pg_class
        WHERE relnamespace = 'howdah'::regnamespace AND relkind = 'v'
    """,
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'howdah'::regnamespace
    """,
    "triggers": """
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'howdah'::regnamespace AND NOT t.tgisinternal
    """,
    "grants": """
        SELECT relname, ARRAY(SELECT g::text FROM unnest(relacl) g ORDER BY 1) FROM pg_class
        WHERE relnamespace = 'howdah'::regnamespace AND NOT relispartition
        UNION ALL
        SELECT attname, ARRAY(SELECT g::text FROM unnest(attacl) g ORDER BY 1) FROM pg_attribute
        WHERE attacl IS NOT NULL
        UNION ALL
        SELECT oid::regprocedure::text, ARRAY(SELECT g::text FROM unnest(proacl) g ORDER BY 1)
        FROM pg_proc WHERE pronamespace = 'howdah'::regnamespace
        UNION ALL
        SELECT nspname, ARRAY(SELECT g::text FROM unnest(nspacl) g ORDER BY 1) FROM pg_namespace
        WHERE nspname = 'howdah'
    """,
}


async def test_the_schema_page_is_what_make_docs_writes(migrated_url: str) -> None:
    assert await render(migrated_url) == PAGE.read_text(), "run 'make docs'"


@pytest.fixture
async def made_from_the_page(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A database with what the page says, in the order that PostgreSQL needs."""
    found = sections(PAGE.read_text())
    roles = found["roles and grants"]
    found["roles and grants"] = "".join(
        line for line in roles.splitlines(keepends=True) if not line.startswith("CREATE ROLE")
    )
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET check_function_bodies = off")
    for title in ("tables", "functions", "views", "triggers", "roles and grants"):
        for statement in statements.split(found.pop(title)):
            await connection.execute(statement)
    assert not found
    yield connection
    await connection.close()


@pytest.mark.parametrize("subject", _CATALOG)
async def test_the_schema_page_makes_the_catalog_that_a_migration_makes(
    made_from_the_page: asyncpg.Connection, db: asyncpg.Connection, subject: str
) -> None:
    migrated = {str(tuple(row)) for row in await db.fetch(_CATALOG[subject])}
    made = {str(tuple(row)) for row in await made_from_the_page.fetch(_CATALOG[subject])}
    assert migrated
    assert sorted(migrated - made) == []
    assert sorted(made - migrated) == []
