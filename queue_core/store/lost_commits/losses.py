"""Losses: things that were committed and that the database does not know any more. They are found
by comparing the tables with the memory of a gateway that has been running, and kept in howdah.loss.

A primary that is replaced by a standby that was behind, a restored backup, a partition that was
given up: in each case messages are gone that publishers hold for stored. Their offsets are not
given again, so that no consumer, export or archive takes one message for another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import asyncpg

from queue_core.queues.classic import ClassicQueue
from queue_core.queues.stream import StreamQueue
from queue_core.store.lost_commits.commit_marks import Extent
from queue_core.store.read.recovery import Recovered

log = logging.getLogger(__name__)

SETBACK: Final = "setback"
UNPROVEN: Final = "unproven"
TORN: Final = "torn"
NAMED_AT_MOST: Final = 20  # losses in one line of the log; howdah.loss has them all

INSERT_LOSSES: Final = """
    INSERT INTO howdah.loss (cause, vhost, queue, queue_id, first_offset, end_offset, detail)
    SELECT * FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int8[], $7::text[])
"""
QUEUE_IDS: Final = "SELECT id FROM howdah.queue"

Stored = ClassicQueue | StreamQueue


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that is gone; `first` and `end` bound the offsets that have no message now."""

    cause: str
    detail: str
    vhost: str | None = None
    queue: str | None = None
    queue_id: int | None = None
    first: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        return self.detail


def find_losses(
    queues: Mapping[int, Stored], there: Iterable[int], found: Recovered
) -> Iterator[Loss]:
    """Finds messages that memory holds for committed and the tables do not have. `there` are the
    ids of the queues that the tables know."""
    known = set(there)
    for queue_id, queue in queues.items():
        if queue.is_deleted:
            continue
        if queue_id not in known:
            yield _gone(queue)
            continue
        tail = found.end_of(queue_id, is_stream=queue.log.is_stream)
        if tail < queue.log.tail:
            yield _cut_off(queue, tail)


def missing_commits(number: int, until: float, found: Extent) -> Loss:
    """Makes the loss of commits up to `number`, the last of them committed at `until`; `found` is
    the newest commit that the tables still have."""
    since = "the beginning" if found.at is None else moment(found.at.timestamp())
    count = max(number - found.number, 1)
    return Loss(
        SETBACK,
        f"up to {count} commits, made from {since} to {moment(until)}. Acknowledgements among them "
        "are not named one by one: what consumers and sessions settled last is delivered again, "
        "marked as redelivered where that is known",
    )


def skipped(vhost: str, name: str, queue_id: int, first: int, messages: int) -> Loss:
    """Makes the loss of a queue's offsets that are not given any more: `messages` were lost of all
    queues together, and nobody knows of which."""
    end = first + messages
    return Loss(
        SETBACK,
        f"up to {messages} messages of queue '{name}' in virtual host '{vhost}', if they were all "
        f"its own: offsets {first} to {end - 1} are not given, numbers go on at {end}",
        vhost,
        name,
        queue_id,
        first,
        end,
    )


def _gone(queue: Stored) -> Loss:
    vhost, tail = queue.context.vhost_name, queue.log.tail
    return Loss(
        SETBACK,
        f"queue '{queue.name}' of virtual host '{vhost}' with all {queue.counts().waiting} "
        "messages in it: it was declared after the moment that the database is back at",
        vhost,
        queue.name,
        None,  # the number may be given to another queue, whose offsets begin at 0
        0,
        tail,
    )


def _cut_off(queue: Stored, tail: int) -> Loss:
    vhost, end = queue.context.vhost_name, queue.log.tail
    done = ""
    if isinstance(queue, ClassicQueue):
        settled = queue.cursor.settled
        count = max(0, settled.floor - tail) + settled.above.size_between(tail, end)
        done = f", of which consumers had settled {count}" if count else ""
    return Loss(
        SETBACK,
        f"{end - tail} messages of queue '{queue.name}' in virtual host '{vhost}', offsets {tail} "
        f"to {end - 1}{done}",
        vhost,
        queue.name,
        queue.log.queue_id,
        tail,
        end,
    )


async def note_losses(
    connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy, losses: Sequence[Loss]
) -> None:
    """Writes losses into howdah.loss, for the DBA and for the next start, which numbers on behind
    them. Where the table is missing (an older schema came back), the log alone has them."""
    if not losses:
        return
    for loss in losses[:NAMED_AT_MOST]:
        said = "lost by the database: %s" if loss.cause != UNPROVEN else "%s"
        log.critical(said, loss)
    if len(losses) > NAMED_AT_MOST:
        log.critical("and %d more: see howdah.loss", len(losses) - NAMED_AT_MOST)
    rows = [
        (each.cause, each.vhost, each.queue, each.queue_id, each.first, each.end, each.detail)
        for each in losses
    ]
    try:
        await connection.execute(INSERT_LOSSES, *map(list, zip(*rows, strict=True)))
    except asyncpg.UndefinedTableError as error:
        log.critical("these losses cannot be written down: %s", error)


async def count_losses(connection: asyncpg.Connection) -> int:
    """Counts what is in howdah.loss; a DBA may have deleted some."""
    count: int = await connection.fetchval("SELECT count(*) FROM howdah.loss")
    return count


def summary(losses: Sequence[Loss]) -> str:
    shown = "; ".join(str(loss) for loss in losses[:NAMED_AT_MOST])
    more = len(losses) - NAMED_AT_MOST
    return shown + (f"; and {more} more" if more > 0 else "")


def moment(seconds: float) -> str:
    """Formats a Unix time for people, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
