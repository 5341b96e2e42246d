"""What a committed batch means for queues and publishers, without a database."""

from __future__ import annotations

import asyncio

from queue_core.commit.queue_log import Log
from queue_core.commit.unit import Unit
from queue_core.delivery.consumer import Entry
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.store.write.batch import PIECE_ENTRIES, Batch
from queue_core.store.write.segments import Segment, SegmentBook, SegmentLimits


class Confirms:
    def __init__(self) -> None:
        self.tokens: list[int] = []

    def on_committed(self, tokens: list[int]) -> None:
        self.tokens += tokens

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        raise AssertionError(error)


def batch_of(count: int, logs: list[Log], publisher: Confirms) -> Batch:
    book = SegmentBook(SegmentLimits())
    book.add(Segment(1, None, 0.0))
    units = []
    for number in range(count):
        entry = Entry(Message(b"x", "", routing_key="q"))
        units.append(Unit([(logs[number % len(logs)], entry)], publisher, number))
    batch = Batch(units, book, 1)
    batch.number()
    return batch


async def test_others_have_a_turn_while_queues_take_a_large_batch() -> None:
    log, confirms = Log(1, 0, is_stream=False), Confirms()
    batch = batch_of(4 * PIECE_ENTRIES, [log], confirms)
    seen: list[int] = []

    async def look() -> None:
        while not confirms.tokens:
            seen.append(log.tail)
            await asyncio.sleep(0)

    beside = asyncio.create_task(look())
    await batch.apply()
    await beside
    assert set(seen) >= {PIECE_ENTRIES, 2 * PIECE_ENTRIES, 3 * PIECE_ENTRIES}
    assert log.tail == 4 * PIECE_ENTRIES


async def test_many_queues_with_a_message_each_give_way_as_well() -> None:
    logs = [Log(number, 0, is_stream=False) for number in range(2 * PIECE_ENTRIES)]
    confirms = Confirms()
    batch = batch_of(len(logs), logs, confirms)
    seen: set[int] = set()

    async def look() -> None:
        while not confirms.tokens:
            seen.add(sum(log.tail for log in logs))
            await asyncio.sleep(0)

    beside = asyncio.create_task(look())
    await batch.apply()
    await beside
    assert PIECE_ENTRIES in seen


async def test_publishers_hear_of_a_commit_when_all_of_it_is_in_its_queues() -> None:
    log, confirms = Log(1, 0, is_stream=False), Confirms()
    count = 2 * PIECE_ENTRIES + 1
    batch = batch_of(count, [log], confirms)
    log.on_arrival = lambda _entries: confirms.tokens.append(-1)
    await batch.apply()
    assert confirms.tokens == [-1, -1, -1, *range(count)]


async def test_a_small_batch_is_told_in_one_turn() -> None:
    log, confirms = Log(1, 0, is_stream=False), Confirms()
    batch = batch_of(PIECE_ENTRIES - 1, [log], confirms)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count_turns())
    await batch.apply()
    beside.cancel()
    assert turns == 0
    assert confirms.tokens == list(range(PIECE_ENTRIES - 1))
