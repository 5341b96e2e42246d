"""Runs the revisions, and then the repeatable files, over the connection that Alembic is given.

queue_core.store.operator.migration gives it; offline, SQL is printed instead. Everything of one run
is one transaction, and an advisory lock keeps a second migration of the same database waiting.
"""

from __future__ import annotations

from typing import Any, Final

from alembic import context
from sqlalchemy.engine import Connection

from migrations import repeatable, statements
from queue_core.store.operator.migration import LAST_UNRELEASED
from queue_core.store.schema import SCHEMA, VERSION_TABLE

LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('howdah.migrate'))"

# A DBA may have made the schema already, for a user who may not make any.
CREATE_SCHEMA: Final = f"""\
DO $block$
BEGIN
    IF to_regnamespace('{SCHEMA}') IS NULL THEN
        CREATE SCHEMA {SCHEMA};
    END IF;
    IF obj_description(to_regnamespace('{SCHEMA}'), 'pg_namespace') IS NULL
       AND pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}'), 'USAGE') THEN
        COMMENT ON SCHEMA {SCHEMA} IS 'Howdah: queues of the MQTT and AMQP gateway.';
    END IF;
END
$block$"""

DROP_EMPTY_SCHEMA: Final = f"""\
DO $block$
BEGIN
    IF NOT EXISTS (SELECT FROM {SCHEMA}.{VERSION_TABLE}) THEN
        DROP TABLE {SCHEMA}.{VERSION_TABLE};
        IF pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}'), 'USAGE') THEN
            DROP SCHEMA {SCHEMA};
        END IF;
    END IF;
END
$block$"""

# The last schema that had a step for each change, before the first release, has the first release's
# tables: it takes over that one's name, and gets its functions, views and grants below.
ADOPT_UNRELEASED: Final = f"""\
DO $block$
BEGIN
    IF to_regclass('{SCHEMA}.{VERSION_TABLE}') IS NOT NULL THEN
        UPDATE {SCHEMA}.{VERSION_TABLE}
        SET version_num = '0001_initial' WHERE version_num = '{LAST_UNRELEASED}';
    END IF;
END
$block$"""

OPTIONS: Final[dict[str, Any]] = {
    "version_table_schema": SCHEMA,
    "version_table": VERSION_TABLE,
    "transactional_ddl": True,
}


def _print() -> None:
    context.configure(dialect_name="postgresql", literal_binds=True, **OPTIONS)
    output = context.get_context().impl.static_output
    target = context.get_revision_argument()
    with context.begin_transaction():
        output(f"{LOCK};\n\n{CREATE_SCHEMA};\n")
        context.run_migrations()
        if target == _newest() != context.get_starting_revision_argument():
            _run_repeatable()
        if target in (None, "base"):
            output(f"{DROP_EMPTY_SCHEMA};\n")


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, **OPTIONS)
    with context.begin_transaction():
        connection.exec_driver_sql(LOCK)
        connection.exec_driver_sql(CREATE_SCHEMA)
        before = context.get_context().get_current_revision()
        connection.exec_driver_sql(ADOPT_UNRELEASED)
        context.run_migrations()
        if before != context.get_context().get_current_revision() == _newest():
            _run_repeatable()
        connection.exec_driver_sql(DROP_EMPTY_SCHEMA)


def _newest() -> str | None:
    return context.script.get_current_head()


def _run_repeatable() -> None:
    """Functions, views and grants fit the tables of the newest revision, and no others."""
    for path in repeatable.PATHS:
        statements.run(path)


if context.is_offline_mode():
    _print()
elif (connection := context.config.attributes.get("connection")) is not None:
    _migrate(connection)
else:
    raise RuntimeError("no connection was given; run migrations with `howdah migrate`")
