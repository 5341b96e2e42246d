"""The work on a database while a gateway serves: it takes over what SQL asks for, drops what nobody
needs any more, and looks at the database again when the writer comes back to it.

Knows when each is to be done; how, the parts know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from queue_core.delivery.clean_shutdown import end_lease
from queue_core.errors import StoreUnavailable
from queue_core.store.database import Database, instance_of
from queue_core.store.log_once import Complaints
from queue_core.store.lost_commits.losses import QUEUE_IDS, Loss, find_losses, note_losses, summary
from queue_core.store.lost_commits.state_comparison import Inventory, differences, read_inventory
from queue_core.store.operator import doctor_checks
from queue_core.store.operator.finding import Level
from queue_core.store.ownership import Setback
from queue_core.store.read.recovery import recover, require_tables
from queue_core.store.requests.outbox import Outbox
from queue_core.store.requests.redrive import Redrive
from queue_core.store.requests.sql_commands import Commands
from queue_core.store.retry_rules import AWAY
from queue_core.store.shards import ALL_SHARDS
from queue_core.store.upkeep.drop_segments import Maintenance
from queue_core.store.write.journal_snapshot import JournalSnapshot

if TYPE_CHECKING:
    from queue_core.sessions.sessions import Sessions
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 2.0  # after which a database that says nothing counts as away
SEGMENT_IDS: Final = "SELECT id FROM howdah.segment"


class BackgroundWork:
    """The work on one database, from `start` to `close`. `remembered` says what memory has beside
    messages, to compare with a database that went back in time."""

    def __init__(
        self,
        database: Database,
        vhosts: Mapping[str, Vhost],
        sessions: Sessions,
        remembered: Callable[[], Inventory],
    ) -> None:
        writer, counters, clock = database.writer, database.counters, database.clock
        self.is_reached = True  # as far as the last look at it went
        self.maintenance = Maintenance(
            database.pool, writer, database.book, database.queues, counters, clock
        )
        self.redrive = Redrive(database.reader)
        self.commands = Commands(vhosts, self.redrive, sessions, database.owner.fence)
        self._database = database
        self._outbox = Outbox(vhosts, writer, database.forms, counters, sessions.retained)
        self._remembered = remembered
        self._complain = Complaints(log).warn
        self._doubting: asyncio.Task[None] | None = None  # while a look takes long
        writer.on_new_generation = JournalSnapshot(database.queues, sessions.live_packets)
        writer.on_records = sessions.committed
        database.owner.on_return = self._on_return

    def held_since(self, consumer: int) -> Mapping[int, float]:
        return self.maintenance.consumers.held_since(consumer)

    def start(self) -> None:
        """Begins to write."""
        self._database.writer.start(self._database.found.next_seq)

    async def poll(self) -> int:
        """Takes over what SQL brings, the outbox and what people asked for, and returns how much
        it was. This is also how an idle gateway learns that its database is away."""
        await self._database.writer.uncongested()
        alarm = asyncio.get_running_loop().call_later(ANSWER_SECONDS / 2, self._begin_to_doubt)
        try:
            async with (
                Reachable(self._complain, "the outbox waits"),
                self._database.pool.acquire() as connection,
            ):
                drained = await self._outbox.drain(
                    connection, self._database.clock(), self.commands
                )
            if drained:
                await self._database.writer.flushed()
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
        """Asks whether the database answers at all. A look at the outbox that takes long does not
        tell: it may have much to do, or wait for a lock, a connection or the writer."""
        is_answered = True
        while is_answered:
            is_answered = await self._answers()
            if is_answered:
                await asyncio.sleep(ANSWER_SECONDS / 2)
        self.is_reached = False
        log.warning("the database has not answered for %.0f s; still waiting", ANSWER_SECONDS)

    async def _answers(self) -> bool:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS / 2),
                self._database.engine.connect() as connection,
            ):
                await connection.execute(select(1))
        except (TimeoutError, OSError):
            return False
        except SQLAlchemyError:
            return True  # a refusal is an answer
        return True

    async def _on_return(self, connection: asyncpg.Connection, is_behind: bool) -> None:
        """Looks at the database of the writer's new session, which may be another server's: what
        holds at a start must hold, and all that was committed must be there. Raises Setback."""
        for found in await doctor_checks.safety(connection):
            if found.level is not Level.OK:
                log.warning("%s. Way out: %s", found.what, found.way_out)
        await require_tables(connection)
        segments = {row["id"] for row in await connection.fetch(SEGMENT_IDS)}
        is_torn = self._database.queues.lies_in(self._database.book.segments.keys() - segments)
        is_short = is_behind or not await self._database.commit_check.has_all(connection)
        if is_short or is_torn:
            losses = await self._look_back(connection, is_short=is_short)
            await note_losses(connection, losses)
            self._database.commit_check.note_told()
            raise Setback(
                "the database went back in time: a standby that was behind has become the primary, "
                "a backup was restored, or a segment was given up. Lost: "
                f"{summary(losses) or 'nothing that this gateway knows of'}. All connections end, "
                "and this gateway starts anew from what the tables say; see howdah.loss"
            )
        await self._database.follow(await instance_of(connection))

    async def _look_back(self, connection: asyncpg.Connection, *, is_short: bool) -> list[Loss]:
        """Names what memory holds for committed and the tables do not have; `is_short`: commits
        are missing, not only a table."""
        there = [row["id"] for row in await connection.fetch(QUEUE_IDS)]
        losses = [await self._database.commit_check.lost_commits(connection)] if is_short else []
        # Of all shards: the tables may know nothing of this node's ownership any more.
        found = await recover(connection, ALL_SHARDS)
        losses += find_losses(self._database.queues.queues, there, found)
        return losses + differences(self._remembered(), await read_inventory(connection))

    async def keep_up(self) -> None:
        """Drops segments and generations that are not needed any more."""
        await self._database.commit_check.keep_up()
        async with Reachable(self._complain, "old segments stay"):
            await self.maintenance.run_once()

    async def close(self) -> None:
        """Writes what is there, and lets the database go."""
        database = self._database
        self._outbox.close()
        await database.definitions.close()
        for queue in database.queues.queues.values():
            for cursor in queue.log.cursors:
                end_lease(cursor)
        with suppress(*AWAY, TimeoutError):  # it is for people alone, and not waited for
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.maintenance.end()
        await database.writer.close()
        await database.reader.close()
        await database.engine.dispose()
        await database.inspection.close()
        await database.pool.close()
        database.commit_check.close()


class Reachable:
    """Turns every way in which a driver says that the database is away into StoreUnavailable, and
    says it aloud: the writer may be well, and this alone be what the gateway has no right to, or no
    table for."""

    def __init__(self, complain: Callable[..., None], consequence: str) -> None:
        self._complain = complain
        self._consequence = consequence

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AWAY):
            self._complain("%s: %s; it is tried again", self._consequence, error)
            raise StoreUnavailable(f"the database is out of reach: {error}") from error
