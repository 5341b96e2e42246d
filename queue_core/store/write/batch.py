"""A batch: the rows of one transaction, and what its commit or its failure means for queues.

Offsets are given here, just before the write: what fails is not numbered, so numbers have no gaps.
Building has no effect on queues or cursors that cannot be taken back (`undo`); what the commit
makes true happens in `apply`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from queue_core.commit.queue_log import Log
from queue_core.commit.unit import (
    OutboxRecord,
    PacketRecord,
    Publisher,
    Record,
    RetainedRecord,
    Unit,
    WillRecord,
)
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.intervals import Intervals
from queue_core.errors import CoreError, InvalidArgument
from queue_core.message.message import utc
from queue_core.queues.deduplication_by_message_id import id_of
from queue_core.store.lost_commits.commit_marks import Mark
from queue_core.store.shards import shard_of
from queue_core.store.write.rows import (
    Run,
    content_values,
    is_rich,
    narrow_row,
    rich_columns,
    run_of,
)
from queue_core.store.write.segments import SegmentBook

log = logging.getLogger(__name__)

SHARED_BODY_BYTES: Final = 4096  # from which a body for several queues is stored once
MOST_FULL_ROW_RANGES: Final = 64  # with more settled ranges, a row says only what is new
FULL_ROW_INTERVAL_ROWS: Final = 64  # partial rows before one says everything again
PIECE_ENTRIES: Final = 256  # of a committed batch that queues take before others have a turn


GONE: Final = InvalidArgument(
    "the message that this one repeats could not be stored after all; publish it again"
)


class Batch:
    """The units that one transaction writes, and their rows."""

    def __init__(self, units: list[Unit], book: SegmentBook, generation: int) -> None:
        self.units = units
        self.generation = generation
        self.rows: list[tuple[object, ...]] = []
        self.run: Run | None = None  # instead of rows, where these differ by body alone
        self.mark: Mark | None = None  # of the last try to write it; None: it was not tried yet
        self.is_rich = False  # rows have the rich columns, too
        self.bodies: list[tuple[int, int, bytes]] = []  # segment, id, body
        self.settlements: list[tuple[object, ...]] = []
        self.redeliveries: list[tuple[object, ...]] = []
        self.duplicates: list[tuple[object, ...]] = []
        self.packets: list[tuple[object, ...]] = []
        # What becomes of topics: their row, or None where it goes. Made here and not while it is
        # written: whatever a message's properties do is that message's fault, and seen as such.
        self.retained: dict[tuple[str, str], dict[str, object] | None] = {}
        self.outbox: list[tuple[int, tuple[str, ...]]] = []
        self.wills: list[tuple[str, str]] = []
        self.entries: dict[Log, list[Entry]] = {}
        self._segment_of: dict[Log, int] = {}
        self._book = book
        self._appended: list[tuple[int, Log, Entry, int | None]] = []
        self._leases: list[tuple[Cursor, int]] = []
        self._written: list[tuple[Cursor, Intervals]] = []

    @property
    def is_empty(self) -> bool:
        return not (
            self._appended
            or self.settlements
            or self.redeliveries
            or self.packets
            or self.retained
            or self.outbox
            or self.wills
            or self.duplicates
        )

    # --- building

    def number(self) -> None:
        """Gives each entry its offset and its segment. Raises NoSegment."""
        for unit in self.units:
            if unit.appends:
                self._number(unit)

    def build(self, now: float, cursors: Iterable[Cursor], seq: Callable[[], int]) -> None:
        """Builds all rows; `number` comes before."""
        moved: list[tuple[Cursor, Entry]] = []
        for unit in self.units:
            if unit.records:
                self._add_records(unit, seq)
            if unit.moves:
                moved += unit.moves
        self._make_rows(now)
        due = dict.fromkeys(cursors)
        for each in self.entries:
            for cursor in each.cursors:
                if cursor.journal is None or not cursor.consumers:
                    continue
                if cursor.lease.extend(each.next_offset):
                    due[cursor] = None
        for cursor in due:
            self._add_settlement(cursor, seq())
        for cursor, entry in moved:  # after the rows above: a full one would hide them
            if cursor.journal is not None:
                acked = f"{{[{entry.offset},{entry.offset + 1})}}"
                self.settlements.append(
                    (seq(), cursor.spec.queue_id, cursor.spec.group, 0, acked, False, 0)
                )

    def _number(self, unit: Unit) -> None:
        for each, entry in unit.appends:
            held = self.entries.get(each)
            if held is None:
                segment = self._segment_of[each] = self._book.segment_of(each)
                self.entries[each] = [entry]
            else:
                segment = self._segment_of[each]
                held.append(entry)
            entry.offset = offset = each.next_offset
            each.next_offset = offset + 1
            self._appended.append((segment, each, entry, None))
        if len(unit.appends) > 1 and not unit.is_run:
            self._share_body(len(unit.appends))

    def _share_body(self, count: int) -> None:
        """Stores a large body once a segment if several of the last `count` appends are copies of
        one message. (A transaction's appends may be of several messages.)"""
        copies = self._appended[-count:]
        if all(len(entry.message.body) < SHARED_BODY_BYTES for _, _, entry, _ in copies):
            return
        numbers = Counter((segment, id(entry.message)) for segment, _, entry, _ in copies)
        ids: dict[tuple[int, int], int] = {}
        for i, (segment, each, entry, _) in enumerate(copies, len(self._appended) - count):
            message, key = entry.message, (segment, id(entry.message))
            if len(message.body) < SHARED_BODY_BYTES or numbers[key] == 1:
                continue
            if key not in ids:
                ids[key] = self._book.next_body_id()
                self.bodies.append((segment, ids[key], message.body))
            self._appended[i] = (segment, each, entry, ids[key])
        self.is_rich = self.is_rich or bool(ids)

    def _make_rows(self, now: float) -> None:
        stamp = utc(now)
        assert stamp is not None
        appended = self._appended
        if len(self.entries) == 1 and not self.is_rich:
            ((each, entries),) = self.entries.items()
            samples = (
                entry
                for unit in self.units
                for _, entry in (unit.appends[:1] if unit.is_run else unit.appends)
            )
            self.run = run_of(self._segment_of[each], each.queue_id, entries, stamp, samples)
        if self.run is None:
            self.is_rich = self.is_rich or any(is_rich(entry) for _, _, entry, _ in appended)
            self.rows = [
                narrow_row(s, each.queue_id, e, stamp, e.message.body if body_id is None else None)
                for s, each, e, body_id in appended
            ]
            if self.is_rich:
                self.rows = [
                    row + rich_columns(entry, body_id)
                    for row, (_, _, entry, body_id) in zip(self.rows, appended, strict=True)
                ]
        for each in self.entries:
            if each.remembers_ids:
                self._add_ids(each, stamp)

    def _add_ids(self, each: Log, stamp: datetime) -> None:
        for entry in self.entries[each]:
            if entry.message.deaths:
                continue  # the window did not look at it either
            message_id = id_of(entry.message)
            if message_id is not None:
                self.duplicates.append((each.queue_id, message_id, stamp))

    def _add_records(self, unit: Unit, seq: Callable[[], int]) -> None:
        for record in unit.records:
            match record:
                case PacketRecord():
                    self.packets.append(
                        (
                            seq(),
                            record.session_id,
                            int(record.is_outgoing),
                            record.packet_id,
                            record.state,
                            record.queue_id,
                            record.offset,
                        )
                    )
                case RetainedRecord():
                    key = record.vhost, record.topic
                    self.retained[key] = retained_values(record) if record.message else None
                case OutboxRecord():
                    self.outbox.append((record.outbox_id, record.waiting_for))
                case WillRecord():
                    self.wills.append((record.vhost, record.client_id))

    def _add_settlement(self, cursor: Cursor, seq: int) -> None:
        settled = cursor.settled
        unwritten, settled.unwritten = settled.unwritten, Intervals()
        self._written.append((cursor, unwritten))
        self._leases.append((cursor, cursor.lease.asked))
        is_full = (
            settled.above.range_count() <= MOST_FULL_ROW_RANGES
            or settled.rows_since_full >= FULL_ROW_INTERVAL_ROWS
        )
        settled.rows_since_full = 0 if is_full else settled.rows_since_full + 1
        acked = settled.above if is_full else unwritten
        self.settlements.append(
            (
                seq,
                cursor.spec.queue_id,
                cursor.spec.group,
                settled.floor,
                acked.text(),
                is_full,
                cursor.lease.asked,
            )
        )

    @property
    def cursors(self) -> list[Cursor]:
        """The cursors whose settlements this batch writes."""
        return [cursor for cursor, _ in self._written]

    @property
    def message_count(self) -> int:
        return len(self._appended)

    @property
    def segments(self) -> set[int]:
        return set(self._segment_of.values())

    def note_in_book(self, now: float) -> None:
        """Counts the written messages in their segments, and cuts those that are full."""
        for each, entries in self.entries.items():
            segment = self._segment_of[each]
            if self.run is not None:  # of the only log
                size = self.run.size
            else:
                size = sum([len(e.message.body) + len(e.message.native) for e in entries])
            self._book.count(segment, len(entries), size, now)
            self._book.cut(segment, each, now)

    # --- ending

    def undo(self) -> None:
        """Takes back a write that was refused: its offsets are free again, and its settlements are
        to be written again."""
        for each, entries in self.entries.items():
            each.next_offset -= len(entries)
        for cursor, unwritten in self._written:
            for start, end in unwritten:
                cursor.settled.unwritten.add_range(start, end)
            cursor.settled.demand_full_row()

    async def apply(self, committed: Callable[[list[Record]], None] | None = None) -> None:
        """Tells consumers and publishers of the commit. A large batch is told in pieces, and the
        event loop serves others between two of them: to place two thousand messages, and to drop
        as many at a queue's limit, takes some twenty milliseconds."""
        records = [record for unit in self.units for record in unit.records]
        if records and committed is not None:
            _safely(committed, records)
        for cursor, lease in self._leases:
            cursor.lease.grant(lease)
        told = 0
        for each, entries in self.entries.items():
            each.grow_span(self._segment_of[each], entries[0].offset, entries[-1].offset)
            for start in range(0, len(entries), PIECE_ENTRIES):
                piece = entries[start : start + PIECE_ENTRIES]
                _safely(each.commit, piece)
                told += len(piece)
                if told >= PIECE_ENTRIES:
                    told = 0
                    await asyncio.sleep(0)
        for cursor, _ in self._leases:
            _safely(cursor.pump)
        by_publisher: dict[Publisher, list[int]] = {}
        for unit in self.units:
            if unit.moves:
                for cursor, entry in unit.moves:
                    _safely(cursor.drop, entry)
            publisher = unit.publisher
            if publisher is not None and unit.holds is not None and not unit.holds():
                _safely(publisher.on_refused, [unit.token], GONE)
            elif publisher is not None:
                tokens = by_publisher.get(publisher)
                if tokens is None:
                    tokens = by_publisher[publisher] = []
                if unit.is_run:
                    tokens += unit.tokens
                else:
                    tokens.append(unit.token)
        for publisher, tokens in by_publisher.items():
            _safely(publisher.on_committed, tokens)

    def refuse(self, error: CoreError) -> None:
        """Tells publishers that none of the batch will ever be written."""
        for unit in self.units:
            for each, entry in unit.appends:
                each.refuse(entry)
            if unit.undo is not None:
                _safely(unit.undo)
            if unit.publisher is not None:
                _safely(unit.publisher.on_refused, list(unit.tokens), error)


def retained_values(record: RetainedRecord) -> dict[str, object]:
    assert record.message is not None
    vhost, topic = record.vhost, record.topic
    shard = shard_of(vhost, "retained", topic)
    place = {"vhost": vhost, "topic": topic, "shard": shard, "qos": record.qos}
    return content_values(record.message) | place


def _safely(call: Callable[..., object], *arguments: object) -> None:
    """Calls a listener of the commit; if it fails, the others still hear of the commit."""
    try:
        call(*arguments)
    except Exception:
        log.exception("a listener failed after a commit; the others are not affected")
