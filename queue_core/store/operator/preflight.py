"""Looks at a database before the gateway uses it, and says what is wrong and how to mend it.

Asks about the server, the schema's version and the rights of the user it is connected as. Changes
nothing, and decides nothing: whoever starts the gateway does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import asyncpg

from queue_core.store.operator.migration import (
    OLDEST_SERVER,
    expected_version,
    leads_to_newest,
    version_of,
    way_out_of,
)
from queue_core.store.operator.row_security import Policies, listed, read_policies
from queue_core.store.schema import SCHEMA, VERSION_TABLE

GATEWAY_ROLE: Final = "howdah_gateway"
MIGRATE: Final = "run howdah migrate"  # the way out of a schema that is behind

_ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_APPEND: Final = "SELECT, INSERT"

# What the gateway does to each table; the role howdah_gateway is granted exactly this.
TABLE_RIGHTS: Final[dict[str, str]] = {
    VERSION_TABLE: "SELECT",
    "gateway": "SELECT, UPDATE",
    "shard": "SELECT, UPDATE",
    "journal_generation": "SELECT",
    "vhost": _ALL,
    "user": _ALL,
    "permission": _ALL,
    "topic_permission": _ALL,
    "policy": _ALL,
    "parameter": _ALL,
    "global_parameter": _ALL,
    "secret": "SELECT",
    "exchange": _ALL,
    "queue": _ALL,
    "binding": _ALL,
    "session": _ALL,
    "subscription": _ALL,
    "will": _ALL,
    "retained": _ALL,
    "queue_activity": _ALL,
    "consumer": f"{_ALL}, TRUNCATE",
    "loss": _APPEND,
    "log_end": _ALL,
    "ownership": "SELECT, INSERT, DELETE",
    "definitions_import": "SELECT, INSERT, DELETE",
    "node": _ALL,
    "commit_mark": _APPEND,
    "segment": "SELECT",
    "archive_mark": "SELECT",
    "message": _APPEND,
    "message_body": _APPEND,
    "settlement": _APPEND,
    "redelivery": _APPEND,
    "deduplication": _APPEND,
    "packet": _APPEND,
    "outbox": "SELECT, DELETE",
    "command": "SELECT, DELETE",
    "consumer_lag": "SELECT",
    "session_status": "SELECT",
    "session_subscriptions": "SELECT",
    "retained_messages": "SELECT",
    "etl_status": "SELECT",
    "segment_status": "SELECT",
}
COLUMN_RIGHTS: Final[dict[tuple[str, str], str]] = {
    ("outbox", "waiting_for"): "UPDATE",
    ("command", "done_at"): "UPDATE",
    ("command", "result"): "UPDATE",
    ("command", "error"): "UPDATE",
}
FUNCTIONS: Final = (
    "create_segment(bigint, integer)",
    "seal_segment(integer, bigint, bigint, timestamptz)",
    "retire_segment(integer)",
    "lock_segment(integer, integer)",
    "release_segment(integer, integer)",
    "adopt_segments(integer)",
    "open_generation(integer)",
    "drop_generation(integer)",
    "unused_generations()",
    "hold(integer, timestamptz, integer, bigint, bigint)",
    "torn_tables()",
    "browse(text, bigint, integer, boolean, boolean, text)",
    "offset_at(text, timestamptz, text)",
    "dead_letter_causes(text, bigint, integer, text)",
    "message_life(text, bigint, text)",
)

# Several rights in one question mean any of them, so each is asked for on its own.
_MISSING_ON_TABLES: Final = f"""
SELECT w.name, w.privilege FROM unnest($1::text[], $2::text[]) AS w(name, privilege)
WHERE NOT has_table_privilege(format('{SCHEMA}.%I', w.name), w.privilege)
"""
_MISSING_ON_COLUMNS: Final = f"""
SELECT format('%s.%s', w.name, w.attribute), w.privilege
FROM unnest($1::text[], $2::text[], $3::text[]) AS w(name, attribute, privilege)
WHERE NOT has_column_privilege(format('{SCHEMA}.%I', w.name), w.attribute, w.privilege)
"""
_MISSING_ON_FUNCTIONS: Final = f"""
SELECT w.name, 'EXECUTE' FROM unnest($1::text[]) AS w(name)
WHERE NOT has_function_privilege(format('{SCHEMA}.%s', w.name), 'EXECUTE')
"""
_GONE: Final = f"""
SELECT w.name FROM unnest($1::text[]) AS w(name)
WHERE to_regclass(format('{SCHEMA}.%I', w.name)) IS NULL ORDER BY w.name
"""
# A session's own SET does not count: the management API's sessions make themselves read-only.
_SERVER: Final = """
SELECT current_user AS login, current_database() AS database, pg_is_in_recovery() AS is_standby,
       current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('synchronous_commit') AS synchronous_commit,
       (SELECT reset_val FROM pg_settings
        WHERE name = 'default_transaction_read_only') AS read_only
"""
# Everybody may read the catalog, whatever the schema lets them see.
_SCHEMA: Final = """
SELECT has_schema_privilege(n.oid, 'USAGE') AS may_look, EXISTS (
    SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = $2) AS is_migrated
FROM pg_namespace n WHERE n.nspname = $1
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps the gateway from using a database."""

    cause: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.cause}; {self.way_out}"


async def check(connection: asyncpg.Connection) -> list[Problem]:
    """Lists everything that is wrong, worst first; nothing where the gateway may start."""
    server = await connection.fetchrow(_SERVER)
    assert server is not None  # a SELECT without FROM has one row
    problems = _server_problems(server)
    if problems:
        return problems
    schema = await connection.fetchrow(_SCHEMA, SCHEMA, VERSION_TABLE)
    if schema is None:
        return [Problem(f"database {server['database']} has no schema {SCHEMA}", MIGRATE)]
    if not schema["is_migrated"]:  # a DBA made it, for somebody who may not
        return [Problem(f"the schema {SCHEMA} in {server['database']} is not migrated", MIGRATE)]
    if not schema["may_look"]:
        return [_no_rights(server["login"], f"may not use the schema {SCHEMA}")]
    missing = await _missing_rights(connection, {VERSION_TABLE: "SELECT"})
    if missing:
        return [_no_rights(server["login"], f"lacks {', '.join(missing)}")]
    problems = _version_problems(server["database"], await version_of(connection))
    if problems:
        return problems
    gone = [row["name"] for row in await connection.fetch(_GONE, list(TABLE_RIGHTS))]
    if gone:
        return [_lost_tables(server["database"], gone)]
    missing = await _missing_rights(connection, TABLE_RIGHTS)
    missing += await _missing_on_columns_and_functions(connection)
    if missing:
        return [_no_rights(server["login"], f"lacks {', '.join(missing)}")]
    return _policy_problems(server["login"], await read_policies(connection))


def _lost_tables(database: str, names: list[str]) -> Problem:
    listed_names = ", ".join(f"{SCHEMA}.{name}" for name in names)
    return Problem(
        f"database {database} has lost {listed_names}, though its schema is at version "
        f"{expected_version()}: somebody dropped or renamed it",
        "rename it back, or restore it from a backup; howdah migrate does not make it again",
    )


def _policy_problems(login: str, policies: Policies) -> list[Problem]:
    problems = []
    if policies.hit_owner:
        problems.append(
            Problem(
                f"row-level security is forced on {listed(policies.hit_owner)}: it hits the owner, "
                "by whose rights SQL publishes and the views read",
                "; ".join(
                    f"ALTER TABLE {t} NO FORCE ROW LEVEL SECURITY" for t in policies.hit_owner
                ),
            )
        )
    if policies.hit_login:
        problems.append(
            Problem(
                f"row-level security on {listed(policies.hit_login)} hits the user {login}: rows "
                "would be hidden from the gateway, and COPY refuses to write",
                f'run ALTER ROLE "{login}" BYPASSRLS, or ALTER TABLE ... DISABLE ROW LEVEL '
                "SECURITY; for rights on single queues see docs/dba.md",
            )
        )
    return problems


def _server_problems(server: asyncpg.Record) -> list[Problem]:
    version = server["version"] // 10_000
    if version < OLDEST_SERVER:
        return [
            Problem(
                f"the server is PostgreSQL {version}, and Howdah needs {OLDEST_SERVER} or later",
                "upgrade the server, or leave database.url out to run the embedded one",
            )
        ]
    problems = []
    if server["encoding"] != "UTF8":
        problems.append(
            Problem(
                f"database {server['database']} is encoded in {server['encoding']}",
                "make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
            )
        )
    if server["is_standby"]:
        problems.append(
            Problem(
                "the server is a standby and takes no writes",
                "point database.url at the primary, for example with target_session_attrs",
            )
        )
    elif server["read_only"] == "on":
        problems.append(
            Problem(
                "transactions are read-only by default",
                f'run ALTER ROLE "{server["login"]}" SET default_transaction_read_only = off',
            )
        )
    if server["synchronous_commit"] == "off":
        problems.append(
            Problem(
                "synchronous_commit is off, so that a crash of the server would lose messages that "
                "were confirmed",
                f'run ALTER ROLE "{server["login"]}" SET synchronous_commit = on',
            )
        )
    return problems


def _version_problems(database: str, version: str | None) -> list[Problem]:
    if version == expected_version():
        return []
    if version is None:
        return [Problem(f"database {database} has no schema {SCHEMA}", MIGRATE)]
    at = f"the schema in database {database} is at version {version}"
    if leads_to_newest(version):
        return [Problem(f"{at}, and {expected_version()} is needed", MIGRATE)]
    return [Problem(f"{at}, which this release does not know", way_out_of(version))]


def _no_rights(login: str, what: str) -> Problem:
    return Problem(f"the user {login} {what}", f'run GRANT {GATEWAY_ROLE} TO "{login}"')


async def _missing_rights(connection: asyncpg.Connection, rights: dict[str, str]) -> list[str]:
    wanted = [(name, one) for name, several in rights.items() for one in several.split(", ")]
    rows = await connection.fetch(
        _MISSING_ON_TABLES, [name for name, _ in wanted], [right for _, right in wanted]
    )
    return _listed(rows)


async def _missing_on_columns_and_functions(connection: asyncpg.Connection) -> list[str]:
    on_columns = await connection.fetch(
        _MISSING_ON_COLUMNS,
        [table for table, _ in COLUMN_RIGHTS],
        [column for _, column in COLUMN_RIGHTS],
        list(COLUMN_RIGHTS.values()),
    )
    on_functions = await connection.fetch(_MISSING_ON_FUNCTIONS, list(FUNCTIONS))
    return _listed(on_columns) + _listed(on_functions)


def _listed(rows: list[asyncpg.Record]) -> list[str]:
    return [f"{privilege} on {SCHEMA}.{name}" for name, privilege in rows]
