"""Segments, generations of the journal and memory: what is kept where, and when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED, FAILED, Outcome, Verdict
from queue_core.store.write import journal_generation, statements
from tests.support.managers import BRISK, House, Told, bodies
from tests.support.until import turns

SEGMENTS = "SELECT count(*) FROM howdah.segment"


@pytest.fixture
async def small(migrated_url: str) -> AsyncIterator[House]:
    """A house whose segments are full after some 50 messages of 1 kB."""
    house = await House(migrated_url).with_segments(50_000).open()
    yield house
    await house.close()


async def fill(house: House, count: int, queue: str = "q", start: int = 0) -> None:
    for i in range(start, start + count, 10):
        await house.store(queue, *[b"%d:".ljust(1000, b"x") % j for j in range(i, i + 10)])


def numbers(found: list[bytes]) -> list[int]:
    return [int(body.split(b":")[0]) for body in found]


async def test_segments_are_cut_and_dropped_when_all_is_settled(
    small: House, db: asyncpg.Connection
) -> None:
    await small.queue()
    await fill(small, 300)
    assert await db.fetchval(SEGMENTS) >= 5
    assert len(await small.drain()) == 300
    await small.upkeep()
    assert await db.fetchval(SEGMENTS) <= 1
    leaves = "SELECT count(*) FROM pg_class WHERE relname ~ '^message_[0-9]+$' AND relkind = 'r'"
    assert await db.fetchval(leaves) <= 1
    await fill(small, 10, start=300)
    await small.crash_and_reopen()
    assert numbers(bodies(await small.drain())) == list(range(300, 310))


async def test_numbers_go_on_when_all_segments_of_a_queue_are_gone(small: House) -> None:
    await small.queue()
    await small.queue("other")
    await fill(small, 120)
    await small.drain()
    await fill(small, 60, "other")
    await small.upkeep()
    await small.crash_and_reopen()
    await small.store("q", b"next")
    (delivery,) = await small.drain()
    assert delivery.offset == 120


async def test_a_poison_message_is_carried_forward_to_its_own_place(
    small: House, db: asyncpg.Connection
) -> None:
    await small.queue()
    await fill(small, 200)
    inbox, _ = await small.consume("q")
    await inbox.has(200)
    small.vhost.settle([d for d in inbox.deliveries if d.offset not in (0, 77)], ACCEPTED)
    await small.flushed()
    await fill(small, 20, start=200)
    await small.upkeep()
    assert await db.fetchval(SEGMENTS) <= 2
    assert small.manager.counters.carried_forward == 2
    await small.crash_and_reopen()
    found = await small.drain()
    assert numbers(bodies(found)) == [0, 77, *range(200, 220)]
    assert [d.offset for d in found] == [0, 77, *range(200, 220)]


async def test_a_shared_body_is_carried_forward_whole(small: House, db: asyncpg.Connection) -> None:
    for name in ("q", "r"):
        await small.queue(name)
        await small.vhost.bind("amq.fanout", small.vhost.queue(name))
    small.vhost.publish(Message(b"z" * 9000, "amq.fanout", routing_key=""))
    await small.flushed()
    await fill(small, 200)
    first = await small.vhost.get("q")
    assert first is not None
    await small.drain("q")
    await fill(small, 10)
    await small.upkeep()
    assert small.manager.counters.carried_forward == 2
    await small.crash_and_reopen()
    assert bodies(await small.drain("r")) == [b"z" * 9000]
    assert bodies(await small.drain("q"))[0] == b"z" * 9000


async def test_a_reader_in_the_way_stalls_nobody_and_segments_go_later(
    small: House, db: asyncpg.Connection
) -> None:
    await small.queue()
    await fill(small, 200)
    async with db.transaction(isolation="repeatable_read"):
        await db.fetchval("SELECT count(*) FROM howdah.message")
        await small.drain()
        await asyncio.wait_for(small.upkeep(), 5)
        held = await db.fetchval(SEGMENTS)
        await asyncio.wait_for(fill(small, 50, start=200), 5)
        assert small.vhost.queue("q").counts().ready == 50
    other = await asyncpg.connect(small.url)
    assert await other.fetchval(SEGMENTS) >= held
    await small.upkeep()
    assert await other.fetchval(SEGMENTS) < held
    await other.close()
    assert numbers(bodies(await small.drain())) == list(range(200, 250))


async def test_the_end_of_a_long_reader_is_noticed_at_the_next_look(
    small: House, db: asyncpg.Connection
) -> None:
    """However far apart the tries are by then, each of which makes others wait."""
    await small.queue()
    await fill(small, 200)
    async with db.transaction(isolation="repeatable_read"):
        await db.fetchval("SELECT count(*) FROM howdah.message")
        await small.drain()
        for _ in range(10):
            await small.upkeep()
        assert small.manager._background.maintenance._rounds_left > 1
    await small.upkeep()
    assert await db.fetchval(SEGMENTS) <= 1


async def test_queues_that_are_deleted_hold_no_segment(
    small: House, db: asyncpg.Connection
) -> None:
    await small.queue()
    await small.queue("other")
    await fill(small, 200)
    await small.vhost.delete_queue("q")
    await small.upkeep()
    assert await db.fetchval(SEGMENTS) <= 1


# --- bodies and memory


async def test_a_large_body_for_several_queues_is_stored_once(
    house: House, db: asyncpg.Connection
) -> None:
    for name in ("a", "b", "c"):
        await house.queue(name)
        await house.vhost.bind("amq.fanout", house.vhost.queue(name))
    await house.vhost.bind("amq.fanout", await house.stream("s"))
    house.vhost.publish(Message(b"x" * 100_000, "amq.fanout", routing_key=""))
    house.vhost.publish(Message(b"small", "amq.fanout", routing_key=""))
    await house.flushed()
    assert await db.fetchval("SELECT count(*) FROM howdah.message_body") == 1
    assert await db.fetchval("SELECT sum(octet_length(body)) FROM howdah.message_body") == 100_000
    await house.crash_and_reopen()
    for name in ("a", "b", "c"):
        assert bodies(await house.drain(name)) == [b"x" * 100_000, b"small"]


@pytest.mark.parametrize("arguments", [{}, {"max_priority": 3}])
async def test_a_deep_queue_keeps_its_order_in_little_memory(
    migrated_url: str, arguments: dict[str, object]
) -> None:
    house = House(migrated_url, settings=replace(BRISK, cache_bytes=100_000)).with_segments(200_000)
    await house.open()
    queue = await house.queue("q", **arguments)
    told = Told()
    for i in range(3000):
        house.vhost.publish(Message(b"%d" % i, "", routing_key="q", priority=i % 4), told, i)
    await told.answers(3000)
    budget = house.manager._budget
    assert budget.used <= 150_000
    expected = list(range(3000))
    if arguments:
        expected.sort(key=lambda i: -(i % 4))
    inbox, consumer = await house.consume("q", credit=100)
    seen: list[int] = []
    held: list[object] = []
    for round_number in range(1_000_000):
        await inbox.has(1)
        batch = inbox.take()
        seen += [int(delivery.message.body) for delivery in batch]
        assert budget.used <= 1_500_000
        if round_number == 3:  # these come back to their own places
            held = [int(delivery.message.body) for delivery in batch]
            seen = seen[: -len(held)]
            house.vhost.settle(batch, Verdict(Outcome.RELEASED))
        else:
            house.vhost.settle(batch, ACCEPTED)
        if len(seen) >= 3000:
            break
    assert held
    assert seen == expected
    house.vhost.end_consumer(consumer, FAILED)
    await house.flushed()
    assert queue.counts().ready == 0
    assert budget.used == 0
    await house.close()


async def test_all_memory_is_given_back(house: House) -> None:
    await house.queue("q", max_length=50)
    await house.queue("p", max_priority=3)
    await house.stream("s")
    for name in ("q", "p", "s"):
        await house.store(name, *[b"%d" % i for i in range(100)])
    inbox, consumer = await house.consume("s", ACCEPTED, group="g")
    await house.store("s", *[b"%d" % i for i in range(100)])
    await inbox.has(100)
    house.vhost.end_consumer(consumer, FAILED)
    one = await house.vhost.get("p")
    assert one is not None
    house.vhost.settle([one], Verdict(Outcome.MODIFIED, delay=50))
    await house.drain("q")
    await house.vhost.purge_queue("p")
    await house.flushed()
    assert house.manager._budget.used == 0


# --- the journal


@pytest.fixture
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_generation, "GENERATION_ROWS", 20)


@pytest.mark.usefixtures("short_journal")
async def test_the_journal_starts_again_and_nothing_is_forgotten(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.queue("ids", deduplication_window=3_600_000)
    stream = await house.stream("s")
    await house.store("q", *[b"%d" % i for i in range(100)])
    await house.store("s", *[b"%d" % i for i in range(10)])
    stream.commit_cursor("g", 4)
    house.vhost.publish(
        Message(b"id", "", routing_key="ids", properties=Properties(message_id="m\0"))
    )
    inbox, _ = await house.consume("q", credit=200)
    await inbox.has(100)
    by_offset = {delivery.offset: delivery for delivery in inbox.deliveries}
    house.vhost.settle([by_offset[50]], Verdict(Outcome.MODIFIED, delay=600))
    house.vhost.settle([by_offset[51]], Verdict(Outcome.MODIFIED, delay=0.5))
    for offset in range(90):
        if offset not in (7, 50, 51):
            house.vhost.settle([by_offset[offset]], ACCEPTED)
            await house.flushed()
    generation = await db.fetchval("SELECT max(generation) FROM howdah.shard")
    assert generation >= 4
    await house.upkeep()
    tables = "SELECT count(*) FROM pg_class WHERE relname ~ '^settlement_[0-9]+$' AND relkind = 'r'"
    assert await db.fetchval(tables) == 1
    await house.crash_and_reopen()
    house.clock.now += 1
    found = await house.drain("q")
    assert [d.offset for d in found] == [7, 51, *range(90, 100)]
    assert {d.offset: d.failures for d in found if d.offset in (50, 51)} == {51: 1}
    await house.later(600)
    assert [d.offset for d in await house.drain("q")] == [50]
    stream_again, _ = await house.consume("s", group="g")
    assert [d.offset for d in await stream_again.has(5)] == [5, 6, 7, 8, 9]
    house.vhost.publish(
        Message(b"id", "", routing_key="ids", properties=Properties(message_id="m\0"))
    )
    await house.flushed()
    assert len(await house.drain("ids")) == 1


@pytest.mark.usefixtures("short_journal")
async def test_a_killed_connection_while_the_journal_starts_again(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", *[b"%d" % i for i in range(200)])
    inbox, _ = await house.consume("q", credit=200)
    await inbox.has(200)
    for i, delivery in enumerate(inbox.deliveries[:-5]):
        house.vhost.settle([delivery], ACCEPTED)
        if i % 10 == 0:
            await turns()  # the writer takes up what was settled
        if i % 40 == 0:
            await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                "application_name = 'howdah gateway (writer)' AND datname = current_database()"
            )
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"195", b"196", b"197", b"198", b"199"]


async def test_many_scattered_acknowledgements_are_all_remembered(house: House) -> None:
    """More ranges than fit into one row: rows say what is new, and now and then everything."""
    await house.queue("q")
    await house.store("q", *[b"%d" % i for i in range(1000)])
    inbox, _ = await house.consume("q", credit=1000)
    await inbox.has(1000)
    odd = [delivery for delivery in inbox.deliveries if delivery.offset % 2]
    for at in range(0, len(odd), 5):
        house.vhost.settle(odd[at : at + 5], ACCEPTED)
        await house.flushed()
    await house.crash_and_reopen()
    assert [d.offset for d in await house.drain()] == list(range(0, 1000, 2))


async def test_a_segment_goes_no_sooner_than_its_settlements_are_stored(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.with_segments(1)
    await house.reopen()
    await house.queue()
    await house.store("q", b"1", b"2", b"3")
    inbox, _ = await house.consume()
    await inbox.has(3)
    await house.flushed()

    async def hang(connection: object, batch: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:  # the writer is stuck, and upkeep is not
        patch.setattr(statements, "write", hang)
        house.vhost.settle(inbox.take(), ACCEPTED)
        upkeep = asyncio.create_task(house.upkeep())
        await asyncio.wait({upkeep}, timeout=0.5)
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
        await house.crash()
    await house.open()
    await house.store("q", b"4")
    assert [delivery.offset for delivery in await house.drain()] == [0, 1, 2, 3]
