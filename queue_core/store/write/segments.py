"""Segments of the log: knows which one is written to, and cuts it when it is large or old enough.

Classic queues share a series of segments; each stream has its own. A segment goes when nothing in
it is needed any more; what little outlives it is carried forward into the one that is written to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from queue_core.commit.queue_log import Log


@dataclass(slots=True)
class Segment:
    id: int
    queue_id: int | None  # of a stream; None: shared
    created_at: float
    messages: int = 0
    bytes: int = 0
    newest_at: float = 0.0
    is_sealed: bool = False
    archive: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """The size in bytes and the age in seconds at which a segment is cut."""

    bytes: int = 128 * 1024 * 1024
    age: float = 3600.0


class NoSegment(LookupError):
    """A series has no segment to write to."""

    def __init__(self, series: int | None) -> None:
        super().__init__(series)
        self.series = series


class SegmentBook:
    """Knows all segments, and the open one of each series."""

    def __init__(self, limits: SegmentLimits) -> None:
        self.limits = limits
        self.segments: dict[int, Segment] = {}
        self._open: dict[int | None, Segment] = {}  # by the stream's queue id; None: the shared one
        self._body_id = time.time_ns()

    def add(self, segment: Segment) -> None:
        self.segments[segment.id] = segment
        if not segment.is_sealed:
            earlier = self._open.get(segment.queue_id)
            if earlier is not None:
                earlier.is_sealed = True
            self._open[segment.queue_id] = segment

    def remove(self, segment_id: int) -> None:
        segment = self.segments.pop(segment_id)
        if self._open.get(segment.queue_id) is segment:
            del self._open[segment.queue_id]

    def segment_of(self, log: Log) -> int:
        """Returns the segment for the next entry of that log. Raises NoSegment when one must be
        opened first."""
        series = log.queue_id if log.is_stream else None
        segment = self._open.get(series)
        if segment is None or segment.is_sealed:
            raise NoSegment(series)
        return segment.id

    def open_segment(self, series: int | None) -> Segment | None:
        """Returns the segment that a series is written to, or was until it was found to be full."""
        return self._open.get(series)

    def cut(self, segment_id: int, log: Log, now: float) -> None:
        """Closes a segment that has become large or old enough."""
        segment = self.segments[segment_id]
        most = self.limits.bytes if log.segment_bytes is None else log.segment_bytes
        if segment.bytes >= most or now - segment.created_at >= self.limits.age:
            segment.is_sealed = True

    def count(self, segment_id: int, messages: int, size: int, now: float) -> None:
        segment = self.segments[segment_id]
        segment.messages += messages
        segment.bytes += size
        segment.newest_at = now

    def series(self, queue_id: int | None) -> list[Segment]:
        """Returns the segments of a series, oldest first."""
        return sorted(
            (s for s in self.segments.values() if s.queue_id == queue_id), key=lambda s: s.id
        )

    def next_body_id(self) -> int:
        self._body_id += 1
        return self._body_id
