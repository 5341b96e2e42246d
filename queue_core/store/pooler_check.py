"""Refuses connections that are not a session of their own, as the lock on the database needs:
behind a pooler that gives a session to each transaction, two gateways would both hold it."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from queue_core.errors import StoreUnavailable

PROBE_ROUNDS: Final = 3
ANSWER_SECONDS: Final = 10.0
PID: Final = "SELECT pg_backend_pid()"
# What a pooler says of a statement that was prepared in another session.
STRAYED: Final = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
WAY_OUT: Final = (
    "point database.url at PostgreSQL itself, or at a pool with pool_mode = session: the gateway "
    "holds a lock, settings and prepared statements for as long as its session lasts"
)


class NoSession(StoreUnavailable):
    """The connection changes its session from one transaction to the next."""


async def require_session(connection: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Raises NoSession unless each of the two has a server process of its own and keeps it, also
    while the other one is busy: a pooler with nothing else to do would give both the same one."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            for _ in range(PROBE_ROUNDS):
                before = await _pid(connection)
                async with other.transaction():
                    others = await other.fetchval(PID)
                    after = await _pid(connection)
                if before != after or others in (before, after):
                    raise NoSession(
                        "the connection gets another session for each transaction (server "
                        f"processes {before}, {others}, {after}): a pooler in transaction mode "
                        f"stands in between; {WAY_OUT}"
                    )
    except STRAYED as error:
        raise NoSession(
            f"a prepared statement was lost between two transactions ({error}): a pooler in "
            f"transaction or statement mode stands in between; {WAY_OUT}"
        ) from error
    except TimeoutError:
        raise NoSession(
            f"the server did not answer for {ANSWER_SECONDS:.0f} s while another session of the "
            "gateway had a transaction open: a pooler with one session for both, or a server that "
            f"is overloaded; {WAY_OUT}"
        ) from None


async def _pid(connection: asyncpg.Connection) -> int:
    async with connection.transaction():
        pid: int = await connection.fetchval(PID)
        return pid
