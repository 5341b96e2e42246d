"""Migrations: up, down, printed as SQL, and equal to the schema in the code."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.postgres.binaries import find_binaries
from gateway.postgres.server import EmbeddedPostgres
from migrations import repeatable, statements
from queue_core.store.operator import migration
from queue_core.store.operator.migration import MigrationError
from queue_core.store.schema import SCHEMA, VERSION_TABLE, is_leaf, metadata
from tests.support.postgres import chosen_bin_dir, execute, fetch_value

# Everything that a table is, but its leaves and what a statement on it would print anyway.
_CATALOG = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
       a.attstorage, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum),
       obj_description(c.oid, 'pg_class'), c.relkind, c.reloptions, pg_get_partkeydef(c.oid)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p')
  AND NOT c.relispartition AND c.relname <> 'alembic_version'
UNION ALL
SELECT c.relname, x.conname, pg_get_constraintdef(x.oid),
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid
WHERE c.relnamespace = 'howdah'::regnamespace AND NOT c.relispartition
  AND c.relname <> 'alembic_version'
UNION ALL
SELECT tablename, indexname, indexdef,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pg_indexes
WHERE schemaname = 'howdah' AND tablename !~ '_[0-9]+$' AND tablename <> 'alembic_version'
"""
_OBJECTS = """
SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = to_regnamespace('howdah')
UNION ALL SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = to_regnamespace('howdah')
"""

# All that a revision may change, with leaves in use: what functions and views do, and for whom.
_EVERYTHING = f"""
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid),
       ARRAY(SELECT g::text FROM unnest(p.proacl) g ORDER BY 1),
       obj_description(p.oid, 'pg_proc')
FROM pg_proc p WHERE p.pronamespace = to_regnamespace('howdah')
UNION ALL
SELECT c.relname, CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END,
       ARRAY(SELECT g::text FROM unnest(c.relacl) g ORDER BY 1),
       obj_description(c.oid, 'pg_class')
FROM pg_class c WHERE c.relnamespace = to_regnamespace('howdah')
UNION ALL
SELECT c.relname, a.attname, ARRAY(SELECT g::text FROM unnest(a.attacl) g ORDER BY 1),
       col_description(c.oid, a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = to_regnamespace('howdah') AND c.relkind IN ('r', 'p', 'v')
UNION ALL
SELECT t::text, NULL, NULL, NULL FROM ({_CATALOG}) t
"""


async def _fetch(url: str, query: str) -> set[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return {tuple(map(str, row)) for row in await connection.fetch(query)}
    finally:
        await connection.close()


async def _with_sqlalchemy(url: str, action: Callable[[Connection], Any]) -> Any:
    # The user's name may be the schema's, and a default schema compares as none.
    settings = {"search_path": "public"}
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(url, server_settings=settings),
    )
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(action)
    finally:
        await engine.dispose()


async def test_a_migrated_database_is_at_the_version_that_the_code_expects(
    database_url: str,
) -> None:
    assert await migration.current_version(database_url) is None
    assert await migration.upgrade(database_url) == migration.expected_version()
    assert await migration.current_version(database_url) == migration.known_versions()[-1]


async def test_migrating_twice_changes_nothing(migrated_url: str) -> None:
    before = await _fetch(migrated_url, _CATALOG)
    await migration.upgrade(migrated_url)
    assert await _fetch(migrated_url, _CATALOG) == before


async def test_alembic_finds_no_difference_to_the_schema_in_the_code(migrated_url: str) -> None:
    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        if kind == "schema":
            return name == SCHEMA
        return kind != "table" or not is_leaf(name or "")

    def compare(connection: Connection) -> list[Any]:
        options = {
            "include_schemas": True,
            "include_name": is_ours,
            "compare_type": True,
            "compare_server_default": True,
            "version_table_schema": SCHEMA,
            "version_table": VERSION_TABLE,
        }
        context = MigrationContext.configure(connection, opts=options)
        found: list[Any] = compare_metadata(context, metadata)
        return found

    assert await _with_sqlalchemy(migrated_url, compare) == []


async def test_the_catalog_is_the_same_as_if_the_code_had_made_the_tables(
    database_url: str, migrated_url: str
) -> None:
    """Alembic does not look at checks, comments, storage, partition keys and index methods."""

    def create(connection: Connection) -> None:
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
        metadata.create_all(connection)

    await _with_sqlalchemy(database_url, create)
    migrated, created = await _fetch(migrated_url, _CATALOG), await _fetch(database_url, _CATALOG)
    assert sorted(migrated - created) == []
    assert sorted(created - migrated) == []


async def test_down_leaves_nothing_behind_and_up_again_works(database_url: str) -> None:
    await migration.upgrade(database_url)
    connection = await asyncpg.connect(database_url)
    await connection.execute("SELECT howdah.create_segment(), howdah.open_generation(7)")
    await connection.close()
    assert await migration.downgrade(database_url) is None
    assert await _fetch(database_url, _OBJECTS) == set()
    assert fetch_value(database_url, "SELECT to_regnamespace('howdah')") is None
    assert await migration.upgrade(database_url) == migration.expected_version()


async def test_back_to_any_revision_and_up_again_everything_is_as_it_was(
    migrated_url: str,
) -> None:
    before = await _fetch(migrated_url, _EVERYTHING)
    for revision in ("base", *migration.known_versions()[:-1]):
        await migration.downgrade(migrated_url, revision)
        await migration.upgrade(migrated_url)
        found = await _fetch(migrated_url, _EVERYTHING)
        assert sorted(before - found) == [], f"missing after {revision}"
        assert sorted(found - before) == [], f"left over after {revision}"


# ----------------------------------------------------------------------------- repeatable files


async def test_repeatable_files_run_again_change_nothing(migrated_url: str) -> None:
    """With partitions in use."""
    execute(migrated_url, "SELECT howdah.create_segment(), howdah.open_generation(7)")
    before = await _fetch(migrated_url, _EVERYTHING)
    for path in repeatable.PATHS:
        sql = (statements.FOLDER / path).read_text(encoding="utf-8")
        execute(migrated_url, *statements.split(sql))
    found = await _fetch(migrated_url, _EVERYTHING)
    assert sorted(before - found) == []
    assert sorted(found - before) == []


def test_every_repeatable_file_is_run() -> None:
    folder = statements.FOLDER / "repeatable"
    assert sorted(repeatable.FILES) == sorted(path.stem for path in folder.glob("*.sql"))


def test_revisions_hold_no_text_of_a_function_or_view() -> None:
    for path in statements.FOLDER.glob("*.sql"):
        if not path.stem.endswith("down"):
            assert not re.search(r"CREATE .*(FUNCTION|VIEW)", path.read_text()), path.name


# ----------------------------------------------------------------- schemas before the first release


async def test_a_database_at_the_last_unreleased_schema_is_taken_over_with_what_it_holds(
    migrated_url: str,
) -> None:
    """Its tables are those of the first release; functions, views and grants are made anew."""
    before = await _fetch(migrated_url, _EVERYTHING)
    await migration.downgrade(migrated_url, migration.known_versions()[0])
    execute(
        migrated_url,
        f"UPDATE howdah.alembic_version SET version_num = '{migration.LAST_UNRELEASED}'",
        "INSERT INTO howdah.vhost (name) VALUES ('kept')",
        "CREATE OR REPLACE FUNCTION howdah.body_text(body bytea) RETURNS text LANGUAGE sql "
        "IMMUTABLE AS 'SELECT NULL::text'",
        "REVOKE SELECT ON howdah.queue_status FROM howdah_operator",
    )
    assert await migration.upgrade(migrated_url) == migration.expected_version()
    assert fetch_value(migrated_url, "SELECT count(*) FROM howdah.vhost WHERE name = 'kept'") == 1
    found = await _fetch(migrated_url, _EVERYTHING)
    assert sorted(before - found) == []
    granted = "has_table_privilege('howdah_operator', 'howdah.queue_status', 'SELECT')"
    assert fetch_value(migrated_url, f"SELECT {granted}") is True


async def test_a_database_at_an_older_unreleased_schema_is_refused_and_left_as_it_is(
    migrated_url: str,
) -> None:
    execute(migrated_url, "UPDATE howdah.alembic_version SET version_num = '0009'")
    with pytest.raises(MigrationError, match="made before the first release, and no step leads"):
        await migration.upgrade(migrated_url)
    assert await migration.current_version(migrated_url) == "0009"


async def test_down_stops_at_a_view_of_somebody_else_and_names_it(migrated_url: str) -> None:
    execute(migrated_url, "CREATE VIEW public.report AS SELECT name FROM howdah.queue")
    with pytest.raises(MigrationError, match=r"view report depends on table"):
        await migration.downgrade(migrated_url)
    assert await migration.current_version(migrated_url) == migration.expected_version()


async def test_an_unknown_revision_is_refused_with_those_that_are_known(database_url: str) -> None:
    with pytest.raises(MigrationError, match="known revisions are 0001"):
        await migration.downgrade(database_url, "7777")
    assert fetch_value(database_url, "SELECT to_regnamespace('howdah')") is None


async def test_two_migrations_at_once_wait_for_each_other(database_url: str) -> None:
    script = "import asyncio, sys; from queue_core.store.operator.migration import upgrade; "
    script += "print(asyncio.run(upgrade(sys.argv[1])))"
    both = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, database_url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in both:
        output, errors = await process.communicate()
        assert output.decode().strip() == migration.expected_version(), errors.decode()


async def test_a_second_migration_in_the_same_process_is_refused(database_url: str) -> None:
    first, second = await asyncio.gather(
        *(migration.upgrade(database_url) for _ in range(2)), return_exceptions=True
    )
    assert first == migration.expected_version()
    assert isinstance(second, MigrationError)


# -------------------------------------------------------------------------------- printed SQL


def _psql(server: EmbeddedPostgres, url: str, script: str) -> None:
    beside = find_binaries(server.data_dir / "postgres", chosen_bin_dir()).bin_dir / "psql"
    psql = str(beside) if beside.exists() else shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    parts = urlsplit(url)
    environment = {**os.environ, "PGPASSWORD": parts.password or ""}
    done = subprocess.run(
        [
            psql,
            *("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-"),
            f"--host={parts.hostname}",
            f"--port={parts.port}",
            f"--username={parts.username}",
            parts.path.lstrip("/"),
        ],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def test_psql_runs_the_printed_sql_as_it_is_and_the_result_is_the_same(
    postgres_server: EmbeddedPostgres, database_url: str, migrated_url: str
) -> None:
    _psql(postgres_server, database_url, migration.upgrade_sql())
    assert await migration.current_version(database_url) == migration.expected_version()
    assert await _fetch(database_url, _CATALOG) == await _fetch(migrated_url, _CATALOG)
    assert await _fetch(database_url, _OBJECTS) == await _fetch(migrated_url, _OBJECTS)


async def test_psql_runs_the_printed_way_back_as_well(
    postgres_server: EmbeddedPostgres, migrated_url: str
) -> None:
    _psql(postgres_server, migrated_url, migration.downgrade_sql())
    assert await migration.current_version(migrated_url) is None
    assert await _fetch(migrated_url, _OBJECTS) == set()


def test_the_printed_sql_is_one_transaction() -> None:
    lines = [line for line in migration.upgrade_sql().splitlines() if line.strip()]
    assert lines[0] == "BEGIN;"
    assert lines[-1] == "COMMIT;"
    assert sum(line in ("BEGIN;", "COMMIT;") for line in lines) == 2


# ------------------------------------------------------------------------- cutting SQL scripts


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("a; b;", ["a", "b"], id="two"),
        pytest.param("select ';';", ["select ';'"], id="in a string"),
        pytest.param("select 'it''s;';", ["select 'it''s;'"], id="after a doubled quote"),
        pytest.param('select ";";', ['select ";"'], id="in a name"),
        pytest.param("-- a; b\nc;", ["-- a; b\nc"], id="in a comment"),
        pytest.param("-- it's\nc; d;", ["-- it's\nc", "d"], id="quote in a comment"),
        pytest.param("/* a; */ c;", ["/* a; */ c"], id="in a long comment"),
        pytest.param("do $$ a; b; $$;", ["do $$ a; b; $$"], id="in a body"),
        pytest.param("do $f$ a $q$ ; $q$; $f$; b;", ["do $f$ a $q$ ; $q$; $f$", "b"], id="nested"),
        pytest.param("a;\n-- the end\n", ["a"], id="comment at the end"),
    ],
)
def test_a_script_is_cut_at_the_semicolons_that_end_statements(
    script: str, expected: list[str]
) -> None:
    assert list(statements.split(script)) == expected


def test_a_script_whose_last_statement_has_no_semicolon_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks its semicolon: b"):
        list(statements.split("a; b"))


# ----------------------------------------------------------------------- who may migrate, where


@pytest.fixture
def plain_owner(postgres_server: EmbeddedPostgres, database_url: str) -> Iterator[str]:
    """The URL of a user who owns the database, and may create no roles."""
    name = f"owner_{os.getpid()}"
    database = urlsplit(database_url).path.lstrip("/")
    execute(
        postgres_server.url,
        f"CREATE ROLE {name} LOGIN PASSWORD 'secret' NOSUPERUSER NOCREATEROLE",
        f"ALTER DATABASE {database} OWNER TO {name}",
    )
    parts = urlsplit(database_url)
    yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    execute(database_url, f"DROP OWNED BY {name} CASCADE")
    execute(
        postgres_server.url, f"ALTER DATABASE {database} OWNER TO CURRENT_USER", f"DROP ROLE {name}"
    )


async def test_an_owner_of_the_database_who_may_not_create_roles_migrates_once_they_are_there(
    migrated_template: str, plain_owner: str
) -> None:
    """The migrated template is only asked for because it made the roles."""
    assert await migration.upgrade(plain_owner) == migration.expected_version()


async def test_without_the_roles_and_the_right_to_make_them_the_error_tells_the_dba_what_to_run(
    postgres_server: EmbeddedPostgres, plain_owner: str
) -> None:
    renamed = "ALTER ROLE howdah_reader RENAME TO howdah_reader_away"
    execute(
        postgres_server.url,
        "DO $$ BEGIN IF to_regrole('howdah_reader') IS NOT NULL THEN "
        + renamed
        + "; END IF; END $$",
    )
    try:
        with pytest.raises(MigrationError) as caught:
            await migration.upgrade(plain_owner)
        assert "may not create roles, and these are missing:" in str(caught.value)
        assert "CREATE ROLE howdah_reader NOLOGIN" in str(caught.value)
        assert await migration.current_version(plain_owner) is None
    finally:
        execute(
            postgres_server.url,
            "DO $$ BEGIN IF to_regrole('howdah_reader_away') IS NOT NULL THEN "
            "ALTER ROLE howdah_reader_away RENAME TO howdah_reader; END IF; END $$",
        )


async def test_a_schema_that_the_dba_made_for_a_user_without_create_is_used(
    postgres_server: EmbeddedPostgres, migrated_template: str, plain_owner: str, database_url: str
) -> None:
    user = urlsplit(plain_owner).username
    database = urlsplit(database_url).path.lstrip("/")
    execute(
        database_url,
        f"ALTER DATABASE {database} OWNER TO CURRENT_USER",
        f"REVOKE CREATE ON DATABASE {database} FROM PUBLIC",
        f"CREATE SCHEMA howdah AUTHORIZATION {user}",
    )
    assert await migration.upgrade(plain_owner) == migration.expected_version()


async def test_a_server_that_is_too_old_is_named_with_the_way_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "OLDEST_SERVER", 99)
    with pytest.raises(MigrationError, match="Howdah needs 99 or later; upgrade"):
        await migration.upgrade(database_url)
