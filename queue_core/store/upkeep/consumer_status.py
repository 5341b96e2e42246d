"""The table of consumers: who consumes, and which messages each holds, for people who ask in SQL.

Only the gateway's memory knows it. A look goes over all stored queues, in slices, and writes the
rows that changed since the last one, so many at most; an idle gateway writes nothing. No delivery
and no settlement passes by here, so a message counts as in flight since the look that found it
first. The table is not logged; it is emptied when a gateway starts, when it ends, and when a long
reader elsewhere has kept vacuum from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from queue_core.delivery.consumer import UNLIMITED_CREDIT, Consumer
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.intervals import Intervals
from queue_core.errors import InvalidArgument
from queue_core.message.json_arguments import stored
from queue_core.message.message import utc
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.reserved_names import is_own
from queue_core.store.log_once import Complaints
from queue_core.store.write.fence import Fence, fenced
from queue_core.store.write.rows import clean

if TYPE_CHECKING:
    from queue_core.queues.stream import StreamQueue

log = logging.getLogger(__name__)

MOST_CONSUMERS: Final = 10_000  # rows in the table
MOST_WRITTEN: Final = 500  # rows of one look, 10 ms of work; the others follow with the next ones
MOST_LISTED: Final = 1_000  # messages in flight that a consumer's row lists, the oldest first,
MOST_COMPARED: Final = 20_000  # fewer where all consumers together would list more than this,
LEAST_LISTED: Final = 2  # but some of each
SLICE_CURSORS: Final = 200  # looked at in one turn of the event loop,
SLICE_MESSAGES: Final = 2_000  # and messages,
SLICE_ROWS: Final = 100  # and rows made
MOST_CHARACTERS: Final = 256  # of a name that a client chose
MOST_ARGUMENT_BYTES: Final = 4_096
TOO_LONG: Final = '{"howdah": "the arguments are too long to be shown"}'
LARGE_BYTES: Final = 32 * 1024 * 1024  # of the table, with dead rows: then it is begun anew
PATIENCE_LOOKS: Final = 60  # until that is tried again, after a reader was in the way
LOCK_TIMEOUT: Final = "50ms"
LARGEST_INTEGER: Final = 2**31 - 1  # PostgreSQL's
TOO_MANY: Final = "there are more than %d consumers; howdah.consumer_status leaves the others out"

WRITE: Final = """
    INSERT INTO howdah.consumer (
        epoch, noted_at, number, queue_id, group_name, tag, protocol, user_name, client, address,
        arguments, prefetch, priority, is_exclusive, auto_settle, since, state, credit, in_flight,
        held, held_since)
    SELECT $1, $2, t.number, t.queue_id, t.group_name, t.tag, t.protocol, t.user_name, t.client,
        t.address, t.arguments::jsonb, t.prefetch, t.priority, t.is_exclusive, t.auto_settle,
        t.since, t.state, t.credit, t.in_flight, t.held::int8multirange[],
        t.held_since::timestamptz[]
    FROM unnest(
        $3::int8[], $4::int8[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::int4[], $13::int4[], $14::bool[], $15::bool[],
        $16::timestamptz[], $17::text[], $18::int4[], $19::int8[], $20::text[], $21::text[]
    ) AS t (
        number, queue_id, group_name, tag, protocol, user_name, client, address, arguments,
        prefetch, priority, is_exclusive, auto_settle, since, state, credit, in_flight, held,
        held_since)
    ON CONFLICT (number) DO UPDATE
    SET noted_at = EXCLUDED.noted_at, state = EXCLUDED.state, credit = EXCLUDED.credit,
        in_flight = EXCLUDED.in_flight, held = EXCLUDED.held, held_since = EXCLUDED.held_since
"""
REMOVE: Final = "DELETE FROM howdah.consumer WHERE number = ANY ($1::int8[])"
REMOVE_ALL: Final = "DELETE FROM howdah.consumer"
EMPTY: Final = "TRUNCATE howdah.consumer"
SIZE: Final = "SELECT pg_relation_size('howdah.consumer')"

Connection = asyncpg.Connection | PoolConnectionProxy
Held = dict[int, float]  # since when a consumer has which offsets


class Sight(NamedTuple):
    """The columns of a consumer's row that change while it consumes. Arrays are as PostgreSQL reads
    them."""

    state: str
    credit: int | None
    in_flight: int
    held: str
    held_since: str


class ConsumerNotes:
    """Keeps the rows of one gateway's consumers."""

    def __init__(
        self,
        queues: Mapping[int, ClassicQueue | StreamQueue],
        fence: Callable[[], Fence],
        clock: Callable[[], float],
    ) -> None:
        self._queues = queues
        self._fence = fence
        self._clock = clock
        self._complain = Complaints(log).warn
        self._is_begun = False  # the table has no rows of an earlier gateway
        self._written: dict[int, Sight] = {}  # by the number of the consumer
        self._held: dict[int, Held] = {}
        self._patience = 0  # looks until the table is tried to be begun anew

    async def note(self, connection: Connection) -> None:
        """Looks at all consumers of stored queues, and writes the rows that are different."""
        if not self._is_begun:
            await self.clear(connection)
            self._is_begun = True
        now = self._clock()
        seen = await self._look(now)
        gone = list(self._written.keys() - seen.keys())
        changed = [
            (consumer, sight)
            for number, (consumer, sight) in seen.items()
            if self._written.get(number) != sight
        ][:MOST_WRITTEN]
        if not gone and not changed:
            return
        if await self._is_large(connection) and await self._empty(connection):
            return  # all of it is written with the next looks
        rows = await _rows(changed)
        async with fenced(connection, self._fence().unmarked()):
            if gone:
                await connection.execute(REMOVE, gone)
            if rows:
                columns = map(list, zip(*rows, strict=True))
                await connection.execute(WRITE, self._fence().epoch, utc(now), *columns)
        for number in gone:
            del self._written[number]
        self._written |= {consumer.number: sight for consumer, sight in changed}

    def held_since(self, number: int) -> Held:
        """Tells since when a consumer has its messages, by their offsets, as far as the last look
        saw them."""
        return self._held.get(number, {})

    async def clear(self, connection: Connection) -> None:
        """Empties the table: nobody consumes when a gateway starts or ends."""
        if not await self._empty(connection):
            async with fenced(connection, self._fence().unmarked()):
                await connection.execute(REMOVE_ALL)
            self._written.clear()

    async def _empty(self, connection: Connection) -> bool:
        """Truncates the table, dead rows too; False where somebody is reading it."""
        try:
            async with fenced(connection, self._fence().unmarked()):
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                await connection.execute(EMPTY)
        except asyncpg.LockNotAvailableError:
            self._patience = PATIENCE_LOOKS
            return False
        self._written.clear()
        return True

    async def _is_large(self, connection: Connection) -> bool:
        """Tells if dead rows have piled up that vacuum may not remove yet."""
        self._patience = max(0, self._patience - 1)
        return not self._patience and await connection.fetchval(SIZE) > LARGE_BYTES

    # --- looking

    async def _look(self, now: float) -> dict[int, tuple[Consumer, Sight]]:
        """Collects every consumer with its row, by its number."""
        seen: dict[int, tuple[Consumer, Sight]] = {}
        held: dict[int, Held] = {}
        cursors = list(self._cursors())
        count = max(1, sum(len(cursor.consumers) for cursor in cursors))
        share = max(LEAST_LISTED, min(MOST_LISTED, MOST_COMPARED // count))
        compared = 0
        for position, cursor in enumerate(cursors):
            if compared >= SLICE_MESSAGES or position % SLICE_CURSORS == SLICE_CURSORS - 1:
                compared = 0
                await asyncio.sleep(0)
            for consumer in cursor.consumer_set.holders():
                if len(seen) >= MOST_CONSUMERS:
                    self._complain(TOO_MANY, MOST_CONSUMERS)
                    break
                number = consumer.number
                known = self._held.get(number, {})
                has = {o: known.get(o, now) for o in islice(consumer.unsettled, share)}
                compared += len(has)
                if has:
                    held[number] = has
                seen[number] = consumer, self._sight(consumer, has, known)
        self._held = held
        return seen

    def _cursors(self) -> Iterator[Cursor]:
        """Yields the cursors that have consumers or messages in flight. Those of sessions and the
        like come last: where all cannot be listed, the queues that people named are."""
        own: list[Cursor] = []
        for queue in list(self._queues.values()):
            if isinstance(queue, ClassicQueue):
                cursor = queue.cursor
                if not cursor.consumers and not cursor.in_flight:
                    continue
                if is_own(queue.name):
                    own.append(cursor)
                else:
                    yield cursor
            else:
                yield from queue.cursors()
        yield from own

    def _sight(self, consumer: Consumer, has: Held, known: Held) -> Sight:
        written = self._written.get(consumer.number)
        if written is not None and has == known:
            held, held_since = written.held, written.held_since
        else:
            held, held_since = _arrays(has)
        return Sight(_state(consumer), _credit(consumer), len(consumer.unsettled), held, held_since)


def _state(consumer: Consumer) -> str:
    cursor = consumer.cursor
    if consumer.is_closed or consumer.spec.is_passing:
        return "cancelled"
    if not cursor.consumer_set.may_take(consumer):
        return "waiting"
    return "paused" if consumer.is_paused else "active"


def _credit(consumer: Consumer) -> int | None:
    if consumer.spec.replenish and consumer.spec.credit >= UNLIMITED_CREDIT:
        return None
    return max(0, min(consumer.credit, LARGEST_INTEGER))


def _arrays(has: Held) -> tuple[str, str]:
    """Writes offsets in flight as multiranges, and the times since when those of each are held."""
    by_time: dict[float, Intervals] = {}
    for offset, since in has.items():
        by_time.setdefault(since, Intervals()).add(offset)
    held = ",".join(f'"{offsets.text()}"' for offsets in by_time.values())
    held_since = ",".join(f'"{utc(time)}"' for time in by_time)
    return f"{{{held}}}", f"{{{held_since}}}"


async def _rows(changed: list[tuple[Consumer, Sight]]) -> list[tuple[object, ...]]:
    rows = []
    for position, each in enumerate(changed, 1):
        rows.append(_row(*each))
        if position % SLICE_ROWS == 0:
            await asyncio.sleep(0)
    return rows


def _row(consumer: Consumer, sight: Sight) -> tuple[object, ...]:
    cursor, spec = consumer.cursor, consumer.spec
    origin = spec.origin
    is_limited = spec.replenish and spec.credit < UNLIMITED_CREDIT and not spec.is_passing
    return (
        consumer.number,
        cursor.spec.queue_id,
        "" if cursor.requeues else spec.group,
        _text(spec.tag),
        _text(origin.protocol),
        _text(origin.user),
        _text(origin.client),
        _text(origin.address),
        _arguments(spec.arguments),
        spec.credit if is_limited else None,
        spec.priority,
        spec.exclusive,
        spec.auto_settle,
        utc(consumer.since),
        *sight,
    )


def _text(text: str) -> str:
    """Shortens a name that a client chose, and makes it fit for PostgreSQL's text."""
    kept = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
    return clean(kept) or ""


def _arguments(arguments: Mapping[str, object]) -> str:
    try:
        text = msgspec.json.encode(stored(arguments))
    except (InvalidArgument, TypeError, ValueError):
        text = msgspec.json.encode({_text(str(k)): _text(str(v)) for k, v in arguments.items()})
    return text.decode() if len(text) <= MOST_ARGUMENT_BYTES else TOO_LONG
