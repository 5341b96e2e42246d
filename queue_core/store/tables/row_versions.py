"""Versions of rows: what tells that a table was changed, by whomever, without reading it all."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Select, Table, func, literal_column, select

# Every version of a row has its own place and transaction, whoever wrote it: their sum tells any
# change, also one by hand, without sending a row. 1 ms for a thousand users.
_VERSION: Final[ColumnElement[int]] = literal_column(
    "hashtextextended(ctid::text || xmin::text, 0)"
)
IS_NEW: Final[ColumnElement[bool]] = literal_column("xmax = 0")  # of a row that an upsert returns


def revision_of(table: Table) -> Select[int, int]:
    """Makes the statement that gives the same as long as no row of a table changes."""
    return select(func.count(), func.coalesce(func.sum(_VERSION), 0)).select_from(table)
