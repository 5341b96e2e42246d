"""The database as a whole: its connections, the parts of the store that share them, and what was
found when it was opened.

One connection writes, a few read, a small SQLAlchemy pool does the cold work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from queue_core.counters import Counters
from queue_core.message.message import utc
from queue_core.store.adoption import adopt
from queue_core.store.lost_commits.commit_check import CommitCheck
from queue_core.store.lost_commits.losses import count_losses
from queue_core.store.nodes.cluster_node import ClusterNode
from queue_core.store.nodes.rows import NodeTerms
from queue_core.store.operator.inspection_pool import InspectionPool
from queue_core.store.ownership import Login, Owner, take_ownership
from queue_core.store.planner_settings import NO_JIT, PooledConnection
from queue_core.store.primary import connect_to_primary
from queue_core.store.queue_store import QueueStore
from queue_core.store.read.reader import Reader
from queue_core.store.read.recovery import Recovered, recover, recover_delays
from queue_core.store.tables.definitions import Definitions, DefinitionStore, StoredQueue
from queue_core.store.tables.table_transactions import FENCE, transaction
from queue_core.store.tcp_keepalive import keep_alive
from queue_core.store.write.fence import READ_COMMITTED, Fence
from queue_core.store.write.rows import Forms
from queue_core.store.write.segments import SegmentBook, SegmentLimits
from queue_core.store.write.synchronous_commit import insist_on_commits
from queue_core.store.write.writer import Writer

if TYPE_CHECKING:
    from queue_core.queues.classic import ClassicQueue
    from queue_core.queues.stream import StreamQueue
    from queue_core.vhost import Vhost

    RestoreQueue = Callable[[Vhost, StoredQueue], Awaitable[ClassicQueue | StreamQueue]]

# Another server, another start of it, or another database under the same name.
INSTANCE: Final = """
    SELECT pg_postmaster_start_time() AS started, oid::int8 AS database
    FROM pg_database WHERE datname = current_database()
"""
READERS: Final = 3  # connections for reading back and upkeep


@dataclass(frozen=True, slots=True)
class StoreSettings:
    write_buffer_bytes: int = 32 * 1024 * 1024
    pool_size: int = READERS
    max_message_size: int = 16 * 1024 * 1024  # of a message that SQL publishes
    segments: SegmentLimits = field(default_factory=SegmentLimits)
    record_folder: Path | None = None  # where a record of commits is kept; None: nowhere


class NotExamined(ConnectionError):
    """The connection leads to a server that the writer has not looked at yet."""


class ExaminedServer:
    """The server that was looked at, and found to have all that was committed. `prepare` refuses
    every connection to another one, or to another start of it."""

    def __init__(self, instance: tuple[object, ...]) -> None:
        self.instance = instance

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Prepares every connection but the writer's own. None is used on a server that may have
        lost something: what is committed there would be taken for proof that nothing is missing."""
        if await instance_of(connection) != self.instance:
            raise NotExamined("this is another server, or another start of it; it is looked at now")
        await keep_alive(connection)
        await connection.execute(NO_JIT)
        await connection.execute(READ_COMMITTED)
        await insist_on_commits(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that this gateway owns, its connections, and what was found in it. Nothing is
    written before `BackgroundWork` starts."""

    owner: Owner
    writer: Writer
    server: ExaminedServer
    pool: asyncpg.Pool  # for reading and upkeep
    inspection: InspectionPool  # for people's questions
    engine: AsyncEngine  # for the cold tables
    reader: Reader
    definitions: DefinitionStore
    queues: QueueStore
    book: SegmentBook
    commit_check: CommitCheck
    found: Recovered
    defined: Definitions
    forms: Forms
    counters: Counters
    clock: Callable[[], float]
    held: AsyncExitStack  # connections that a start in vain has to let go

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[RestoreQueue]:
        """Yields what restores a durable queue as the last gateway left it. All queues share one
        session: to give it back to the pool takes a round trip, and a start with a thousand queues
        waited for a thousand of them."""
        async with self.pool.acquire() as connection:

            async def restore(vhost: Vhost, stored: StoredQueue) -> ClassicQueue | StreamQueue:
                spec, queues = stored.spec, self.queues
                queue = await queues.restore(vhost, spec, stored.id, self.found, connection)
                queue.created_by = stored.created_by
                return queue

            yield restore

    async def watch_expiry(self) -> None:
        """Has what stands at the heads of queues expire in time; for when all are restored."""
        async with self.pool.acquire() as connection:
            await self.queues.watch_expiry(connection)

    async def leave_mark(self) -> None:
        """Commits nothing but a mark: it vouches for what others committed and memory has taken
        over, such as users and their rights."""
        async with transaction(self.engine):
            pass

    async def follow(self, instance: tuple[object, ...]) -> None:
        """Goes on with the server that the writer has looked at. Sessions of the one before are
        not used again: it may still be there, read-only or cut off, and know nothing of what
        follows."""
        if instance != self.server.instance:
            self.server.instance = instance
            await self.pool.expire_connections()

    async def abandon(self) -> None:
        """Lets everything go after a start that failed: others may need it."""
        await self.writer.close()
        await self.held.aclose()


async def open_database(
    url: str,
    node: ClusterNode | str,
    forms: Forms,
    counters: Counters,
    clock: Callable[[], float],
    settings: StoreSettings,
) -> Database:
    """Takes the database, and reads what is in it. `node` is the name of a gateway that has the
    database for itself, or a cluster's node that is up. Raises DatabaseInUse, or what PostgreSQL
    says."""
    async with AsyncExitStack() as held:
        owner, connection = await take_ownership(_login(url, node, settings))
        book = SegmentBook(settings.segments)
        buffer_bytes = settings.write_buffer_bytes
        writer = Writer(owner, connection, book, counters, clock, buffer_bytes=buffer_bytes)
        held.push_async_callback(writer.close)
        server = ExaminedServer(await instance_of(connection))
        pool = await _open_pool(url, settings.pool_size, server)
        held.callback(pool.terminate)
        inspection = await InspectionPool.open(url, server.prepare)
        held.callback(inspection.terminate)
        engine = _make_engine(url, server, owner.fence)
        held.push_async_callback(engine.dispose)
        reader, definitions = Reader(pool, forms, counters), DefinitionStore(engine)
        commit_check = CommitCheck(settings.record_folder, owner.fence, owner.past)
        held.callback(commit_check.abandon)
        shortfall = await commit_check.judge(connection)
        shards = await adopt(connection, owner.fence)
        found = await recover(connection, shards, owner.fence.node.id)
        await recover_delays(connection, found, utc(clock()))
        for segment in found.segments:
            book.add(segment)
        defined = await definitions.load()
        await commit_check.begin(connection, shortfall, found, defined.queues)
        counters.losses_noted = await count_losses(connection)
        return Database(
            owner=owner,
            writer=writer,
            server=server,
            pool=pool,
            inspection=inspection,
            engine=engine,
            reader=reader,
            definitions=definitions,
            queues=QueueStore(definitions, reader, owner.fence),
            book=book,
            commit_check=commit_check,
            found=found,
            defined=defined,
            forms=forms,
            counters=counters,
            clock=clock,
            held=held.pop_all(),
        )


def _login(url: str, node: ClusterNode | str, settings: StoreSettings) -> Login:
    if isinstance(node, str):
        return Login(url, NodeTerms(node, settings.max_message_size))
    return Login(url, node.terms, node.life, node.take_spare())


async def _open_pool(url: str, size: int, server: ExaminedServer) -> asyncpg.Pool:
    async def connect(dsn: str | None = None, **options: Any) -> asyncpg.Connection:
        return await connect_to_primary(dsn or url, **options)

    return await asyncpg.create_pool(
        min_size=1,
        max_size=size,
        connection_class=PooledConnection,
        connect=connect,
        init=server.prepare,
        server_settings={"application_name": "howdah gateway (reader)", "timezone": "UTC"},
    )


def _make_engine(url: str, server: ExaminedServer, fence: Fence) -> AsyncEngine:
    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        """Connects as asyncpg reads the url, sslmode and all; SQLAlchemy would not."""
        settings = {"application_name": "howdah gateway"}
        connection = await connect_to_primary(url, server_settings=settings)
        try:
            await server.prepare(connection)
            connection.add_log_listener(fence.marks.on_log)
        except BaseException:  # whoever asked has gone, and nobody else knows of it
            connection.terminate()
            raise
        return connection

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=2,
        max_overflow=2,
        pool_pre_ping=True,
        hide_parameters=True,  # an error's text reaches the log, and they are clients' messages
        execution_options={FENCE: fence},
    )
    event.listen(engine.sync_engine, "connect", partial(_note_instance, server))
    event.listen(engine.sync_engine, "checkout", partial(_require_instance, server))
    return engine


def _note_instance(
    server: ExaminedServer, _connection: object, record: ConnectionPoolEntry
) -> None:
    record.info[INSTANCE] = server.instance


def _require_instance(
    server: ExaminedServer, _connection: object, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """Refuses a pooled connection to a server that the writer has left; SQLAlchemy then makes
    another one."""
    if record.info[INSTANCE] != server.instance:
        raise DisconnectionError("the gateway follows another server")


async def instance_of(connection: asyncpg.Connection) -> tuple[object, ...]:
    """Reads what tells a server, a start of it and a database from others of the same address."""
    row = await connection.fetchrow(INSTANCE)
    assert row is not None  # of the database that the connection is to
    return tuple(row)
