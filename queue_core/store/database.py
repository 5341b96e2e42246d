"""The database as a whole: its connections, and the parts of the store that share them.

One connection writes, a few read, a small SQLAlchemy pool does the cold work. The manager asks here
for what it found, and for the work that SQL and time bring.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from queue_core.counters import Counters
from queue_core.delivery.orderly_end import end_lease
from queue_core.errors import StoreUnavailable
from queue_core.message.message import utc
from queue_core.store.connection_keepalive import keep_alive
from queue_core.store.log_once import Complaints
from queue_core.store.lost_commits.inventory import Inventory, differences, read_inventory
from queue_core.store.lost_commits.losses import QUEUE_IDS, Loss, find_losses, note_losses, summary
from queue_core.store.lost_commits.witness import Witness
from queue_core.store.operator import diagnosis
from queue_core.store.operator.findings import Level
from queue_core.store.ownership import AWAY, Owner, Setback
from queue_core.store.planner_settings import NO_JIT, PooledConnection
from queue_core.store.queue_store import QueueStore
from queue_core.store.read.reader import Reader
from queue_core.store.read.recovery import Recovered, recover, recover_delays, require_tables
from queue_core.store.requests.commands import Commands
from queue_core.store.requests.outbox import Outbox
from queue_core.store.tables.cold_statements import FENCE, transaction
from queue_core.store.tables.definitions import Definitions, DefinitionStore, StoredQueue
from queue_core.store.upkeep.drop_segments import Maintenance
from queue_core.store.write.checkpoint import Checkpoint
from queue_core.store.write.durability import insist_on_commits
from queue_core.store.write.fence import READ_COMMITTED
from queue_core.store.write.rows import Forms
from queue_core.store.write.segments import SegmentBook, SegmentLimits
from queue_core.store.write.writer import Writer

if TYPE_CHECKING:
    from queue_core.queues.classic import ClassicQueue
    from queue_core.queues.stream import StreamQueue
    from queue_core.sessions.sessions import Sessions
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 2.0  # after which a database that says nothing counts as away
# Another server, another start of it, or another database under the same name.
INSTANCE: Final = """
    SELECT pg_postmaster_start_time() AS started, oid::int8 AS database
    FROM pg_database WHERE datname = current_database()
"""
SEGMENT_IDS: Final = "SELECT id FROM howdah.segment"
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


class Database:
    """Everything the manager needs of PostgreSQL. `open` first, then `start`."""

    def __init__(
        self,
        url: str,
        node: str,
        forms: Forms,
        counters: Counters,
        clock: Callable[[], float],
        settings: StoreSettings,
    ) -> None:
        owner = Owner(url, node, settings.max_message_size)
        owner.on_return = self._on_return
        self.writer = Writer(
            owner,
            book := SegmentBook(settings.segments),
            counters,
            clock,
            buffer_bytes=settings.write_buffer_bytes,
        )
        self.is_reached = True  # as far as the last look at it went
        self.remembered: Callable[[], Inventory] | None = None  # what memory has beside messages
        self._doubting: asyncio.Task[None] | None = None  # while a look takes long
        self.forms = forms
        self._url = url
        self._pool_size = settings.pool_size
        self._book = book
        self._counters = counters
        self._clock = clock
        self._owner = owner
        self._record_folder = settings.record_folder
        self._complain = Complaints(log).warn
        self._held = AsyncExitStack()  # connections that a start in vain has to let go
        self.engine: AsyncEngine
        self.definitions: DefinitionStore
        self.queues: QueueStore
        self._witness: Witness
        self._instance: tuple[object, ...]
        self._pool: asyncpg.Pool
        self._reader: Reader
        self._found: Recovered
        self._maintenance: Maintenance
        self._outbox: Outbox
        self._commands: Commands

    async def open(self) -> Definitions:
        """Takes the database, and reads what is defined. Raises DatabaseInUse, or what PostgreSQL
        says."""
        connection = await self.writer.open()
        self._instance = await _instance_of(connection)
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=1,
            max_size=self._pool_size,
            connection_class=PooledConnection,
            init=self._prepare,
            server_settings={"application_name": "howdah gateway (reader)", "timezone": "UTC"},
        )
        self._held.callback(self._pool.terminate)

        async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
            """As asyncpg reads the url, sslmode, several hosts and all; SQLAlchemy would not."""
            settings = {"application_name": "howdah gateway"}
            connection = await asyncpg.connect(self._url, server_settings=settings)
            try:
                await self._prepare(connection)
            except BaseException:  # whoever asked has gone, and nobody else knows of it
                connection.terminate()
                raise
            return connection

        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connect,
            pool_size=2,
            max_overflow=2,
            pool_pre_ping=True,
            hide_parameters=True,  # an error's text reaches the log, and they are clients' messages
            execution_options={FENCE: self.writer.fence},
        )
        self._held.push_async_callback(self.engine.dispose)
        self._reader = Reader(self._pool, self.forms, self._counters)
        self.definitions = DefinitionStore(self.engine)
        self.queues = QueueStore(self.definitions, self._reader)
        self._found = await recover(connection)
        await recover_delays(connection, self._found, utc(self._clock()))
        for segment in self._found.segments:
            self._book.add(segment)
        definitions = await self.definitions.load()
        self._witness = Witness(self._record_folder, self.writer.fence, self._owner.past)
        self._held.callback(self._witness.abandon)
        await self._witness.examine(connection, self._found, definitions.queues)
        return definitions

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        """Every connection but the writer's own. None is used on a server that may have lost
        something: what is committed there would be taken for proof that nothing is missing."""
        if await _instance_of(connection) != self._instance:
            raise NotExamined("this is another server, or another start of it; it is looked at now")
        await keep_alive(connection)
        await connection.execute(NO_JIT)
        await connection.execute(READ_COMMITTED)
        await insist_on_commits(connection)

    async def restore(self, vhost: Vhost, stored: StoredQueue) -> ClassicQueue | StreamQueue:
        """A durable queue as the last gateway left it."""
        async with self._pool.acquire() as connection:
            queue = await self.queues.restore(
                vhost, stored.spec, stored.id, self._found, connection
            )
        queue.created_by = stored.created_by
        return queue

    async def watch_expiry(self) -> None:
        """When all queues are restored: what stands at their heads expires in time."""
        async with self._pool.acquire() as connection:
            await self.queues.watch_expiry(connection)

    def start(self, vhosts: Mapping[str, Vhost], sessions: Sessions) -> int:
        """From now on things are written; the generation of the journal."""
        self.writer.on_checkpoint = Checkpoint(self.queues, sessions.live_packets)
        self.writer.on_records = sessions.committed
        self.writer.start(self._found.generation, self._found.next_seq)
        self._maintenance = Maintenance(
            self._pool, self.writer, self._book, self.queues, self._counters, self._clock
        )
        self._outbox = Outbox(vhosts, self.writer, self.forms, self._counters, sessions.retained)
        self._commands = Commands(vhosts, self._reader, self.writer.fence)
        return self._found.generation

    async def poll(self) -> int:
        """What SQL brings: the outbox, and what people asked for; how much of it. This is also how
        an idle gateway learns that its database is away."""
        await self.writer.uncongested()
        alarm = asyncio.get_running_loop().call_later(ANSWER_SECONDS / 2, self._begin_to_doubt)
        try:
            async with (
                Reachable(self._complain, "the outbox waits"),
                self._pool.acquire() as connection,
            ):
                drained = await self._outbox.drain(connection, self._clock(), self._commands)
            if drained:
                await self.writer.flushed()
        except StoreUnavailable:
            self.is_reached = False
            raise
        finally:
            alarm.cancel()
            if self._doubting is not None:
                self._doubting.cancel()
                self._doubting = None
        self.is_reached = True
        return drained

    def _begin_to_doubt(self) -> None:
        self._doubting = asyncio.create_task(self._doubt())

    async def _doubt(self) -> None:
        """A look at the outbox that takes long says nothing of the database: it may have much to
        do, or wait for a lock, a connection or the writer. Only a question that nobody answers
        does."""
        is_answered = True
        while is_answered:
            is_answered = await self._answers()
            if is_answered:
                await asyncio.sleep(ANSWER_SECONDS / 2)
        self.is_reached = False
        log.warning("the database has not answered for %.0f s; still waiting", ANSWER_SECONDS)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS / 2), self.engine.connect() as connection:
                await connection.execute(select(1))
        except (TimeoutError, OSError):
            return False
        except SQLAlchemyError:
            return True  # a refusal is an answer
        return True

    async def _on_return(self, connection: asyncpg.Connection, is_behind: bool) -> None:
        """The writer has another session, perhaps with another server: what holds at the start is
        looked at again, and whether the database still has all that it committed. Raises
        Setback."""
        for found in await diagnosis.safety(connection):
            if found.level is not Level.OK:
                log.warning("%s. Way out: %s", found.what, found.way_out)
        await require_tables(connection)
        segments = {row["id"] for row in await connection.fetch(SEGMENT_IDS)}
        is_torn = self.queues.lies_in(self._book.segments.keys() - segments)
        is_short = is_behind or not await self._witness.has_all(connection)
        if is_short or is_torn:
            losses = await self._look_back(connection, is_short=is_short)
            await note_losses(connection, losses)
            self._witness.note_told()
            raise Setback(
                "the database went back in time: a standby that was behind has become the primary, "
                "a backup was restored, or a segment was given up. Lost: "
                f"{summary(losses) or 'nothing that this gateway knows of'}. All connections end, "
                "and this gateway starts anew from what the tables say; see howdah.loss"
            )
        self._instance = await _instance_of(connection)

    async def _look_back(self, connection: asyncpg.Connection, *, is_short: bool) -> list[Loss]:
        """Names what memory holds for committed and the tables do not have; `is_short`: commits
        are missing, not only a table."""
        there = [row["id"] for row in await connection.fetch(QUEUE_IDS)]
        losses = [await self._witness.lost_commits(connection)] if is_short else []
        losses += find_losses(self.queues.queues, there, await recover(connection))
        if self.remembered is not None:
            losses += differences(self.remembered(), await read_inventory(connection))
        return losses

    async def leave_mark(self) -> None:
        """Commits nothing but a mark: it vouches for what others committed and memory has taken
        over, such as users and their rights."""
        async with transaction(self.engine):
            pass

    async def keep_up(self) -> None:
        """What time brings: segments and generations that are not needed any more."""
        await self._witness.keep_up()
        async with Reachable(self._complain, "old segments stay"):
            await self._maintenance.run_once()

    async def abandon(self) -> None:
        """The start failed: whatever it had, others may need."""
        await self.writer.close()
        await self._held.aclose()

    async def close(self) -> None:
        """Writes what is there, and lets the database go."""
        self._outbox.close()
        await self.definitions.close()
        for queue in self.queues.queues.values():
            for cursor in queue.log.cursors:
                end_lease(cursor)
        with suppress(*AWAY, TimeoutError):  # it is for people alone, and not waited for
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._maintenance.end()
        await self.writer.close()
        await self._reader.close()
        await self.engine.dispose()
        await self._pool.close()
        self._witness.close()


async def _instance_of(connection: asyncpg.Connection) -> tuple[object, ...]:
    row = await connection.fetchrow(INSTANCE)
    assert row is not None  # of the database that the connection is to
    return tuple(row)


class Reachable:
    """A database that is away is one error here, whatever the driver calls it. It is said aloud:
    the writer may be well, and this alone be what the gateway has no right to, or no table for."""

    def __init__(self, complain: Callable[..., None], consequence: str) -> None:
        self._complain = complain
        self._consequence = consequence

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AWAY):
            self._complain("%s: %s; it is tried again", self._consequence, error)
            raise StoreUnavailable(f"the database is out of reach: {error}") from error
