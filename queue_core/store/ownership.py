"""Ownership of the database: one gateway at a time, by advisory locks on the connection that
writes.

The locks and the writes share a session, so a gateway that lost its locks cannot write: its
connection is gone, too; and each transaction looks at the fence. When the gateway comes back, its
own row tells whether another one fenced it meanwhile, and the row of the owner whether the database
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
from queue_core.store.nodes.locks import (
    ALONE_HOLDERS,
    ALONE_LOCK,
    LOCK_NODE,
    TRY_ALONE,
    TRY_TOGETHER,
    keep_node,
    lock_members,
)
from queue_core.store.nodes.rows import (
    GONE,
    UP,
    NodeLife,
    NodeTerms,
    add_node,
    end_nodes,
    living,
    state_of,
)
from queue_core.store.planner_settings import NO_JIT
from queue_core.store.pooler_check import require_session
from queue_core.store.primary import connect_to_primary
from queue_core.store.shards import take_all
from queue_core.store.tcp_keepalive import keep_alive
from queue_core.store.write.fence import READ_COMMITTED, Fence
from queue_core.store.write.synchronous_commit import insist_on_commits

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

TAKE: Final = """
    UPDATE howdah.gateway
    SET epoch = epoch + 1, node = $1, started_at = clock_timestamp(), max_message_size = $2,
        lineage = coalesce(lineage, gen_random_uuid())
    WHERE id = 1
    RETURNING epoch, started_at, lineage
"""
OWNER: Final = "SELECT epoch, node, started_at FROM howdah.gateway WHERE id = 1"
FENCED_MEANWHILE: Final = (
    "another gateway fenced this one, and took over this database while this one was cut off from "
    "it; this one stops, so that no message is delivered twice"
)
TAKE_SECONDS: Final = 10  # for transactions of the owner before that are still open
SPARE_SECONDS: Final = 0.5  # for a session that waited to say that it is there
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
    terms: NodeTerms
    life: NodeLife | None = None  # of a cluster's node, which is up; None: one for this alone
    spare: asyncpg.Connection | None = None  # a session of `open_writer` that waited for its use

    @property
    def try_lock(self) -> str:
        return TRY_ALONE if self.terms.cluster is None else TRY_TOGETHER


async def take_ownership(login: Login) -> tuple[Owner, asyncpg.Connection]:
    """Takes the database for this gateway. The connection holds the locks, and is the one to write
    with. Raises OSError or PostgresError while the database is out of reach, DatabaseInUse when
    another gateway has it, OwnershipLost when this node is gone already, NoSession behind a pooler
    that gives no session."""
    connection = await _first_session(login)
    try:
        await _lock(connection, login)
        fence, past = await _take(connection, login)
        return Owner(login, fence, past, await _process_of(connection)), connection
    except BaseException:
        await connection.close(timeout=5)
        raise


async def open_writer(url: str) -> asyncpg.Connection:
    """Opens a session to write with, before it is needed."""
    return await open_session(url, SETTINGS)


async def _first_session(login: Login) -> asyncpg.Connection:
    """Uses the session that was opened before, if it answers; it may be long ago."""
    if login.spare is not None:
        try:
            async with asyncio.timeout(SPARE_SECONDS):
                await login.spare.execute("SELECT 1")
            return login.spare
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            login.spare.terminate()
    return await open_session(login.url, SETTINGS)


class Owner:
    """The ownership that this gateway has taken: its fence, what it found, and the way back to the
    database when the connection that writes was lost. `on_return` looks at the database of every
    connection but the first, before anything is written."""

    def __init__(self, login: Login, fence: Fence, past: Past, process: int) -> None:
        self.on_return: Callable[[asyncpg.Connection, bool], Awaitable[None]] | None = None
        self.fence = fence
        self.past = past  # as the first connection found it
        self._login = login
        self._process = process  # of the server, for our newest session

    async def reconnect(self) -> asyncpg.Connection:
        """Returns another connection that holds the locks. Raises what `take_ownership` raises, and
        OwnershipLost when this node was fenced, or another gateway has owned the database since."""
        connection = await open_session(self._login.url, SETTINGS)
        try:
            await self._lock_again(connection)
            await keep_node(connection, self.fence.node.id)
            is_behind = await self._is_behind(connection)
            if self.on_return is not None:
                await self.on_return(connection, is_behind)
            self._process = await _process_of(connection)
        except BaseException:
            await connection.close(timeout=5)
            raise
        return connection

    async def leave(self, connection: asyncpg.Connection) -> None:
        """Writes that this gateway has left in order; nothing of it is to be waited for. A node of
        a cluster says so itself, when everything else of it has ended."""
        if self._login.life is None:
            await end_nodes(connection, [self.fence.node.id], "stopped in order")

    async def _lock_again(self, connection: asyncpg.Connection) -> None:
        for attempt in range(LOCK_ATTEMPTS):
            if await connection.fetchval(self._login.try_lock, ALONE_LOCK):
                return
            holder = await connection.fetchrow(ALONE_HOLDERS, ALONE_LOCK)
            if holder is not None and holder["pid"] == self._process:
                # our own earlier session, which the server does not know to be dead yet
                await connection.execute("SELECT pg_terminate_backend($1)", self._process)
            elif holder is not None and attempt >= LOCK_ATTEMPTS // 2:
                await self._is_behind(connection)
                raise await _in_use(connection, holder)
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        raise await _in_use(connection)

    async def _is_behind(self, connection: asyncpg.Connection) -> bool:
        """Tells whether the rows of the owner and of this node are older than our ownership. Raises
        OwnershipLost where another gateway has fenced this one, or owned the database since."""
        row = await connection.fetchrow(OWNER)
        state = await state_of(connection, self.fence.node)
        epoch = 0 if row is None else row["epoch"]
        if row is not None and (epoch, row["started_at"]) == self.fence.ownership:
            if state == GONE:
                raise OwnershipLost(FENCED_MEANWHILE)
            return state is None
        if epoch < self.fence.epoch:
            return True
        assert row is not None
        raise OwnershipLost(
            f"another gateway ({row['node']}, since {_moment(row['started_at'])}) took over this "
            "database while this one was cut off from it; this one stops, so that no message is "
            "delivered twice"
        )


async def open_session(url: str, settings: dict[str, str]) -> asyncpg.Connection:
    """Opens a session that can hold locks for life; it has none yet. Raises NoSession."""
    connection = await connect_to_primary(url, server_settings=settings, command_timeout=None)
    try:
        await keep_alive(connection)
        for statement in (KEEPALIVE, PATIENCE, NO_JIT, PLANS, READ_COMMITTED):
            await connection.execute(statement)
        await insist_on_commits(connection)
        other = await connect_to_primary(url, server_settings=settings)
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


async def _lock(connection: asyncpg.Connection, login: Login) -> None:
    for _ in range(LOCK_ATTEMPTS):
        if await connection.fetchval(login.try_lock, ALONE_LOCK):
            return
        holder = await connection.fetchrow(ALONE_HOLDERS, ALONE_LOCK)
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
    place, terms = await read_place(connection), login.terms
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{TAKE_SECONDS}s'")
            await lock_members(connection)
            life = await _enter(connection, login)
            generation = await take_all(connection, life.id)
            tenures, extent = await read_tenures(connection), await read_extent(connection)
            row = await connection.fetchrow(TAKE, terms.name, terms.max_message_size)
            if row is not None:
                epoch, started_at = row["epoch"], row["started_at"]
                tenure = Tenure(epoch, started_at, terms.name, place, extent)
                await add_tenure(connection, tenure)
        await keep_node(connection, life.id)
    except asyncpg.LockNotAvailableError:
        raise DatabaseInUse(
            f"{await _others(connection)}: a transaction of it is still open after "
            f"{TAKE_SECONDS} s; stop it, or end its sessions, and start again"
        ) from None
    if row is None:
        raise StoreUnavailable(
            "howdah.gateway has no row: somebody deleted it; INSERT INTO howdah.gateway "
            "(id, epoch) VALUES (1, (SELECT coalesce(max(epoch), 0) FROM howdah.ownership)) makes "
            "it again"
        )
    past = Past(str(row["lineage"]), place, tenures, extent)
    return Fence(life, epoch, started_at, Marks(extent, generation)), past


async def _enter(connection: asyncpg.Connection, login: Login) -> NodeLife:
    """Makes this gateway the only node that may write. One that has the database for itself ends
    all others, whose transactions it waits for; a cluster's node has done so when it came up."""
    if login.life is not None:
        if await state_of(connection, login.life) != UP:
            raise OwnershipLost(FENCED_MEANWHILE)
        return login.life
    others = await living(connection)
    for other in others:
        await connection.execute(LOCK_NODE, other)
    await end_nodes(connection, others, f"{login.terms.name} took the database")
    return await add_node(connection, login.terms, UP)


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
