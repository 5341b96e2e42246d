"""Ownership of the database: one gateway at a time, by an advisory lock on the connection that
writes.

The lock and the writes share a session, so a gateway that lost its lock cannot write: its
connection is gone, too; and each transaction looks at the fence. When the gateway comes back, the
row of the owner tells whether another one owned the database meanwhile, or whether the database
itself has gone back to an earlier time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import asyncpg

from queue_core.errors import StoreUnavailable
from queue_core.store.lost_commits.commit_marks import Marks, read_extent
from queue_core.store.lost_commits.ownership_history import (
    Past,
    Tenure,
    add_tenure,
    read_place,
    read_tenures,
)
from queue_core.store.planner_settings import NO_JIT
from queue_core.store.pooler_check import require_session
from queue_core.store.tcp_keepalive import keep_alive
from queue_core.store.write.fence import FENCE_LOCK, READ_COMMITTED, Fence
from queue_core.store.write.synchronous_commit import insist_on_commits

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

# The writer's statements insert arrays: a plan made anew for each costs as much as 100 rows do, and
# is no other. (With the fence in them, the server would make one for each.)
PLANS: Final = "SET plan_cache_mode = force_generic_plan"

TRY_LOCK: Final = "SELECT pg_try_advisory_lock($1)"
HOLDER: Final = """
    SELECT a.pid, host(a.client_addr) AS address
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
TAKE: Final = """
    UPDATE howdah.gateway
    SET epoch = epoch + 1, node = $1, started_at = clock_timestamp(), max_message_size = $2,
        lineage = coalesce(lineage, gen_random_uuid())
    WHERE id = 1
    RETURNING epoch, started_at, lineage, generation
"""
OWNER: Final = "SELECT epoch, node, started_at FROM howdah.gateway WHERE id = 1"
TAKE_SECONDS: Final = 10  # for transactions of the owner before that are still open
LOCK_ATTEMPTS: Final = 20
LOCK_PAUSE_SECONDS: Final = 0.1


class DatabaseInUse(StoreUnavailable):
    """Another gateway owns the database."""


class OwnershipLost(StoreUnavailable):
    """Says that what is in memory here is not true any more: this gateway must not go on with
    it."""


class Setback(OwnershipLost):
    """The database went back in time: it does not know what it had committed. A gateway that
    starts anew, from what the tables say, may go on."""


@dataclass(frozen=True, slots=True)
class Login:
    """Holds what a gateway takes its database with."""

    url: str
    node: str  # name of the gateway, for people
    max_message_size: int  # bytes; SQL publishes nothing larger


async def take_ownership(login: Login) -> tuple[Owner, asyncpg.Connection]:
    """Takes the database for this gateway. The connection holds the lock, and is the one to write
    with. Raises OSError or PostgresError while the database is out of reach, DatabaseInUse when
    another gateway has it, NoSession behind a pooler that gives no session."""
    connection = await _open_session(login.url)
    try:
        await _lock(connection)
        fence, past = await _take(connection, login)
        return Owner(login.url, fence, past, await _process_of(connection)), connection
    except BaseException:
        await connection.close(timeout=5)
        raise


class Owner:
    """The ownership that this gateway has taken: its fence, what it found, and the way back to the
    database when the connection that writes was lost. `on_return` looks at the database of every
    connection but the first, before anything is written."""

    def __init__(self, url: str, fence: Fence, past: Past, process: int) -> None:
        self.on_return: Callable[[asyncpg.Connection, bool], Awaitable[None]] | None = None
        self.fence = fence
        self.past = past  # as the first connection found it
        self._url = url
        self._process = process  # of the server, for our newest session

    async def reconnect(self) -> asyncpg.Connection:
        """Returns another connection that holds the lock. Raises what `take_ownership` raises, and
        OwnershipLost when another gateway has owned the database since."""
        connection = await _open_session(self._url)
        try:
            await self._lock_again(connection)
            is_behind = await self._is_behind(connection)
            if self.on_return is not None:
                await self.on_return(connection, is_behind)
            self._process = await _process_of(connection)
        except BaseException:
            await connection.close(timeout=5)
            raise
        return connection

    async def _lock_again(self, connection: asyncpg.Connection) -> None:
        for attempt in range(LOCK_ATTEMPTS):
            if await connection.fetchval(TRY_LOCK, LOCK):
                return
            holder = await connection.fetchrow(HOLDER, LOCK)
            if holder is not None and holder["pid"] == self._process:
                # our own earlier session, which the server does not know to be dead yet
                await connection.execute("SELECT pg_terminate_backend($1)", self._process)
            elif holder is not None and attempt >= LOCK_ATTEMPTS // 2:
                await self._is_behind(connection)
                raise await _in_use(connection, holder)
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        raise await _in_use(connection)

    async def _is_behind(self, connection: asyncpg.Connection) -> bool:
        """Tells whether the row of the owner is older than our ownership. Raises OwnershipLost
        where another gateway has owned the database since."""
        row = await connection.fetchrow(OWNER)
        epoch = 0 if row is None else row["epoch"]
        if row is not None and (epoch, row["started_at"]) == self.fence.ownership:
            return False
        if epoch < self.fence.epoch:
            return True
        assert row is not None
        raise OwnershipLost(
            f"another gateway ({row['node']}, since {_moment(row['started_at'])}) took over this "
            "database while this one was cut off from it; this one stops, so that no message is "
            "delivered twice"
        )


async def _open_session(url: str) -> asyncpg.Connection:
    """Opens a session for the writer, which has no lock yet."""
    connection = await asyncpg.connect(
        url, server_settings=SETTINGS, timeout=10, command_timeout=None
    )
    try:
        await keep_alive(connection)
        for settings in (KEEPALIVE, PATIENCE, NO_JIT, PLANS, READ_COMMITTED):
            await connection.execute(settings)
        await insist_on_commits(connection)
        other = await asyncpg.connect(url, server_settings=SETTINGS, timeout=10)
        try:
            await require_session(connection, other)
        finally:
            await other.close(timeout=5)
    except BaseException:
        await connection.close(timeout=5)
        raise
    return connection


async def _process_of(connection: asyncpg.Connection) -> int:
    process: int = await connection.fetchval("SELECT pg_backend_pid()")
    return process


async def _lock(connection: asyncpg.Connection) -> None:
    for _ in range(LOCK_ATTEMPTS):
        if await connection.fetchval(TRY_LOCK, LOCK):
            return
        holder = await connection.fetchrow(HOLDER, LOCK)
        if holder is not None:
            raise await _in_use(connection, holder)
        await asyncio.sleep(LOCK_PAUSE_SECONDS)
    raise await _in_use(connection)


async def _in_use(
    connection: asyncpg.Connection, holder: asyncpg.Record | None = None
) -> DatabaseInUse:
    return DatabaseInUse(
        f"{await _others(connection, holder)}; stop it, or give this one a database of its own"
    )


async def _take(connection: asyncpg.Connection, login: Login) -> tuple[Fence, Past]:
    """Writes this gateway into the row of the owner, and reads what those before have left."""
    place = await read_place(connection)
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{TAKE_SECONDS}s'")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", FENCE_LOCK)
            tenures, extent = await read_tenures(connection), await read_extent(connection)
            row = await connection.fetchrow(TAKE, login.node, login.max_message_size)
            if row is not None:
                epoch, started_at = row["epoch"], row["started_at"]
                tenure = Tenure(epoch, started_at, login.node, place, extent)
                await add_tenure(connection, tenure)
    except asyncpg.LockNotAvailableError:
        raise DatabaseInUse(
            f"{await _others(connection)}: a transaction of it is still open after "
            f"{TAKE_SECONDS} s; stop it, or end its sessions, and start again"
        ) from None
    if row is None:
        raise StoreUnavailable(
            "howdah.gateway has no row: somebody deleted it; INSERT INTO howdah.gateway "
            "(id, epoch, generation) VALUES (1, (SELECT coalesce(max(epoch), 0) FROM "
            "howdah.ownership), (SELECT max(generation) FROM howdah.settlement)) makes it again"
        )
    past = Past(str(row["lineage"]), place, tenures, extent)
    return Fence(epoch, started_at, Marks(extent, row["generation"])), past


async def _others(connection: asyncpg.Connection, holder: asyncpg.Record | None = None) -> str:
    """Names the gateway that has the database: what its row says, and the session that holds the
    lock."""
    row = await connection.fetchrow(OWNER)
    if row is None or row["node"] is None:
        who = "another gateway"
    else:
        since = "" if row["started_at"] is None else f", since {_moment(row['started_at'])}"
        who = f"another gateway ({row['node']}{since})"
    if holder is not None:
        place = f" from {holder['address']}" if holder["address"] else ""
        who += f", by the session of server process {holder['pid']}{place},"
    return f"{who} owns this database"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
