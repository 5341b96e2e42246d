"""A stored queue's log as the gateway that owns it knows it: where it ends, and which segments hold
which offsets. Numbers are given out by the writer just before a commit, so that they have no gaps
and commit order is offset order."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.message.message import Message


class Log:
    __slots__ = (
        "counts_pending_bytes",
        "cursors",
        "is_stream",
        "next_offset",
        "on_arrival",
        "on_commit",
        "on_refused",
        "pending",
        "pending_bytes",
        "queue_id",
        "remembers_ids",
        "segment_bytes",
        "spans",
        "tail",
    )

    def __init__(self, queue_id: int, tail: int, *, is_stream: bool) -> None:
        self.queue_id = queue_id
        self.is_stream = is_stream  # a stream has segments of its own; others share theirs
        self.tail = tail  # all below is committed
        self.next_offset = tail  # the number that the next entry to be written gets
        self.remembers_ids = False  # has a deduplication window
        self.segment_bytes: int | None = None  # of a stream: when its segments are cut
        self.pending = 0  # entries on their way to the disk
        self.counts_pending_bytes = False  # a limit asks for them
        self.pending_bytes: int | None = None  # theirs; None: they are not counted
        self.cursors: list[Cursor] = []
        self.spans: dict[int, tuple[int, int]] = {}  # segment -> first and last offset in it
        self.on_commit: Callable[[list[Entry]], None] | None = None  # before cursors get them
        self.on_arrival: Callable[[list[Entry]], None] | None = None  # after that
        self.on_refused: Callable[[Entry], None] | None = None

    def count_pending_bytes(self, *, counts: bool) -> None:
        """Begins or ends counting the bytes on their way to the disk. The count begins when nothing
        is under way: what was not counted when it came must not be taken off when it is written."""
        self.counts_pending_bytes = counts
        if not counts:
            self.pending_bytes = None
        elif self.pending_bytes is None and not self.pending:
            self.pending_bytes = 0

    def expect(self, message: Message) -> None:
        """Notes an entry that is on its way to the disk."""
        self.pending += 1
        if self.pending_bytes is not None:
            self.pending_bytes += message.size()

    def expect_run(
        self, messages: list[Message], options: tuple[object, ...]
    ) -> list[tuple[Log, Entry]]:
        """Makes the entries of messages without times of their own, which one unit brings."""
        self.pending += len(messages)
        kept = options or None
        return [(self, Entry(message, kept)) for message in messages]

    def commit(self, entries: list[Entry]) -> None:
        """These are safe now, and may be handed out."""
        self.tail = entries[-1].offset + 1
        self.pending -= len(entries)
        if self.pending_bytes is not None:
            self.pending_bytes -= sum([entry.message.size() for entry in entries])
        elif self.counts_pending_bytes and not self.pending:
            self.pending_bytes = 0
        if self.on_commit is not None:
            self.on_commit(entries)
        for cursor in tuple(self.cursors):  # one may be put away with its last consumer
            cursor.arrive(entries)
        if self.on_arrival is not None:
            self.on_arrival(entries)

    def refuse(self, entry: Entry) -> None:
        """Notes that an entry which was on its way to the disk will not get there."""
        self.pending -= 1
        if self.pending_bytes is not None:
            self.pending_bytes -= entry.message.size()
        if self.on_refused is not None:
            self.on_refused(entry)

    def grow_span(self, segment: int, first: int, last: int) -> None:
        held = self.spans.get(segment)
        if held is not None:
            first, last = min(first, held[0]), max(last, held[1])
        self.spans[segment] = (first, last)

    def segments_of(self, start: int, end: int) -> list[int]:
        """The segments that may hold offsets of [start, end), in the order of what they hold."""
        found = [
            (first, segment)
            for segment, (first, last) in self.spans.items()
            if first < end and last >= start
        ]
        return [segment for _, segment in sorted(found)]
