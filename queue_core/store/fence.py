"""The fence: no transaction of a gateway commits once another one has taken the database.

Every writing transaction takes the fence's lock, shared, and then looks at the row of the owner;
whoever takes the database takes that lock alone, so each transaction of the owner before is either
committed by then or finds another owner. That holds whatever becomes of sessions and of the lock
that they hold, behind a pooler as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

FENCE_LOCK: Final = 0x686F7764_6169  # beside the owner's own; howdah.hold() takes it, too
# The look comes after the lock, and must see what was committed while the lock was waited for: each
# statement needs its own view, whatever a DBA has made the default.
READ_COMMITTED: Final = "SET default_transaction_isolation = 'read committed'"
FENCED: Final = "HW001"  # the SQLSTATE of howdah.hold() where another gateway owns the database


@dataclass(frozen=True, slots=True)
class Fence:
    """One ownership of the database: its epoch, and when it began. Two gateways may come to the
    same epoch, where the database went back in time between them; not at the same moment."""

    epoch: int
    started_at: datetime

    @property
    def arguments(self) -> tuple[int, datetime]:
        return self.epoch, self.started_at

    @property
    def check(self) -> str:
        """The statement that fails with FENCED where this ownership has ended."""
        return f"SELECT howdah.hold({self.epoch}, '{self.started_at.isoformat()}'::timestamptz)"


def condition(first: int) -> str:
    """The same as part of a larger statement, with the fence's arguments from number `first` on: a
    subquery, which is asked once and not for each row."""
    return f"(SELECT howdah.hold(${first}, ${first + 1}))"


@asynccontextmanager
async def fenced(
    connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy[Any], fence: Fence
) -> AsyncIterator[None]:
    """A transaction behind the fence. BEGIN and the look at the owner are one round trip."""
    try:
        await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {fence.check}")
        yield
        await connection.execute("COMMIT")
    except BaseException:
        if not connection.is_closed():
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.execute("ROLLBACK")
        raise


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == FENCED
