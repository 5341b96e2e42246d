"""The fence: no transaction of a gateway commits once that gateway is gone.

Every writing transaction takes the lock of its node, shared, and then looks at the node's row;
whoever fences the node takes that lock alone, so each transaction of it is either committed by then
or finds that the node is gone. That holds whatever becomes of sessions and of the locks that they
hold, behind a pooler as well. The same call leaves the mark of the transaction (`marks`), so that
nothing is committed without one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import asyncpg

from queue_core.store.lost_commits.commit_marks import Mark, Marks
from queue_core.store.nodes.rows import NodeLife

# The look comes after the lock, and must see what was committed while the lock was waited for: each
# statement needs its own view, whatever a DBA has made the default.
READ_COMMITTED: Final = "SET default_transaction_isolation = 'read committed'"
FENCED: Final = "HW001"  # the SQLSTATE of howdah.hold() for a node that is gone


@dataclass(frozen=True, slots=True)
class Fence:
    """One ownership of the database: the node that has it, its epoch, and when it began. Two
    gateways may come to the same epoch, where the database went back in time between them; not at
    the same moment."""

    node: NodeLife
    epoch: int
    started_at: datetime
    marks: Marks = field(default_factory=Marks)

    @property
    def ownership(self) -> tuple[int, datetime]:
        return self.epoch, self.started_at

    def begin(self, messages: int = 0) -> Passage:
        """Makes the passage of a transaction that gives `messages` offsets to messages."""
        return Passage(self, self.marks.begin(messages))

    def unmarked(self) -> Passage:
        """Makes the passage of a transaction that nobody would miss, such as a note of what memory
        knows: it leaves no mark, so its loss alone does not count as lost commits."""
        return Passage(self, None)


@dataclass(frozen=True, slots=True)
class Passage:
    """One transaction's pass through the fence, with the commit mark that it leaves there."""

    fence: Fence
    mark: Mark | None

    @property
    def arguments(self) -> tuple[int | datetime | None, ...]:
        node, mark = self.fence.node, self.mark
        if mark is None:
            return node.id, node.started_at, None, None, None
        return node.id, node.started_at, mark.generation, mark.number, mark.messages

    @property
    def check(self) -> str:
        """The statement that fails with FENCED where this node is gone."""
        node = self.fence.node
        moment = f"'{node.started_at.isoformat()}'::timestamptz"
        marked = ("NULL" if each is None else str(each) for each in self.arguments[2:])
        return f"SELECT howdah.hold({node.id}, {moment}, {', '.join(marked)})"

    def committed(self) -> None:
        """Notes that the database has answered the transaction's commit."""
        if self.mark is not None:
            self.fence.marks.committed(self.mark)


ARGUMENT_COUNT: Final = 5
CHECK: Final = "SELECT howdah.hold($1, $2, $3, $4, $5)"


def condition(first: int) -> str:
    """Makes the fence's check as part of a larger statement, with a passage's arguments from number
    `first` on: a subquery, which is asked once and not for each row."""
    arguments = ", ".join(f"${number}" for number in range(first, first + ARGUMENT_COUNT))
    return f"(SELECT howdah.hold({arguments}))"


@asynccontextmanager
async def fenced(
    connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy[Any], passage: Passage
) -> AsyncIterator[None]:
    """Opens a transaction behind the fence, on the writer's session or for what nobody would
    miss."""
    async with _opened(connection, passage):
        yield
    passage.committed()


@asynccontextmanager
async def fenced_on_pool(
    connection: asyncpg.pool.PoolConnectionProxy[Any], passage: Passage
) -> AsyncIterator[None]:
    """Opens a transaction behind the fence on a session of the pool. After a commit that came with
    a warning another mark is committed: the wait for a standby may have been cancelled, and this
    one's answer tells that the standby has both."""
    marks = passage.fence.marks
    before = marks.warnings
    connection.add_log_listener(marks.on_log)
    try:
        async with _opened(connection, passage):
            yield
        if marks.warnings != before:
            async with fenced(connection, passage.fence.begin()):
                pass
    finally:
        with suppress(asyncpg.InterfaceError):  # the session has ended, and its listeners with it
            connection.remove_log_listener(marks.on_log)
    passage.committed()


@asynccontextmanager
async def _opened(
    connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy[Any], passage: Passage
) -> AsyncIterator[None]:
    """Opens a transaction. BEGIN and the check of the owner are one round trip."""
    try:
        await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {passage.check}")
        yield
        await connection.execute("COMMIT")
    except BaseException:
        if not connection.is_closed():
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.execute("ROLLBACK")
        raise


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == FENCED
