"""Refuses connections that are not a session of their own, and servers whose advisory locks keep
nobody out: behind a pooler that gives a session to each transaction, or on a look-alike of
PostgreSQL that only pretends to lock, two gateways would both own the database."""

from __future__ import annotations

import asyncio
import secrets
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

LOCK_BITS: Final = 62  # of a random key, which nobody else asks for
TRY_LOCK: Final = "SELECT pg_try_advisory_lock($1)"
UNLOCK: Final = "SELECT pg_advisory_unlock($1)"


class NoSession(StoreUnavailable):
    """The connection changes its session from one transaction to the next, or its locks keep no
    other session out."""


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
            await _require_locks(connection, other)
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


async def _require_locks(connection: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Raises NoSession unless an advisory lock that one session holds is refused to another, and
    free for it afterwards."""
    key = secrets.randbits(LOCK_BITS)
    is_held = await connection.fetchval(TRY_LOCK, key)
    is_shared = await other.fetchval(TRY_LOCK, key)
    await connection.fetchval(UNLOCK, key)
    is_free = is_shared or await other.fetchval(TRY_LOCK, key)
    await other.fetchval(UNLOCK, key)
    if not is_held or is_shared or not is_free:
        raise NoSession(
            "the server's advisory locks keep nobody out: one that a session held was "
            f"{'granted' if is_shared else 'not granted as it should be'} to another, so two "
            "gateways could own this database at once; the gateway needs PostgreSQL itself, or a "
            "server with its advisory locks: see the server's documentation for how to switch "
            "them on"
        )


async def _pid(connection: asyncpg.Connection) -> int:
    async with connection.transaction():
        pid: int = await connection.fetchval(PID)
        return pid
