"""Who owns the database: one gateway at a time, by an advisory lock on the connection that writes.

The lock and the writes share a session, so a gateway that lost its lock cannot write: its
connection is gone, too. When it comes back, the epoch tells whether another one owned the database
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

from queue_core.errors import StoreUnavailable
from queue_core.store.keepalive import keep_alive
from queue_core.store.plans import NO_JIT

log = logging.getLogger(__name__)

LOCK: Final = 0x686F7764_6168  # "howdah"
SETTINGS: Final = {"application_name": "howdah gateway (writer)", "timezone": "UTC"}

# A gateway whose machine is gone without a word must not hold the lock for the two hours that TCP
# waits by default: the next one shall get it within half a minute.
KEEPALIVE: Final = """
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '25s';
"""

# Limits that a DBA sets for people: a batch that is cut off would be tried again, and cut off
# again, and nobody's messages be written meanwhile. (Not every server has all of these.)
PATIENCE: Final = """
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
        'statement_timeout', 'lock_timeout', 'transaction_timeout',
        'idle_in_transaction_session_timeout', 'idle_session_timeout')
"""

# What the driver says while the database is away. The last one is its word for a session that the
# server ended between two statements.
AWAY: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

TRY_LOCK: Final = "SELECT pg_try_advisory_lock($1)"
HOLDER: Final = """
    SELECT a.pid, a.application_name, host(a.client_addr) AS address, g.node
    FROM pg_locks l JOIN pg_stat_activity a USING (pid) CROSS JOIN howdah.gateway g
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
TAKE: Final = """
    UPDATE howdah.gateway
    SET epoch = epoch + 1, node = $1, started_at = now(), max_message_size = $2 WHERE id = 1
    RETURNING epoch
"""
EPOCH: Final = "SELECT epoch FROM howdah.gateway WHERE id = 1"


class DatabaseInUse(StoreUnavailable):
    """Another gateway owns the database."""


class OwnershipLost(StoreUnavailable):
    """Another gateway owned the database while this one was cut off: what is in memory here is not
    true any more."""


class Owner:
    """Gives out the one connection that may write."""

    def __init__(self, url: str, node: str, max_message_size: int) -> None:
        self._url = url
        self._node = node
        self._max_message_size = max_message_size
        self._epoch: int | None = None
        self._pid: int | None = None

    async def connect(self) -> asyncpg.Connection:
        """A connection that holds the lock. Raises OSError or PostgresError while the database is
        out of reach, DatabaseInUse when somebody else is at it."""
        connection = await asyncpg.connect(
            self._url, server_settings=SETTINGS, timeout=10, command_timeout=None
        )
        try:
            await keep_alive(connection)
            await connection.execute(KEEPALIVE)
            await connection.execute(PATIENCE)
            await connection.execute(NO_JIT)
            await self._lock(connection)
            await self._check_epoch(connection)
            if self._epoch is None:
                self._epoch = await connection.fetchval(TAKE, self._node, self._max_message_size)
        except BaseException:
            await connection.close(timeout=5)
            raise
        self._pid = connection.get_server_pid()
        return connection

    async def _lock(self, connection: asyncpg.Connection) -> None:
        for attempt in range(20):
            if await connection.fetchval(TRY_LOCK, LOCK):
                return
            holder = await connection.fetchrow(HOLDER, LOCK)
            if holder is not None and holder["pid"] == self._pid:
                # our own earlier session, which the server does not know to be dead yet
                await connection.execute("SELECT pg_terminate_backend($1)", self._pid)
            elif holder is not None and (self._epoch is None or attempt >= 10):
                await self._check_epoch(connection)
                raise DatabaseInUse(
                    f"another gateway ({holder['node']}, connected from {holder['address']}) owns "
                    "this database; stop it, or give this one a database of its own"
                )
            await asyncio.sleep(0.1)
        raise DatabaseInUse("another gateway owns this database; stop it first")

    async def _check_epoch(self, connection: asyncpg.Connection) -> None:
        if self._epoch is not None and await connection.fetchval(EPOCH) != self._epoch:
            raise OwnershipLost(
                "another gateway took over this database while this one was cut off from it; "
                "this one stops, so that no message is delivered twice"
            )


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
        except (*AWAY, DatabaseInUse) as error:
            count += 1
            if count in (1, 10) or count % 60 == 0:
                log.warning(
                    "nothing can be written (%s): %s; it is tried again until it gets through",
                    type(error).__name__,
                    error,
                )
            await pause(count)
