"""Writes docs/schema.sql, the schema in one place for a DBA, from a migrated database.

Tables, functions and grants are what PostgreSQL's catalog says. The text of a view is taken from
the file that made it: PostgreSQL keeps no text of a view, and versions print it differently.
Partitions are left out, for a gateway makes and drops them while it runs.

Run by `make docs`; a test fails when the page is older than the schema.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import asyncpg

from gateway.postgres.server import EmbeddedPostgres
from migrations import repeatable, statements
from queue_core.store.operator import migration

PAGE: Final = Path(__file__).parents[1] / "docs" / "schema.sql"
WIDTH: Final = 120
_RULE: Final = 100

_INTRODUCTION: Final = """\
-- The schema of a new database, for reading: tables, views, functions, triggers, roles and grants.
-- Written by `make docs` from a migrated database; the sources are in migrations/sql. To install
-- it, run `howdah migrate`, or `howdah migrate --sql` for a script (docs/dba.md tells how): this
-- page is in the order of reading, and psql stops at views whose functions come after them.
--
-- A table that is partitioned has its partitions made while the gateway runs: segments of message
-- and message_body, generations of the journal tables. They are not here. Comments stand in the
-- catalog as well: \\d+ in psql shows them.
"""

_TABLES: Final = """
SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name,
       obj_description(c.oid, 'pg_class') AS comment, pg_get_partkeydef(c.oid) AS partition_key,
       array_to_string(c.reloptions, ', ') AS options
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'howdah' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
ORDER BY c.oid
"""
_COLUMNS: Final = """
SELECT quote_ident(a.attname) AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
       a.attidentity::text AS identity, pg_get_expr(d.adbin, d.adrelid) AS value,
       CASE WHEN a.attstorage <> t.typstorage THEN
           CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN'
           ELSE 'EXTENDED' END
       END AS storage, col_description(a.attrelid, a.attnum) AS comment
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# PostgreSQL 18 has NOT NULL among the constraints; it stands beside the column everywhere.
_CONSTRAINTS: Final = """
SELECT format('CONSTRAINT %I %s', x.conname, pg_get_constraintdef(x.oid)) AS text
FROM pg_constraint x WHERE x.conrelid = $1 AND x.contype IN ('p', 'u', 'c', 'f', 'x')
ORDER BY array_position(ARRAY['p', 'u', 'x', 'c', 'f'], x.contype::text), x.conname
"""
_INDEXES: Final = """
SELECT replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') AS text
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1 AND NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conindid = i.indexrelid)
ORDER BY c.relname
"""
_VIEWS: Final = """
SELECT c.oid, c.relname AS name, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind = 'v' ORDER BY c.oid
"""
_FUNCTIONS: Final = """
SELECT p.oid, format('%I.%I', n.nspname, p.proname) AS name, pg_get_functiondef(p.oid) AS text,
       pg_get_function_result(p.oid) AS result, obj_description(p.oid, 'pg_proc') AS comment
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'howdah' AND p.prokind = 'f' ORDER BY p.oid
"""
_ARGUMENTS: Final = """
SELECT a.mode, concat_ws(' ', CASE a.mode WHEN 'v' THEN 'VARIADIC' WHEN 'o' THEN 'OUT' END,
       quote_ident(nullif(a.name, '')), format_type(a.type, NULL)) AS text,
       format_type(a.type, NULL) AS type, pg_get_function_arg_default(p.oid, a.place::int) AS value
FROM pg_proc p CROSS JOIN LATERAL ROWS FROM (
    unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])),
    unnest(coalesce(p.proargmodes::text[], array_fill('i'::text, ARRAY[p.pronargs]))),
    unnest(p.proargnames)
) WITH ORDINALITY AS a(type, mode, name, place)
WHERE p.oid = $1 ORDER BY a.place
"""
_TRIGGERS: Final = """
SELECT pg_get_triggerdef(t.oid) AS text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'howdah'::regnamespace AND NOT t.tgisinternal AND NOT c.relispartition
ORDER BY c.oid, t.tgname
"""
# Each right of anyone but the owner. A list of rights that is null is PostgreSQL's default.
_GRANTS: Final = """
SELECT coalesce(r.rolname, 'PUBLIC') AS role, o.kind, o.name,
       a.privilege_type || coalesce(o.columns, '') AS privilege
FROM (
    SELECT 1, 'SCHEMA ', quote_ident(nspname), oid::bigint, NULL, nspowner, nspacl
    FROM pg_namespace WHERE nspname = 'howdah'
    UNION ALL
    SELECT 2, '', format('howdah.%I', relname), oid::bigint, NULL, relowner, relacl
    FROM pg_class WHERE relnamespace = 'howdah'::regnamespace AND NOT relispartition
    UNION ALL
    SELECT 2, '', format('howdah.%I', c.relname), c.oid::bigint, format(' (%I)', a.attname),
           c.relowner, a.attacl
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'howdah'::regnamespace AND NOT c.relispartition AND a.attacl IS NOT NULL
    UNION ALL
    SELECT 3, 'FUNCTION ', format('howdah.%I(%s)', proname, oidvectortypes(proargtypes)),
           oid::bigint, NULL, proowner, coalesce(proacl, acldefault('f', proowner))
    FROM pg_proc WHERE pronamespace = 'howdah'::regnamespace
) o(class, kind, name, place, columns, owner, rights)
CROSS JOIN LATERAL aclexplode(o.rights) a
LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE a.grantee <> o.owner
ORDER BY r.rolname NULLS FIRST, o.class, o.place,
         array_position(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'], a.privilege_type),
         (a.privilege_type || coalesce(o.columns, '')) COLLATE "C"
"""


async def render(url: str) -> str:
    """Renders the page from a database that was migrated, and never served by a gateway."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "pg_catalog"})
    try:
        parts = [
            _INTRODUCTION,
            _heading("tables"),
            await _schema(connection),
            *[await _table(connection, row) for row in await connection.fetch(_TABLES)],
            _heading("views"),
            *[await _view(connection, row) for row in await connection.fetch(_VIEWS)],
            _heading("functions"),
            *[await _function(connection, row) for row in await connection.fetch(_FUNCTIONS)],
            _heading("triggers"),
            "".join(_statement(row["text"]) for row in await connection.fetch(_TRIGGERS)),
            _heading("roles and grants"),
            _rights(await connection.fetch(_GRANTS)),
        ]
    finally:
        await connection.close()
    return "\n".join(parts)


def sections(page: str) -> dict[str, str]:
    """Cuts a page at its headings: the statements of tables, views and so on, by heading."""
    _, *rest = re.split(r"^-- -+ ([a-z ]+)$", page, flags=re.MULTILINE)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def _heading(title: str) -> str:
    return f"-- {'-' * (_RULE - len(title))} {title}\n"


def _comment(text: str | None) -> str:
    return "".join(f"-- {line}\n" for line in _wrapped(text or "", _RULE))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _type(name: str) -> str:
    return name.replace("timestamp with time zone", "timestamptz")


def _statement(text: str) -> str:
    """Ends a statement, and breaks one line that is too long where a clause begins."""
    if len(text) >= WIDTH:
        text = re.sub(r" (FOR EACH|WHERE|USING) ", r"\n    \1 ", text)
    return f"{text};\n"


# ---------------------------------------------------------------------------------------- tables


async def _schema(connection: asyncpg.Connection) -> str:
    comment = await connection.fetchval(
        "SELECT obj_description('howdah'::regnamespace, 'pg_namespace')"
    )
    return _comment(comment) + "CREATE SCHEMA howdah;\n"


async def _table(connection: asyncpg.Connection, table: asyncpg.Record) -> str:
    columns = await connection.fetch(_COLUMNS, table["oid"])
    constraints = await connection.fetch(_CONSTRAINTS, table["oid"])
    end = ")"
    if table["partition_key"]:
        end += f" PARTITION BY {table['partition_key']}"
    if table["options"]:
        end += f" WITH ({table['options']})"
    text = _comment(table["comment"]) + f"CREATE TABLE {table['name']} (\n"
    text += "".join(_column_lines(columns, is_last=not constraints))
    text += ",\n".join(f"    {row['text']}" for row in constraints)
    text += f"\n{end};\n" if constraints else f"{end};\n"
    for row in await connection.fetch(_INDEXES, table["oid"]):
        text += _statement(row["text"])
    for column in columns:
        if column["storage"]:
            text += f"ALTER TABLE {table['name']} ALTER COLUMN {column['name']} "
            text += f"SET STORAGE {column['storage']};\n"
    return text


def _column_lines(columns: list[asyncpg.Record], *, is_last: bool) -> Iterator[str]:
    """Writes the columns of a table below each other: name, type and what else holds, comment."""
    names = max(len(column["name"]) for column in columns)
    definitions = [f"{column['name']:{names}} {_definition(column)}," for column in columns]
    if is_last:
        definitions[-1] = definitions[-1].removesuffix(",")
    width = max(map(len, definitions))
    for column, definition in zip(columns, definitions, strict=True):
        begin = f"    {definition:{width}}  -- "
        lines = _wrapped(column["comment"] or "", WIDTH - len(begin)) or [""]
        yield f"{begin}{lines[0]}".rstrip(" -") + "\n"
        for line in lines[1:]:
            yield f"{'-- ':>{len(begin)}}{line}\n"


def _definition(column: asyncpg.Record) -> str:
    kinds = {"a": " GENERATED ALWAYS AS IDENTITY", "d": " GENERATED BY DEFAULT AS IDENTITY"}
    text = _type(column["type"]) + kinds.get(column["identity"], "")
    if column["value"]:
        text += f" DEFAULT {_plain(column['value'], column['type'])}"
    return text + (" NOT NULL" if column["attnotnull"] and not column["identity"] else "")


def _plain(value: str, kind: str) -> str:
    """Leaves out the type of a default where it repeats the type of its column."""
    return _type(value.removesuffix(f"::{kind}"))


# ----------------------------------------------------------------------------- views and functions


async def _view(connection: asyncpg.Connection, view: asyncpg.Record) -> str:
    columns = await connection.fetch(_COLUMNS, view["oid"])
    names = max(len(column["name"]) for column in columns)
    types = max(len(_type(column["type"])) for column in columns)
    text = _comment(view["comment"]) + "--\n"
    for column in columns:
        begin = f"--   {column['name']:{names}}  {_type(column['type']):{types}}  "
        lines = _wrapped(column["comment"] or "", WIDTH - len(begin)) or [""]
        text += f"{begin}{lines[0]}".rstrip() + "\n"
        text += "".join(f"{'--':{len(begin)}}{line}\n" for line in lines[1:])
    return text + _view_text(view["name"]) + ";\n"


def _view_text(name: str) -> str:
    """Finds the statement that made a view in the files that a migration runs."""
    begin = f"CREATE OR REPLACE VIEW howdah.{name} "
    for path in repeatable.PATHS:
        sql = (statements.FOLDER / path).read_text(encoding="utf-8")
        for statement in statements.split(sql):
            if begin in statement:
                return statement[statement.index(begin) :].replace(" OR REPLACE", "", 1).strip()
    raise LookupError(f"no file in migrations/sql/repeatable makes the view {name}")


async def _function(connection: asyncpg.Connection, function: asyncpg.Record) -> str:
    arguments = await connection.fetch(_ARGUMENTS, function["oid"])
    given = [_argument(row) for row in arguments if row["mode"] != "t"]
    returned = [_type(row["text"]) for row in arguments if row["mode"] == "t"]
    begin = _listed(f"CREATE FUNCTION {function['name']}(", given, ")")
    result = f" RETURNS {_type(function['result'])}"
    if returned:
        result = _listed(" RETURNS TABLE (", returned, ")")
    # After the line of the name and that of the result: language, volatility, settings, body.
    rest = function["text"].split("\n", 2)[2]
    head, mark, body = rest.partition("AS $function$")
    head = "".join(f"{line.strip()}\n" for line in head.splitlines())
    return f"{_comment(function['comment'])}{begin}{result}\n{head}{mark}{body.rstrip()};\n"


def _argument(row: asyncpg.Record) -> str:
    if row["value"] is None:
        return _type(row["text"])
    return f"{_type(row['text'])} DEFAULT {_plain(row['value'], row['type'])}"


def _listed(begin: str, items: list[str], end: str) -> str:
    """Writes a list in one line if it fits, else one item a line."""
    line = f"{begin}{', '.join(items)}{end}"
    if len(line) <= _RULE:
        return line
    return begin + "\n    " + ",\n    ".join(items) + f"\n{end}"


# ------------------------------------------------------------------------------------------ rights


def _rights(rows: list[asyncpg.Record]) -> str:
    """Writes the roles, and for each what it may do; objects with the same rights stand together.

    A new function is open to everyone by PostgreSQL's default, so that is taken back first."""
    roles = sorted({row["role"] for row in rows} - {"PUBLIC"})
    text = "".join(f"CREATE ROLE {role} NOLOGIN;\n" for role in roles)
    text += "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA howdah FROM PUBLIC;\n"
    for role in ("PUBLIC", *roles):
        text += "\n" + "".join(_grants(role, [row for row in rows if row["role"] == role]))
    return text


def _grants(role: str, rows: list[asyncpg.Record]) -> Iterator[str]:
    privileges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        privileges[row["kind"], row["name"]].append(row["privilege"])
    objects: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (kind, name), granted in privileges.items():
        objects[kind, _joined(granted)].append(name)
    for (kind, listed), names in objects.items():
        begin = f"GRANT {listed} ON {kind}"
        line = f"{begin}{', '.join(names)} TO {role};"
        if len(line) > _RULE:
            line = f"{begin.rstrip()}\n    " + ",\n    ".join(names) + f"\n    TO {role};"
        yield f"{_type(line)}\n"


def _joined(granted: list[str]) -> str:
    """Joins privileges, with the columns of a privilege on some columns only behind it."""
    columns: dict[str, list[str]] = {}
    for privilege in granted:
        name, _, column = privilege.partition(" (")
        columns.setdefault(name, []).extend([column.removesuffix(")")] if column else [])
    return ", ".join(
        f"{name} ({', '.join(found)})" if found else name for name, found in columns.items()
    )


def _render_new_database() -> str:
    """Renders the page from a database of its own, on a server that ends with it."""
    with tempfile.TemporaryDirectory(prefix="howdah-schema-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "data") as server:
            asyncio.run(migration.upgrade(server.url))
            return asyncio.run(render(server.url))


if __name__ == "__main__":
    PAGE.write_text(_render_new_database(), encoding="utf-8")
    print(f"wrote {PAGE}")
