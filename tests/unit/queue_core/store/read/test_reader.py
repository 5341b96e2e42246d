"""Messages read back in pieces are complete, also where offsets lie in several segments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from queue_core.counters import Counters
from queue_core.delivery.consumer import Entry
from queue_core.message.message import Message
from queue_core.store.read import reader
from queue_core.store.read.reader import Reader

SIZE = 100


class Shelf:
    """Segments with offsets, which answers the statements as PostgreSQL does."""

    def __init__(self, **segments: list[int]) -> None:
        self.segments = {int(name.removeprefix("s")): kept for name, kept in segments.items()}
        self.spans = {number: (kept[0], kept[-1]) for number, kept in self.segments.items()}
        self.queue_id = 1

    def segments_of(self, start: int, end: int) -> list[int]:
        return sorted(self.segments)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Shelf]:
        yield self

    async def fetch(self, statement: str, queue: int, *facts: Any) -> list[tuple[int, int]]:
        (segment,) = (n for n in self.segments if f"howdah.message_{n} " in statement)
        kept = self.segments[segment]
        if "ANY" in statement:
            wanted, room = facts
            offsets = [each for each in kept if each in wanted]
        else:
            start, end, limit, room = facts
            offsets = [each for each in kept if start <= each < end][:limit]
        return [(offset, 0) for i, offset in enumerate(offsets) if i * SIZE < room]


class PlainReader(Reader):
    async def _entries(self, connection: Any, segment: int, rows: list[Any]) -> list[Entry]:
        return [Entry(Message(bytes(SIZE), ""), offset=offset) for offset, _ in rows]


def reading(shelf: Any) -> tuple[Reader, Any]:
    """A reader, and the log that it reads."""
    return PlainReader(shelf, SimpleNamespace(), Counters()), shelf  # type: ignore[arg-type]


ROOMS = pytest.mark.parametrize("room", [1, 150, 350, 10_000])
SHELVES = pytest.mark.parametrize(
    "shelf",
    [
        Shelf(s1=[0, 1, 2, 3, 4, 5, 6, 7]),
        Shelf(s1=[3, 4, 5, 6], s2=[0, 1, 2, 7]),
        Shelf(s1=[1, 3, 5, 7], s2=[0, 2, 4, 6]),
        Shelf(s1=[5, 6, 7], s2=[2, 3, 4], s3=[0, 1]),
    ],
    ids=["one", "some were carried forward", "in turn", "backwards"],
)


@ROOMS
@SHELVES
async def test_nothing_is_passed_over_where_a_chunk_is_cut(
    monkeypatch: pytest.MonkeyPatch, shelf: Shelf, room: int
) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", room)
    plain, log = reading(shelf)
    found: list[int] = []
    while len(found) < 8:
        start = found[-1] + 1 if found else 0
        entries = await plain.read_range(log, start, 8, 5)
        assert entries, "no progress"
        found += [entry.offset for entry in entries]
    assert found == list(range(8))


@ROOMS
@SHELVES
async def test_single_offsets_are_read_in_chunks_that_pass_over_nothing(
    monkeypatch: pytest.MonkeyPatch, shelf: Shelf, room: int
) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", room)
    plain, log = reading(shelf)
    wanted, found = [0, 2, 3, 5, 6, 9], list[int]()
    while entries := await plain.read_offsets(log, wanted):
        offsets = [entry.offset for entry in entries]
        assert len(offsets) <= max(1, room // SIZE + 1) * len(shelf.segments)
        found += offsets
        wanted = [offset for offset in wanted if offset > offsets[-1]]
    assert found == [0, 2, 3, 5, 6]
    assert wanted == [9]
