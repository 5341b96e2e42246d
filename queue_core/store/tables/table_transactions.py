"""Transactions on cold tables: each is one of its own, through the engine, with failures raised
as the core's errors; many rows go into one statement, as arrays."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec
from sqlalchemy import Table, TableValuedAlias, bindparam, cast, column, func, select
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, Insert, insert
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.types import Text

from queue_core.errors import InvalidArgument, StoreUnavailable
from queue_core.store.log_once import Complaints
from queue_core.store.retry_rules import BAD_DATA_SQLSTATES, TAKEN_AWAY_SQLSTATES
from queue_core.store.write.fence import CHECK, Fence

FENCE: Final = "howdah_fence"  # an engine's option: the Fence that a gateway's own pass

log = logging.getLogger(__name__)
complaints = Complaints(log)


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Opens a transaction that writes: it is committed when the block ends, behind the fence where
    the engine has one, with a mark of its own. Raises what `reading` does."""
    async with _in_our_words(), begin(engine) as connection:
        yield connection


@asynccontextmanager
async def begin(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Opens the same transaction, and leaves errors as SQLAlchemy and the driver raise them."""
    fence: Fence | None = engine.get_execution_options().get(FENCE)
    if fence is None:
        async with engine.begin() as connection:
            yield connection
        return
    warnings, passage = fence.marks.warnings, fence.begin()
    async with engine.begin() as connection:
        await connection.exec_driver_sql(CHECK, passage.arguments)
        yield connection
    if fence.marks.warnings != warnings:
        await _prove(engine, fence)
    passage.committed()


async def _prove(engine: AsyncEngine, fence: Fence) -> None:
    """Commits a mark after a commit that came with a warning: its wait for a standby may have been
    cancelled, and this one's answer tells that the standby has both."""
    passage = fence.begin()
    async with engine.begin() as connection:
        await connection.exec_driver_sql(CHECK, passage.arguments)
    passage.committed()


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Opens a transaction that only reads. Raises StoreUnavailable where the database is out of
    reach or somebody has taken rights or tables away, and InvalidArgument for a value that it
    cannot hold; a broken constraint or statement is our own mistake, and stays what it is."""
    async with _in_our_words(), engine.connect() as connection:
        yield connection


@asynccontextmanager
async def _in_our_words() -> AsyncIterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        if isinstance(error, ProgrammingError) and _state(error) not in TAKEN_AWAY_SQLSTATES:
            raise
        if _is_about_a_value(error):
            raise InvalidArgument(f"the database cannot hold this: {_first_line(error)}") from error
        raise _unavailable(error) from error
    except (SQLAlchemyError, asyncpg.PostgresError, OSError, TimeoutError) as error:
        raise _unavailable(error) from error


def _is_about_a_value(error: DBAPIError) -> bool:
    """Tells if an error is about a value in the statement. SQLAlchemy has no name for most of these
    classes; the driver itself refuses text that is no Unicode."""
    return (
        isinstance(error, DataError)
        or _state(error).startswith(BAD_DATA_SQLSTATES)
        or isinstance(getattr(error.orig, "__cause__", None), ValueError)
    )


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _unavailable(error: BaseException) -> StoreUnavailable:
    reason = _first_line(error)
    complaints.warn("definitions, sessions and the like cannot be read or written: %s", reason)
    return StoreUnavailable(f"the database cannot do this now; try again later: {reason}")


def _first_line(error: BaseException) -> str:
    """Returns the first line of the error as the driver or the database worded it, not
    SQLAlchemy."""
    found = getattr(getattr(error, "orig", None), "__cause__", None) or error
    return next(iter(str(found).splitlines()), type(found).__name__)


def unnested(**columns: tuple[Sequence[object], Any]) -> TableValuedAlias:
    """Makes a table of the given columns by unnest: for each its values and their type."""
    arrays = [bindparam(None, list(v), ARRAY(kind), unique=True) for v, kind in columns.values()]
    named = [column(name, kind) for name, (_, kind) in columns.items()]
    return func.unnest(*arrays).table_valued(*named).render_derived(name="given")


def insert_rows(table: Table, rows: Sequence[Mapping[str, object]]) -> Insert:
    """Inserts rows that all have the same columns; whatever their number, one statement, compiled
    once. JSON is given as objects, or written already."""
    kinds = {name: table.columns[name].type for name in rows[0]}
    is_json = {name: isinstance(kind, JSONB) for name, kind in kinds.items()}
    given = unnested(
        **{
            name: (
                [_json(row[name]) if is_json[name] else row[name] for row in rows],
                Text if is_json[name] else kind,
            )
            for name, kind in kinds.items()
        }
    )
    wanted = [cast(given.c[name], JSONB) if is_json[name] else given.c[name] for name in kinds]
    return insert(table).from_select(list(kinds), select(*wanted))


def _json(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
