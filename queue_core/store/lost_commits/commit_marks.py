"""Marks of commits: each transaction of the gateway leaves a numbered row in howdah.commit_mark,
and memory knows which numbers must be there.

A database that went back in time lacks the end of the order in which transactions were committed.
Transactions of several connections run side by side, so the newest number alone proves nothing:
`Marks` keeps the few that no later transaction vouches for. One that began after another was
answered vouches for it. Where marks are kept beside the database, `commit_mark_file` answers for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from queue_core.store.log_once import Complaints

log = logging.getLogger(__name__)
complaints = Complaints(log)

PRESENT: Final = "SELECT number FROM howdah.commit_mark WHERE number = ANY($1::int8[])"
EXTENT: Final = """
    SELECT coalesce(max(number), 0) AS number, coalesce(max(messages), 0) AS messages,
           max(committed_at) AS at
    FROM howdah.commit_mark
"""

Reading = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy


@dataclass(frozen=True, slots=True)
class Extent:
    """The newest commit that a database has: its number, and the offsets given by all commits up to
    it."""

    number: int = 0
    messages: int = 0
    at: datetime | None = None  # when the newest one began; None: there is none


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one transaction, taken when it begins."""

    generation: int  # of the journal, whose partition it lies in
    number: int
    messages: int  # offsets given by all commits, with those of this one
    answered: int  # commits that had been answered by then


class Marks:
    """Numbers the transactions of one ownership, and knows which of them prove all others."""

    def __init__(self, extent: Extent | None = None, generation: int = 1) -> None:
        before = extent or Extent()
        # Known to be open. A transaction that looked it up itself could see the number of a new
        # generation before its partitions.
        self.generation = generation
        self.number = before.number  # the highest of a commit that was answered
        self.messages = before.messages  # offsets given by commits that were answered
        self.at = 0.0 if before.at is None else before.at.timestamp()  # of the newest answer
        self.on_commit: Callable[[Marks], None] | None = None
        # Of the server, in sessions that write: a commit with one may be on no standby.
        self.warnings = 0
        self._begun = before.number
        self._answered = 0
        self._unproven: dict[int, int] = {}  # place in the order of answers, by number

    def begin(self, messages: int = 0) -> Mark:
        """Makes the mark of a transaction that gives `messages` offsets to messages."""
        self._begun += 1
        return Mark(self.generation, self._begun, self.messages + messages, self._answered)

    def committed(self, mark: Mark) -> None:
        """Notes that the database has answered this transaction's commit. Every commit that had
        been answered when it began is in the database as surely as this one."""
        self._answered += 1
        held = self._unproven
        self._unproven = {n: place for n, place in held.items() if place > mark.answered}
        self._unproven[mark.number] = self._answered
        self.number = max(self.number, mark.number)
        self.messages = max(self.messages, mark.messages)
        self.at = time.time()
        if self.on_commit is not None:
            self.on_commit(self)

    def on_log(self, _connection: object, said: asyncpg.PostgresLogMessage) -> None:
        """Counts warnings, and says them aloud; for asyncpg's log listeners."""
        if said.severity_en == "WARNING":
            self.warnings += 1
            complaints.warn("the database warns: %s", said.message)

    @property
    def numbers(self) -> list[int]:
        """The marks that must be in the database; with them, everything that was committed is
        there."""
        return list(self._unproven)


async def missing(connection: Reading, numbers: list[int]) -> list[int]:
    """Returns the given mark numbers that the database does not have."""
    present = {row["number"] for row in await connection.fetch(PRESENT, numbers)}
    return sorted(set(numbers) - present)


async def is_committed(connection: Reading, mark: Mark) -> bool:
    """Tells if a transaction whose answer was lost is in the database. PostgreSQL has all of it or
    none."""
    return not await missing(connection, [mark.number])


async def read_extent(connection: Reading) -> Extent:
    row = await connection.fetchrow(EXTENT)
    assert row is not None  # an aggregate without GROUP BY has one row
    return Extent(row["number"], row["messages"], row["at"])
