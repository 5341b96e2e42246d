"""The words that the schema is written in: its metadata, and columns with what each is for."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    DDL,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Table,
    Text,
    event,
    text,
)

SCHEMA: Final = "howdah"

metadata: Final = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    },
)

Timestamp: Final = DateTime(timezone=True)
NOW: Final = text("now()")


def required(name: str, kind: Any, comment: str, *args: Any, **options: Any) -> Column[Any]:
    return Column(name, kind, *args, nullable=False, comment=comment, **options)


def optional(name: str, kind: Any, comment: str, *args: Any) -> Column[Any]:
    return Column(name, kind, *args, nullable=True, comment=comment)


def vhost_column(**options: Any) -> Column[Any]:
    comment = "Virtual host that it belongs to."
    return required("vhost", Text, comment, cascade("vhost.name"), **options)


def cascade(target: str) -> ForeignKey:
    return ForeignKey(f"{SCHEMA}.{target}", ondelete="CASCADE")


def identity(kind: Any, comment: str) -> Column[Any]:
    return Column("id", kind, Identity(always=True), primary_key=True, comment=comment)


def delayed_index(table_name: str) -> Index:
    """Makes an index of the few rows that have a time before which their message is not
    delivered."""
    where = text("not_before IS NOT NULL")
    return Index(f"{table_name}_delayed_idx", "queue_id", "not_before", postgresql_where=where)


def _ddl(statement: str) -> DDL:
    return DDL(statement)  # type: ignore[no-untyped-call]


def stored_as_is(table: Table) -> None:
    """Bodies are often compressed already, and a compressed one cannot be measured unread."""
    event.listen(
        table,
        "after_create",
        _ddl("ALTER TABLE %(fullname)s ALTER COLUMN body SET STORAGE EXTERNAL"),
    )


def tuned(table: Table, **parameters: float) -> None:
    """Storage parameters: SQLAlchemy writes no WITH for tables."""
    written = ", ".join(f"{name} = {value:g}" for name, value in parameters.items())
    event.listen(table, "after_create", _ddl(f"ALTER TABLE %(fullname)s SET ({written})"))
