"""The outbox: messages that applications insert in their own transactions.

Committed rows are routed like any publish, and deleted in the transaction that appends the
messages: exactly once, and nobody waits for a lock of ours. Polled, because NOTIFY would make
every committing application wait for one global lock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import asyncpg

from queue_core.counters import Counters
from queue_core.errors import CoreError, LimitExceeded
from queue_core.message import Message
from queue_core.outcomes import Published
from queue_core.store.rows import Forms, message_from_row
from queue_core.store.writer import Writer
from queue_core.units import OutboxRecord, Unit

if TYPE_CHECKING:
    from queue_core.retained import Retained
    from queue_core.units import Record
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

CHUNK: Final = 1000
RESCAN: Final = 5.0  # seconds
ROWS: Final = f"""
    SELECT o.*, pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS oldest_running,
           pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next_to_run
    FROM howdah.outbox o WHERE o.id > $1 AND o.id <> ALL($2::int8[]) ORDER BY o.id LIMIT {CHUNK}
"""


class Outbox:
    def __init__(
        self,
        vhosts: Mapping[str, Vhost],
        writer: Writer,
        forms: Forms,
        counters: Counters,
        retained: Retained,
    ) -> None:
        self._retained = retained
        self._vhosts = vhosts
        self._writer = writer
        self._forms = forms
        self._counters = counters
        self._under_way: set[int] = set()
        # All up to `_low` is known to be drained or rolled back: scans start behind it, and behind
        # the dead rows that a long reader keeps from being vacuumed.
        self._low = 0
        self._candidate: tuple[int, int] | None = None
        self._next_rescan = 0.0

    async def drain(self, connection: asyncpg.pool.PoolConnectionProxy, now: float) -> int:
        """Publishes what has been committed; the number of messages."""
        if now >= self._next_rescan:
            # a transaction may take its number from the sequence long before it shows
            self._low, self._next_rescan = 0, now + RESCAN
        rows = await connection.fetch(ROWS, self._low, list(self._under_way))
        for row in rows:
            self._publish(row)
        if rows:
            self._move_low(rows)
        return len(rows)

    def _move_low(self, rows: list[asyncpg.Record]) -> None:
        """Rows that were not to be seen when the candidate was noted have shown themselves by the
        time that every transaction of then has ended."""
        last = rows[-1]
        if self._candidate is None:
            self._candidate = (last["id"], last["next_to_run"])
        elif last["oldest_running"] >= self._candidate[1]:
            self._low = max(self._low, min(self._candidate[0], last["id"]))
            self._candidate = None

    def _publish(self, row: asyncpg.Record) -> None:
        outbox_id: int = row["id"]
        self._under_way.add(outbox_id)
        self._counters.outbox_drained += 1
        message = message_from_row(row, self._forms)  # type: ignore[arg-type]
        not_before = row["not_before"]
        message.not_before = None if not_before is None else not_before.timestamp()
        message.publisher = row["publisher"] or row["requested_by"]
        records: list[Record] = [OutboxRecord(outbox_id)]
        if row["retain"]:
            try:
                records.append(self._retained.record(row["vhost"], message, 1))
            except LimitExceeded as error:
                log.warning("outbox row %d is published, but not retained: %s", outbox_id, error)
        self._route(row["vhost"], message, tuple(records), outbox_id)

    def _route(
        self, vhost_name: str, message: Message, records: tuple[Record, ...], outbox_id: int
    ) -> None:
        vhost = self._vhosts.get(vhost_name)
        where = f"exchange '{message.exchange}' with key '{message.routing_key}'"
        try:
            if vhost is None:
                raise CoreError(f"vhost '{vhost_name}' does not exist")
            result = vhost.publish(message, self, outbox_id, records)
        except CoreError as error:
            log.warning("outbox row %d dropped: %s", outbox_id, error)
            self._counters.unroutable += 1
            self._writer.submit(Unit([], self, outbox_id, None, records))
            return
        if result is Published.PENDING:
            if not vhost.has_route(message):
                self._counters.unroutable += 1
                log.warning("outbox row %d: nothing is bound for %s; dropped", outbox_id, where)
        elif result is Published.REFUSED:
            log.warning("outbox row %d: a queue behind %s is full; dropped there", outbox_id, where)
            self._writer.submit(Unit([], self, outbox_id))  # behind the unit that takes the row

    # --- the writer's publisher

    def on_committed(self, tokens: list[int]) -> None:
        self._under_way.difference_update(tokens)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        """Stays under way, so that it is not tried again at once; a restart tries once more."""
        log.error("outbox rows %s cannot be stored: %s", tokens, error)
