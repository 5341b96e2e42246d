"""The writer: all durable messages, settlements and records go through here, in one transaction at
a time.

Group commit without a timer: units that gather while one commit runs go into the next, so a batch
is small when little happens (latency) and large under load (throughput). While PostgreSQL is out of
reach the writer holds what it has, and `is_congested` tells the adapters to slow their peers down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

import asyncpg

from queue_core.commit.unit import Record, Unit
from queue_core.commit.waiter import Waiter
from queue_core.counters import Counters
from queue_core.delivery.cursor import Cursor
from queue_core.errors import InvalidArgument, StoreUnavailable
from queue_core.store.log_once import Complaints
from queue_core.store.lost_commits.commit_marks import is_committed
from queue_core.store.ownership import DatabaseInUse, Owner, OwnershipLost
from queue_core.store.retry_rules import AWAY, BAD_DATA, DELETED_MEANWHILE, persist
from queue_core.store.write import statements
from queue_core.store.write.batch import Batch
from queue_core.store.write.fence import Fence, fenced, is_fenced
from queue_core.store.write.journal_generation import JournalGeneration
from queue_core.store.write.segments import NoSegment, Segment, SegmentBook

log = logging.getLogger(__name__)

MOST_UNITS: Final = 2048  # of one transaction, each message of a run counted: the loop waits for it
MOST_BYTES: Final = 16 * 1024 * 1024
SLOW_SECONDS: Final = 2.0  # that a commit may take before it is told of
UNIT_COST_BYTES: Final = 600  # of memory besides the message itself
LOCK_TIMEOUT: Final = "1s"  # that a new generation waits for a reader of the journal

Failures = dict[tuple[int, int], tuple[object, ...]]  # rows by queue and offset


@dataclass(frozen=True, slots=True)
class Notes:
    """The journal's rows besides messages: cursors that moved, deliveries that failed."""

    due: dict[Cursor, None]
    failures: Failures

    @property
    def count(self) -> int:
        return len(self.due) + len(self.failures)

    def apart(self) -> tuple[Notes, Notes]:
        """Splits the notes into two halves, neither of them empty where there are two notes or
        more."""
        if self.due and self.failures:
            return Notes(self.due, {}), Notes({}, self.failures)
        due, failures = list(self.due), list(self.failures.items())
        middle = self.count // 2
        return (
            Notes(dict.fromkeys(due[:middle]), dict(failures[:middle])),
            Notes(dict.fromkeys(due[middle:]), dict(failures[middle:])),
        )


NOTHING: Final = Notes({}, {})
WriteSnapshot = Callable[[asyncpg.Connection, int, Callable[[], int]], Awaitable[None]]


class Writer:
    """Implements the core's `Writer` and the cursors' `Journal`."""

    def __init__(
        self,
        owner: Owner,
        connection: asyncpg.Connection,
        book: SegmentBook,
        counters: Counters,
        clock: Callable[[], float],
        *,
        buffer_bytes: int,
    ) -> None:
        self.submitted = 0  # units, so far
        self.is_connected = True
        self.is_waiting = False  # for a commit that takes its time: somebody may hold a lock
        self.on_new_generation: WriteSnapshot | None = None
        self.on_lost: Callable[[StoreUnavailable], None] | None = None
        self.on_records: Callable[[list[Record]], None] | None = None  # committed ones
        self._owner = owner
        self._book = book
        self._counters = counters
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._units: deque[Unit] = deque()
        self._waiting_units = 0
        self._waiting_bytes = 0
        self._batch_bytes = 0  # of the units that are being written
        self._due: dict[Cursor, None] = {}
        # The last word on each delivery: one that fails again and again while the database is away
        # takes no more memory than one that failed once.
        self._failures: Failures = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._seq = count(1)
        self._journal = JournalGeneration(1, 0)
        self._last_stamp = 0.0
        self._connection: asyncpg.Connection | None = connection  # None: lost
        self._listen(connection)
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._complain = Complaints(log).warn  # clients decide how often

    # --- what the core calls; none of it waits

    def submit(self, unit: Unit) -> None:
        self._units.append(unit)
        self.submitted += 1
        count = len(unit.appends) if unit.is_run else 1
        size = UNIT_COST_BYTES * count
        for _, entry in unit.appends:
            message = entry.message
            size += len(message.body) + len(message.native)
        if unit.records:
            size += unit.retained_bytes()
        self._waiting_units += count
        self._waiting_bytes += size
        if self._waiting_bytes > self._buffer_bytes:
            self._room.clear()
        self._wake.set()

    def note(self, cursor: Cursor) -> None:
        self._due[cursor] = None
        self._wake.set()

    def note_failure(
        self, cursor: Cursor, offset: int, count: int, not_before: float | None, reason: str
    ) -> None:
        self._failures[cursor.spec.queue_id, offset] = statements.redelivery_row(
            cursor.spec.queue_id,
            offset,
            count,
            not_before,
            reason,
            cursor.history.amendments.get(offset),
        )
        self._wake.set()

    @property
    def is_congested(self) -> bool:
        return self._waiting_bytes > self._buffer_bytes

    @property
    def held_bytes(self) -> int:
        """The memory of units that wait for a commit, and of those whose commit is under way."""
        return self._waiting_bytes + self._batch_bytes

    async def uncongested(self) -> None:
        await self._room.wait()

    async def flushed(self) -> None:
        waiter = Waiter()
        self.submit(Unit([], waiter))
        await waiter.done

    # --- life

    def start(self, first_seq: int) -> None:
        self._seq = count(first_seq)
        self._note_generation(self.fence.marks.generation)
        self._task = asyncio.create_task(self._run(), name="howdah writer")

    async def close(self) -> None:
        """Writes what waits, and gives up the ownership of the database."""
        self._is_closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        if self._connection is not None:
            with suppress(*AWAY):
                await self._owner.leave(self._connection)
            await self._connection.close(timeout=10)

    @property
    def fence(self) -> Fence:
        """The fence that every writing transaction of this gateway checks, also those of other
        connections than the writer's."""
        return self._owner.fence

    def next_seq(self) -> int:
        return next(self._seq)

    @property
    def is_generation_full(self) -> bool:
        """Tells if the journal starts a new generation with the next write."""
        return self._journal.is_full(self.fence.marks.number)

    @property
    def generation(self) -> int:
        """The number of the journal's generation in use."""
        return self._journal.number

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._units or self._due or self._failures:
                    await self._write_some()
                if self._is_closing:
                    return
                if not self.is_connected:
                    await self._persist(self._reconnect)
        except OwnershipLost as error:
            log.critical("%s", error)
            await self._refuse_all(error)
        except Exception as error:
            # a bug: better to start again from what is stored than to serve without storing
            log.critical("the writer failed; this gateway stops", exc_info=True)
            await self._refuse_all(StoreUnavailable(f"the writer failed ({error}); see the log"))

    async def _refuse_all(self, error: StoreUnavailable) -> None:
        """Tells that nothing is written any more, and answers whoever waits for a commit until the
        gateway has stopped. Clients get no answer: a batch may be committed without our knowing,
        and their connections end."""
        self.is_connected = False
        if self.on_lost is not None:
            self.on_lost(error)
        while True:
            for unit in self._units:
                if isinstance(unit.publisher, Waiter):
                    unit.publisher.on_refused([], error)
            self._units.clear()
            self._due, self._failures = {}, {}
            self._waiting_units = self._waiting_bytes = 0
            self._room.set()
            if self._is_closing:
                return
            await self._wake.wait()
            self._wake.clear()

    async def _write_some(self) -> None:
        before = self._waiting_bytes
        units = self._take()
        self._batch_bytes = before - self._waiting_bytes
        try:
            await self._write(units)
        except BaseException:
            self._units.extendleft(reversed(units))  # whoever waits for them is to be answered
            raise
        self._batch_bytes = 0
        if self._waiting_bytes <= self._buffer_bytes // 2:
            self._room.set()
        if self.is_generation_full:
            await self._start_generation()

    def _take(self) -> list[Unit]:
        """Takes all waiting units, up to what one transaction should hold; a unit is never
        split."""
        units = self._units
        if self._waiting_units <= MOST_UNITS and self._waiting_bytes <= MOST_BYTES:
            taken = list(units)
            units.clear()
            self._waiting_units = self._waiting_bytes = 0
            return taken
        taken, count, size = [], 0, 0
        while units and count < MOST_UNITS and size < MOST_BYTES:
            unit = units.popleft()
            taken.append(unit)
            count += len(unit.tokens)
            size += unit.size()
        self._waiting_units -= count
        self._waiting_bytes -= UNIT_COST_BYTES * count + size
        return taken

    # --- one batch

    async def _write(self, units: list[Unit], notes: Notes | None = None) -> None:
        """Writes units, with all that the journal has to say by then if no notes are given."""
        batch = await self._number(units)
        if notes is None:
            notes = Notes(self._due, self._failures)
            self._due, self._failures = {}, {}
        try:
            batch.redeliveries = list(notes.failures.values())
            batch.build(self._last_stamp, notes.due, self.next_seq)
        except Exception as error:  # whatever a message's own properties do
            await self._write_apart(batch, notes, error)
            return
        if batch.is_empty:
            await batch.apply(self.on_records)
            return
        try:
            await self._persist(lambda: self._commit(batch))
        except BAD_DATA as error:
            await self._write_apart(batch, notes, error)
            return
        self._note_commit(batch)
        await batch.apply(self.on_records)

    async def _write_apart(self, batch: Batch, notes: Notes, error: Exception) -> None:
        """Writes a refused batch in halves until the bad unit or note stands alone: one bad unit
        must not fail its neighbours, nor what the journal has to say, and one bad note no unit."""
        batch.undo()
        for cursor in batch.cursors:
            if cursor not in notes.due:  # it has a lease that waits to be written
                self._due[cursor] = None
        units = [each for unit in batch.units for each in unit.apart()]
        if units and notes.count:
            await self._write([], notes)
            await self._write(units, NOTHING)
        elif len(units) > 1:
            middle = len(units) // 2
            await self._write(units[:middle], NOTHING)
            await self._write(units[middle:], NOTHING)
        elif notes.count > 1:
            for half in notes.apart():
                await self._write([], half)
        else:
            self._give_up(units, notes, error)

    def _give_up(self, units: list[Unit], notes: Notes, error: Exception) -> None:
        """Refuses units and notes that will never be written, however long one waits, and logs
        them."""
        self._counters.failed_writes += 1
        for queue_id, offset in notes.failures:
            log.error(
                "queue %d: that the delivery of message %d failed cannot be written, and is "
                "forgotten at the next start: %s",
                queue_id,
                offset,
                error,
            )
        if notes.due:
            # the place of a queue is more than one message: better to start again from what is
            # stored than to drop segments that nobody knows to be settled
            raise StoreUnavailable(f"the journal cannot be written: {error}") from error
        if units:
            self._complain("refused by the database, and dropped: %s", error)
            Batch(units, self._book, self.generation).refuse(
                InvalidArgument(
                    f"the message cannot be stored: {error}; leave out what PostgreSQL does not "
                    "hold: NUL and half characters in names and keys, numbers and times out of "
                    "range"
                )
            )

    async def _number(self, units: list[Unit]) -> Batch:
        # never back in time, so that offsets and times have one order
        self._last_stamp = max(self._clock(), self._last_stamp)
        while True:
            batch = Batch(units, self._book, self.generation)
            try:
                batch.number()
                return batch
            except NoSegment as missing:
                batch.undo()
                await self._add_segment(units, missing.series)

    async def _add_segment(self, units: list[Unit], series: int | None) -> None:
        try:
            await self._persist(lambda: self._open_segment(series), DELETED_MEANWHILE)
        except DELETED_MEANWHILE:
            # the stream was deleted meanwhile, and what was on its way goes with it
            for unit in units:
                unit.appends = [each for each in unit.appends if each[0].queue_id != series]

    async def _commit(self, batch: Batch) -> None:
        connection = await self._connected()
        if batch.mark is not None and await is_committed(connection, batch.mark):
            await self._prove()
            self.fence.marks.committed(batch.mark)
            return  # the answer was lost, not the commit
        passage = self.fence.begin(batch.message_count)
        batch.mark = passage.mark
        warnings = self.fence.marks.warnings
        try:
            await statements.write(connection, batch, passage)
        except asyncpg.CheckViolationError as error:
            if error.constraint_name is None:  # no partition: a table is gone, the data is right
                raise asyncpg.UndefinedTableError(str(error)) from error
            raise
        except asyncpg.UniqueViolationError as error:
            raise OwnershipLost(
                f"somebody else wrote into this gateway's queues ({error.detail}); this one stops, "
                "so that no message is mixed up with another"
            ) from error
        if (
            self.fence.marks.warnings != warnings
        ):  # perhaps that the wait for a standby was cancelled, and it committed
            await self._prove()

    async def _prove(self) -> None:
        """Commits nothing but a mark, after a commit that was not answered. Where standbys are
        waited for, that one may be visible here and on no standby, because its wait was cut off;
        this one's answer tells that they have all that was committed before it."""
        connection = await self._connected()
        async with fenced(connection, self.fence.begin()):
            pass

    async def _persist(
        self,
        attempt: Callable[[], Awaitable[None]],
        hopeless: tuple[type[Exception], ...] = BAD_DATA,
    ) -> None:
        async def pause(count: int) -> None:
            self.is_connected = False
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            await asyncio.sleep(min(0.05 * 2**count, 2.0))

        async def try_once() -> None:
            try:
                await attempt()
            except asyncpg.PostgresError as error:
                if is_fenced(error):
                    raise OwnershipLost(f"{error.args[0]}; this one stops") from error
                raise

        alarm = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._on_silence)
        try:
            await persist(try_once, pause, hopeless)
        except hopeless:
            self._note_answer()
            raise
        finally:
            alarm.cancel()
        self._note_answer()

    def _on_silence(self) -> None:
        self.is_waiting = True
        if self.is_connected:  # else that is known already
            log.warning(
                "a commit waits for %.0f s, and all durable messages with it; `howdah doctor` "
                "names who holds a lock that it needs",
                SLOW_SECONDS,
            )

    def _note_answer(self) -> None:
        """Notes that the database took a write. A connection alone is not enough: a full disk takes
        connections, too."""
        if self.is_waiting:
            self.is_waiting = False
            if self.is_connected:
                log.info("commits go through again")
        if not self.is_connected:
            self.is_connected = True
            log.info("database is back")

    # --- the connection

    async def _connected(self) -> asyncpg.Connection:
        connection = self._connection
        if connection is None or connection.is_closed():
            self.is_connected = False
            self._connection = connection = await self._owner.reconnect()
            self._listen(connection)
        return connection

    def _listen(self, connection: asyncpg.Connection) -> None:
        connection.add_termination_listener(self._on_hang_up)
        connection.add_log_listener(self.fence.marks.on_log)

    async def _reconnect(self) -> None:
        await self._connected()

    def _on_hang_up(self, connection: object) -> None:
        """Wakes the writer when its connection is lost, also while there is nothing to write:
        without the connection there is no lock, and another gateway may take the database."""
        if connection is self._connection:
            self.is_connected = False
            self._wake.set()

    def _note_commit(self, batch: Batch) -> None:
        counters = self._counters
        counters.commits += 1
        counters.committed_messages += batch.message_count
        self._journal.rows_beside_marks += (
            len(batch.settlements)
            + len(batch.redeliveries)
            + len(batch.packets)
            + len(batch.duplicates)
        )
        batch.note_in_book(self._last_stamp)

    # --- segments and generations

    async def _open_segment(self, series: int | None) -> None:
        connection = await self._connected()
        earlier = self._book.open_segment(series)
        async with fenced(connection, self.fence.begin()):
            if earlier is not None:
                await statements.seal(connection, earlier)
            number = await connection.fetchval(
                statements.CREATE_SEGMENT, series, self.fence.node.id
            )
        self._book.add(Segment(number, series, self._clock()))

    async def _start_generation(self) -> None:
        """Starts a new generation of the journal, if that can be done now. It can wait: no message
        is held up or refused because the journal grows for a while."""
        try:
            await self._rotate()
        except OwnershipLost:
            raise
        except (*AWAY, *BAD_DATA, DatabaseInUse) as error:
            self._counters.failed_generations += 1
            self._journal.put_off(self.fence.marks.number)
            log.error(
                "the journal cannot start again, and grows until it can: %s; the next try comes "
                "with the next writes",
                error,
            )
            await self._persist(self._find_generation)

    async def _rotate(self) -> None:
        """Writes the journal's whole state into a new generation, after which this node's earlier
        ones may be dropped."""
        connection, node = await self._connected(), self.fence.node.id
        async with fenced(connection, self.fence.begin()):
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            generation: int = await connection.fetchval(statements.OPEN_GENERATION, node)
            if self.on_new_generation is not None:
                await self.on_new_generation(connection, generation, self.next_seq)
            await connection.execute(statements.SET_GENERATION, generation, node)
        self._note_generation(generation)

    async def _find_generation(self) -> None:
        """Looks up a new generation whose commit was not answered. PostgreSQL has the whole of it
        or none."""
        connection = await self._connected()
        node = self.fence.node.id
        found: int = await connection.fetchval(statements.NEWEST_GENERATION, node)
        if found != self.generation:
            self._note_generation(found)

    def _note_generation(self, generation: int) -> None:
        self.fence.marks.generation = generation
        self._journal = JournalGeneration(generation, self.fence.marks.number)
