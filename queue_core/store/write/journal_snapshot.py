"""The journal's snapshot: writes its whole state when it starts a new generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import asyncpg

from queue_core.commit.unit import PacketRecord
from queue_core.delivery.settled_offsets import Settled
from queue_core.message.message import utc
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.deduplication_by_message_id import Window
from queue_core.queues.stream import StreamQueue
from queue_core.store.queue_store import QueueStore
from queue_core.store.write import statements


class JournalSnapshot:
    def __init__(self, queues: QueueStore, packets: Callable[[], Iterable[PacketRecord]]) -> None:
        self._queues = queues
        self._packets = packets

    async def __call__(
        self, connection: asyncpg.Connection, generation: int, seq: Callable[[], int]
    ) -> None:
        settlements: list[tuple[object, ...]] = []
        failures: list[tuple[object, ...]] = []
        duplicates: list[tuple[object, ...]] = []
        for queue_id, queue in self._queues.queues.items():
            if isinstance(queue, StreamQueue):
                for group, settled in queue.groups().items():
                    lease = queue.lease_of(group)
                    settlements.append(_settlement(seq(), queue_id, group, settled, lease))
                continue
            cursor = queue.cursor
            settlements.append(_settlement(seq(), queue_id, "", cursor.settled, cursor.lease.asked))
            delays, amendments = cursor.delayed.returned_until(), cursor.history.amendments
            unfailed = dict.fromkeys((*delays, *amendments), 0)
            for offset, count in ({**unfailed, **cursor.history.failures}).items():
                until, added = delays.get(offset), amendments.get(offset)
                row = statements.redelivery_row(queue_id, offset, count, until, "", added)
                failures.append(row)
            duplicates += _ids(queue_id, queue)
        packets = [
            (seq(), p.session_id, int(p.is_outgoing), p.packet_id, p.state, p.queue_id, p.offset)
            for p in self._packets()
        ]
        for statement, rows in (
            (statements.INSERT_SETTLEMENTS, settlements),
            (statements.INSERT_REDELIVERIES, failures),
            (statements.INSERT_DUPLICATES, duplicates),
            (statements.INSERT_PACKETS, packets),
        ):
            if rows:
                await statements.insert(connection, statement, rows, generation)


def _settlement(
    seq: int, queue_id: int, group: str, settled: Settled, lease: int
) -> tuple[object, ...]:
    return (seq, queue_id, group, settled.floor, settled.above.text(), True, lease)


def _ids(queue_id: int, queue: ClassicQueue) -> list[tuple[object, ...]]:
    if not isinstance(queue.window, Window):
        return []
    return [(queue_id, message_id, utc(at)) for message_id, at in queue.window.stored()]
