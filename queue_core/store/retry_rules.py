"""Errors of PostgreSQL: which of them are tried again, and which fail what was to be written.

An error of the moment (no connection, a full disk, a lock, a table or a right that was taken away)
is waited out. An error of the data would come again however often it is tried, and is told to
whoever wrote the data.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

from queue_core.store.ownership import DatabaseInUse, OwnershipLost
from queue_core.store.pooler_check import NoSession
from queue_core.store.read.recovery import TornTables

log = logging.getLogger(__name__)

# Errors of the driver while the database is away. The last one is its word for a session that the
# server ended between two statements.
AWAY: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

# The server's word that the data, not the moment, is wrong: the same write would fail again.
BAD_DATA: Final = (
    asyncpg.DataError,
    # But for a number given twice, and a partition that is gone: see the writer's `_commit`.
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.exceptions.UntranslatableCharacterError,
    asyncpg.exceptions.CharacterNotInRepertoireError,
    UnicodeError,
    OverflowError,
    ValueError,
    TypeError,
)

DELETED_MEANWHILE: Final = (asyncpg.UndefinedObjectError,)  # the stream that a segment was for

# Classes of SQLSTATE in cold statements. Data out of range, one row twice in a statement, and what
# is too large for an index or a row: the same would fail again, and whoever is written along with
# it has nothing to do with it.
BAD_DATA_SQLSTATES: Final = ("21", "22", "54")
# A DBA's doing, until it is undone: no right, no table, no function, no schema.
TAKEN_AWAY_SQLSTATES: Final = frozenset(("42501", "42P01", "42883", "3F000"))


async def persist(
    attempt: Callable[[], Awaitable[None]],
    pause: Callable[[int], Awaitable[None]],
    hopeless: tuple[type[Exception], ...] = (),
) -> None:
    """Calls `attempt` until it gets through, waiting longer each time; what is `hopeless` would
    fail again however long one waits."""
    count = 0
    while True:
        try:
            return await attempt()
        except OwnershipLost:
            raise
        except hopeless:
            raise
        except (*AWAY, DatabaseInUse, NoSession, TornTables) as error:
            count += 1
            if count in (1, 10) or count % 60 == 0:
                log.warning(
                    "nothing can be written (%s): %s; it is tried again until it gets through",
                    type(error).__name__,
                    error,
                )
            await pause(count)
