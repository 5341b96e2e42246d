"""Nobody makes the gateway's memory grow without limit: what is held for a queue, for the disk and
for a failing consumer has a bound, and is given back."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import asyncpg
import pytest

from queue_core.delivery.filtered_view import LOOK_AHEAD_BYTES
from queue_core.delivery.ready import LEAST_ENTRIES
from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, Published
from queue_core.queues import ephemeral
from queue_core.queues.classic import ClassicQueue
from queue_core.store.read import reader
from tests.support.managers import House


async def test_a_queue_that_is_deleted_gives_back_what_was_in_flight(house: House) -> None:
    queue = await house.queue()
    inbox, _ = await house.consume()
    await house.store("q", *[bytes(1000)] * 20)
    await inbox.has(20)
    assert queue.context.budget.used > 20_000
    await house.vhost.delete_queue("q")
    assert queue.context.budget.used == 0


async def test_what_is_settled_after_its_queue_was_deleted_is_forgotten(house: House) -> None:
    await house.queue("dead")
    queue = await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    inbox, consumer = await house.consume()
    await house.store("q", b"1", b"2", b"3")
    deliveries = await inbox.has(3)
    house.vhost.end_consumer(consumer, None)
    await house.vhost.delete_queue("q")
    for delivery, verdict in zip(deliveries, (ACCEPTED, REJECTED, FAILED), strict=True):
        house.vhost.settle([delivery], verdict)
    await house.flushed()
    assert queue.context.budget.used == 0
    assert await house.vhost.get("dead") is None


async def test_a_purge_gives_back_what_is_just_being_read(house: House) -> None:
    await house.queue("q", max_priority=5)
    await house.store("q", *[b"x"] * 50)
    await house.reopen()
    queue = house.vhost.queue("q")
    assert isinstance(queue, ClassicQueue)
    _, consumer = await house.consume("q", credit=1)  # which asks for them
    await house.vhost.purge_queue("q")
    await house.store("q", b"y")
    assert consumer.credit == 0 or (await house.vhost.get("q")) is not None
    await asyncio.gather(*house.manager._database.reader._tasks)
    assert queue.context.budget.used < 2 * 1000


async def test_large_messages_are_read_back_a_few_at_a_time(house: House) -> None:
    house.settings = replace(house.settings, cache_bytes=1_000_000)
    await house.reopen()
    await house.queue()
    for _ in range(5):
        await house.store("q", *[bytes(200_000)] * 20)
    await house.reopen()
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await asyncio.gather(*house.manager._database.reader._tasks)
    queue = house.vhost.queue("q")
    assert isinstance(queue, ClassicQueue)
    assert queue.context.budget.used < (2 * LEAST_ENTRIES + 1) * 210_000


@pytest.mark.parametrize("targets", [("q",), ("q", "r")])  # of several queues, bodies are shared
@pytest.mark.parametrize("priorities", [{}, {"max_priority": 3}])  # by ranges, by single offsets
async def test_large_messages_behind_small_ones_are_read_back_a_few_at_a_time(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    targets: tuple[str, ...],
    priorities: dict[str, object],
) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 500_000)
    for name in targets:
        await house.queue(name, **priorities)
        await house.vhost.bind("amq.fanout", house.vhost.queue(name))
    for size, count in ((10, 300), (100_000, 40)):
        for _ in range(count):
            house.vhost.publish(Message(bytes(size), "amq.fanout", routing_key=""))
        await house.flushed()
    await house.reopen()
    queue = house.vhost.queue("q")
    assert isinstance(queue, ClassicQueue)
    sizes: list[int] = []
    inbox, consumer = await house.consume("q", credit=1)
    while len(sizes) < 340:
        sizes += [len(delivery.message.body) for delivery in await inbox.has(1)]
        assert queue.context.budget.used < 2_500_000
        house.vhost.settle(inbox.take(), ACCEPTED)
    assert sizes == [10] * 300 + [100_000] * 40
    house.vhost.end_consumer(consumer, FAILED)
    await house.flushed()
    assert queue.context.budget.used == 0


async def test_properties_that_wait_for_the_disk_count_like_bodies(house: House) -> None:
    await house.queue()
    writer = house.manager.writer
    for _ in range(40):
        house.vhost.publish(Message(b"", "", routing_key="q", native=bytes(1_000_000)))
    assert writer.is_congested
    await house.flushed()
    assert writer._waiting_bytes == 0


async def test_a_delivery_that_fails_again_and_again_is_written_down_once(house: House) -> None:
    await house.queue()
    inbox, _ = await house.consume()
    await house.store("q", b"1")
    await inbox.has(1)
    for _ in range(1000):  # faster than any disk, or while it is away
        house.vhost.settle(inbox.take(), FAILED)
    assert len(house.manager.writer._failures) == 1
    await house.flushed()
    await house.crash_and_reopen()
    assert [delivery.failures for delivery in await house.drain()] == [1000]


async def test_empty_messages_fill_an_ephemeral_queue_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral, "EPHEMERAL_MESSAGES", 100)
    await house.ephemeral("e")
    results = house.put("e", *[b""] * 101)
    assert results == [Published.DONE] * 100 + [Published.REFUSED]
    assert house.manager.counters.refused_full == 1


async def test_a_returned_message_expires_however_tight_memory_is(house: House) -> None:
    queue = await house.queue("q", message_ttl=1000)
    inbox, consumer = await house.consume("q", credit=1)
    await house.store("q", b"1")
    await inbox.has(1)
    queue.context.budget.limit = 0
    house.vhost.end_consumer(consumer, FAILED)
    await house.later(2)
    await asyncio.gather(*house.manager._database.reader._tasks)
    await house.later(2)
    assert queue.counts().ready == 0
    assert house.manager.counters.dropped_expired == 1


async def test_dead_letters_that_were_not_in_memory_leave_no_bytes_behind(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("work", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = await house.queue("dead", max_length_bytes=1_000_000)
    dead.context.budget.limit = 0
    inbox, consumer = await house.consume("work", REJECTED)
    await house.store("work", *[bytes(1000)] * 40)
    await inbox.has(40)
    await house.flushed()
    house.vhost.end_consumer(consumer, FAILED)
    assert dead.cursor.ready.bytes == 40_000
    await db.execute("SELECT howdah.redrive('dead', 'true')")
    while await db.fetchval("SELECT count(*) FROM howdah.command WHERE done_at IS NULL"):
        await house.flushed()
    assert (dead.cursor.ready.count(), dead.cursor.ready.bytes) == (0, 0)


async def test_a_filter_looks_through_more_than_fits_into_memory(house: House) -> None:
    house.settings = replace(house.settings, cache_bytes=200_000)
    await house.reopen()
    queue = await house.queue()
    for start in range(0, 10_000, 2_000):
        await house.store("q", *[b"%d" % number for number in range(start, start + 2_000)])
    most = 0

    def is_wanted(message: Message) -> bool:
        nonlocal most
        assert consumer.view is not None
        most = max(most, consumer.view._budget.used + queue.context.budget.used)
        return int(message.body) % 2_500 == 2_499

    inbox, consumer = await house.consume("q", credit=10, replenish=False, accepts=is_wanted)
    drained = asyncio.Event()
    consumer.drain(drained.set)
    async with asyncio.timeout(60):
        await drained.wait()
    assert inbox.offsets == [2_499, 4_999, 7_499, 9_999]
    assert most < 3 * LOOK_AHEAD_BYTES
    house.vhost.settle(inbox.deliveries, ACCEPTED)
    assert queue.counts().ready == 9_996
    await house.flushed()
    await house.crash_and_reopen()
    rest, _ = await house.consume("q", ACCEPTED)
    left = [int(delivery.message.body) for delivery in await rest.has(9_996)]
    assert left == [number for number in range(10_000) if number % 2_500 != 2_499]


async def test_what_a_filter_passed_over_is_not_flagged_after_an_orderly_end(house: House) -> None:
    await house.queue()
    inbox, consumer = await house.consume(
        "q", credit=1, accepts=lambda message: message.body == b"3"
    )
    await house.store("q", b"1", b"2", b"3", b"4")
    await inbox.has(1)
    house.vhost.end_consumer(consumer, FAILED)
    await house.reopen()
    flags = [(d.message.body, d.redelivered, d.failures) for d in await house.drain()]
    assert flags == [(b"1", False, 0), (b"2", False, 0), (b"3", True, 1), (b"4", False, 0)]


@pytest.mark.parametrize("kind", ["classic", "ephemeral"])
async def test_what_comes_back_into_a_full_queue_pushes_out_the_oldest(
    house: House, kind: str
) -> None:
    """Limits hold for what returns as they do for what arrives, once consumers had their share."""
    make = house.queue if kind == "classic" else house.ephemeral
    await make("q", max_length=3)
    inbox, consumer = await house.consume("q", credit=3)
    await house.store("q", b"1", b"2", b"3")
    await inbox.has(3)
    await house.store("q", b"4", b"5")
    house.vhost.end_consumer(consumer, FAILED)
    assert [d.message.body for d in await house.drain("q")] == [b"3", b"4", b"5"]
    assert house.manager.counters.dropped_overflow == 2
    assert house.manager.counters.returned == 3


async def test_what_comes_back_into_a_queue_that_refuses_stays_in_it(house: House) -> None:
    queue = await house.queue("q", max_length=2, overflow="reject-publish")
    inbox, consumer = await house.consume("q", credit=2)
    await house.store("q", b"1", b"2")
    await inbox.has(2)
    await house.store("q", b"3", b"4")
    house.vhost.end_consumer(consumer, FAILED)
    queue.on_more()
    assert house.put("q", b"5") == [Published.REFUSED]
    assert [d.message.body for d in await house.drain("q")] == [b"1", b"2", b"3", b"4"]
    assert house.manager.counters.dropped_overflow == 0


async def test_queues_in_memory_are_bounded_together(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond that, one with a limit of its own drops its oldest, others refuse, and one that holds
    little goes on."""
    caplog.set_level(logging.WARNING)
    house.settings = replace(house.settings, ephemeral_bytes=1_000_000)
    await house.reopen()
    await house.ephemeral("large")
    await house.ephemeral("dropping", max_length=10_000)
    await house.ephemeral("small")
    results = house.put("large", *[bytes(10_000)] * 200)
    taken = results.count(Published.DONE)
    assert 90 <= taken <= 100
    assert house.manager.counters.refused_full == 200 - taken
    assert house.put("small", *[bytes(100)] * 3) == [Published.DONE] * 3
    assert house.put("dropping", *[bytes(10_000)] * 20) == [Published.DONE] * 20
    assert house.vhost.queue("dropping").counts().ready < 10
    assert house.manager.counters.dropped_overflow > 10
    assert len([r for r in caplog.records if "queues in memory hold" in r.message]) == 1
    await house.vhost.purge_queue("large")
    house.clock.now += 1  # it is counted once a second
    assert house.put("large", bytes(10_000)) == [Published.DONE]


async def test_ids_for_deduplication_are_bounded_together(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest are forgotten before their time, which the log says once."""
    caplog.set_level(logging.WARNING)
    house.settings = replace(house.settings, dedup_ids=10)
    await house.reopen()
    await house.queue("a", deduplication_window=60_000)
    await house.queue("b", deduplication_window=60_000)

    def put(queue: str, number: int) -> None:
        properties = Properties(message_id=f"{queue}{number}")
        house.vhost.publish(Message(b"", "", routing_key=queue, properties=properties))

    for number in range(8):
        put("a", number)
    for number in range(8):
        put("b", number)
    await house.flushed()
    counters = house.manager.counters
    assert (counters.dedup_forgotten, counters.duplicates) == (6, 0)
    put("b", 7)  # of late: still known
    put("b", 0)  # forgotten: stored once more
    await house.flushed()
    assert counters.duplicates == 1
    assert house.vhost.queue("b").counts().ready == 9
    assert len([r for r in caplog.records if "forgotten before" in r.message]) == 1
    await house.vhost.delete_queue("a")
    assert house.manager._ids.used == 2
    await house.crash_and_reopen()
    assert house.manager._ids.used <= 10


async def test_the_account_of_memory_counts_time_from_the_start(house: House) -> None:
    assert 0 <= time.monotonic() - house.manager.memory.now < house.manager.memory.settings.grace
