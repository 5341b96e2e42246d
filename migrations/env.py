"""Alembic reaches the database over the connection that queue_core.store.operator.migration gives.

Offline it prints SQL instead. Everything of one run is one transaction, and an advisory lock keeps
a second migration of the same database waiting.
"""

from __future__ import annotations

from typing import Any, Final

from alembic import context
from sqlalchemy.engine import Connection

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

OPTIONS: Final[dict[str, Any]] = {
    "version_table_schema": SCHEMA,
    "version_table": VERSION_TABLE,
    "transactional_ddl": True,
}


def _print() -> None:
    context.configure(dialect_name="postgresql", literal_binds=True, **OPTIONS)
    output = context.get_context().impl.static_output
    with context.begin_transaction():
        output(f"{LOCK};\n\n{CREATE_SCHEMA};\n")
        context.run_migrations()
        if context.get_revision_argument() in (None, "base"):
            output(f"{DROP_EMPTY_SCHEMA};\n")


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, **OPTIONS)
    with context.begin_transaction():
        connection.exec_driver_sql(LOCK)
        connection.exec_driver_sql(CREATE_SCHEMA)
        context.run_migrations()
        connection.exec_driver_sql(DROP_EMPTY_SCHEMA)


if context.is_offline_mode():
    _print()
elif (connection := context.config.attributes.get("connection")) is not None:
    _migrate(connection)
else:
    raise RuntimeError("no connection was given; run migrations with `howdah migrate`")
