"""Checks that a database has every commit that was answered: by the marks of commits in memory
while the gateway runs, and by the record of them beside the database when it starts.

`judge` and `begin` are for a start, `has_all` for a reconnect. Whatever is found missing is written
into howdah.loss, and numbers of offsets go on behind what may have been given; then the record
begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import asyncpg

from queue_core.delivery.intervals import Intervals
from queue_core.queues.spec import QueueKind
from queue_core.store.lost_commits.commit_mark_file import MarkFile, boot_id, find_record
from queue_core.store.lost_commits.commit_marks import missing, read_extent
from queue_core.store.lost_commits.losses import Loss, missing_commits, note_losses, skipped
from queue_core.store.lost_commits.ownership_history import Past, Shortfall, judge
from queue_core.store.read.recovery import Recovered
from queue_core.store.tables.definitions import StoredQueue
from queue_core.store.write.fence import Fence

log = logging.getLogger(__name__)


class CommitCheck:
    """Checks the commits of one ownership. `folder` is where records are kept; None: nowhere."""

    def __init__(self, folder: Path | None, fence: Fence, past: Past) -> None:
        self._folder = folder
        self._past = past
        self._marks = fence.marks
        self._file = MarkFile(folder, past, *fence.ownership)

    async def judge(self, connection: asyncpg.Connection) -> Shortfall | None:
        """Compares the database with the record of the gateway before, and returns what is missing.
        For before the first commit: its mark has the number of one that was lost."""
        record = find_record(self._folder, self._past)
        lacking = [] if record is None else await missing(connection, record.numbers)
        return judge(record, self._past, lacking, boot_id())

    async def begin(
        self,
        connection: asyncpg.Connection,
        shortfall: Shortfall | None,
        found: Recovered,
        queues: Iterable[StoredQueue],
    ) -> None:
        """Says what is missing, and begins a record of its own. `found` learns of offsets that are
        not to be given."""
        if shortfall is not None:
            losses = [Loss(shortfall.cause, shortfall.detail)]
            if shortfall.messages:
                losses += [_skip(found, queue, shortfall.messages) for queue in queues]
            await note_losses(connection, losses)
        self._file.open(self._marks)

    async def has_all(self, connection: asyncpg.Connection) -> bool:
        """Tells if the database of a new connection has every commit that was answered."""
        return not await missing(connection, self._marks.numbers)

    async def lost_commits(self, connection: asyncpg.Connection) -> Loss:
        return missing_commits(self._marks.number, self._marks.at, await read_extent(connection))

    def note_told(self) -> None:
        """Ends the record after losses were reported: the next start need not find them again."""
        self._file.close(self._marks, is_told=True)

    async def keep_up(self) -> None:
        await self._file.keep_up()

    def close(self) -> None:
        """Ends the record when the gateway stops in order; one that has ended already stays as it
        is."""
        self._file.close(self._marks)

    def abandon(self) -> None:
        self._file.abandon()


def _skip(found: Recovered, queue: StoredQueue, messages: int) -> Loss:
    is_stream = queue.spec.kind is QueueKind.STREAM
    first = found.end_of(queue.id, is_stream=is_stream)
    found.gaps.setdefault(queue.id, Intervals()).add_range(first, first + messages)
    return skipped(queue.vhost, queue.spec.name, queue.id, first, messages)
