"""Runs into streams, on a real database: one unit of the writer, with each message confirmed by
itself and in its place."""

from __future__ import annotations

import asyncpg

from queue_core.delivery.consumer import Position
from queue_core.message.message import Message, Properties
from queue_core.message.message_run import MessageRun
from queue_core.outcomes import ACCEPTED, Published
from tests.support.managers import House, Told, bodies

FIRST = Position(name="first")


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, end)]


def run_of(*bodies: bytes, exchange: str = "", key: str = "s", publisher: str = "p") -> MessageRun:
    return MessageRun(
        [Message(body, exchange, routing_key=key, publisher=publisher) for body in bodies]
    )


async def test_a_run_into_a_stream_is_one_unit_in_offset_order(house: House) -> None:
    await house.stream()
    await house.store("s", b"first")
    told, before = Told(), house.vhost.writer.submitted
    assert house.vhost.publish_run(run_of(*numbered(0, 500)), told, 7) is Published.PENDING
    house.put("s", b"after", told=told)
    assert house.vhost.writer.submitted - before == 2
    await told.answers(501)
    assert (told.committed, told.refused) == ([*range(7, 507), 0], [])
    assert house.vhost.queue("s").pending == 0
    await house.crash_and_reopen()
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    found = await inbox.has(502)
    assert bodies(found) == [b"first", *numbered(0, 500), b"after"]
    assert [delivery.offset for delivery in found] == list(range(502))


async def test_who_reads_a_stream_gets_a_run_as_it_is_committed(house: House) -> None:
    await house.stream()
    await house.store("s", b"first")
    alone, _ = await house.consume("s", ACCEPTED, start=FIRST)
    grouped, _ = await house.consume("s", ACCEPTED, start=FIRST, group="g")
    told = Told()
    house.vhost.publish_run(run_of(*numbered(0, 20)), told, 0)
    for inbox in (alone, grouped):
        assert bodies(await inbox.has(21)) == [b"first", *numbered(0, 20)]
    await told.answers(20)


async def test_one_message_of_a_run_that_a_stream_cannot_store_is_refused_alone(
    house: House, db: asyncpg.Connection
) -> None:
    await house.stream()
    await house.store("s", b"first")
    await db.execute("ALTER TABLE howdah.message ADD CHECK (body <> 'bad') NOT VALID")
    told = Told()
    messages = run_of(*numbered(0, 20), b"bad", *numbered(20, 22))
    assert house.vhost.publish_run(messages, told, 0) is Published.PENDING
    await told.answers(23)
    assert [token for token, _ in told.refused] == [20]
    assert sorted(told.committed) == [*range(20), 21, 22]
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    found = await inbox.has(23)
    assert bodies(found) == [b"first", *numbered(0, 22)]
    assert [delivery.offset for delivery in found] == list(range(23))  # without a gap


async def test_a_run_for_a_stream_and_a_classic_queue_is_left_to_whoever_publishes(
    house: House,
) -> None:
    """A message for two queues is stored in both or in none, so each is a unit of its own."""
    stream, queue = await house.stream(), await house.queue()
    for each in (stream, queue):
        await house.vhost.bind("amq.direct", each, "k")
    first, *rest = run_of(*numbered(0, 10), exchange="amq.direct", key="k").messages()
    told = Told()
    assert house.vhost.publish(first, told, 0) is Published.PENDING
    assert house.vhost.publish_run(MessageRun(rest), told, 1) is None
    assert (stream.pending, queue.pending) == (1, 1)  # nothing was done
    for token, message in enumerate(rest, 1):
        assert house.vhost.publish(message, told, token) is Published.PENDING
    await told.answers(10)
    assert told.committed == list(range(10))
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    assert bodies(await inbox.has(10)) == numbered(0, 10)
    assert bodies(await house.drain()) == numbered(0, 10)


async def test_runs_into_a_stream_and_a_classic_queue_share_a_commit(house: House) -> None:
    await house.stream()
    await house.queue()
    await house.store("s", b"first")
    await house.store("q", b"first")
    told, before = Told(), house.manager.counters.commits
    for i in range(4):
        key, start = ("s", "q")[i % 2], 5 * (i // 2)
        messages = run_of(*numbered(start, start + 5), key=key)
        assert house.vhost.publish_run(messages, told, 5 * i) is Published.PENDING
    await told.answers(20)
    assert told.committed == list(range(20))
    assert house.manager.counters.commits - before <= 2
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    assert bodies(await inbox.has(11)) == [b"first", *numbered(0, 10)]
    assert bodies(await house.drain()) == [b"first", *numbered(0, 10)]


async def test_a_stream_loses_its_oldest_segments_by_bytes_that_came_in_runs(house: House) -> None:
    stream = await house.stream(max_length_bytes=200_000, stream_max_segment_size_bytes=65_536)
    await house.store("s", b"x" * 1000)
    told = Told()
    for i in range(40):
        house.vhost.publish_run(run_of(*[b"x" * 1000] * 10), told, 10 * i)
        await told.answers(10 * (i + 1))
    await house.upkeep()
    assert stream.log.tail == 401
    assert 0 < stream.first_offset < 401 - 100
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    found = await inbox.has(401 - stream.first_offset)
    assert [delivery.offset for delivery in found] == list(range(stream.first_offset, 401))


async def test_a_stream_loses_its_oldest_segments_by_the_age_of_runs(house: House) -> None:
    stream = await house.stream(max_age="1h", stream_max_segment_size_bytes=65_536)
    await house.store("s", b"x" * 1000)
    told = Told()
    house.vhost.publish_run(run_of(*[b"x" * 1000] * 100), told, 0)
    await told.answers(100)
    house.clock.now += 3601
    for i in range(2):
        house.vhost.publish_run(run_of(*[b"y" * 1000] * 100), told, 100 + 100 * i)
        await told.answers(200 + 100 * i)
    await house.upkeep()
    assert stream.log.tail == 301
    assert stream.first_offset == 101  # all that came before the hour, and nothing else, is gone
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    found = await inbox.has(200)
    assert [delivery.offset for delivery in found] == list(range(101, 301))
    assert bodies(found) == [b"y" * 1000] * 200


async def test_a_stream_keeps_repetitions_that_come_in_a_run(house: House) -> None:
    """A stream has no record of message ids: it keeps all that it gets, however it comes."""
    await house.stream()
    await house.store("s", b"first")
    told = Told()
    repeated = MessageRun(
        [
            Message(body, "", "s", properties=Properties(message_id="the same"))
            for body in numbered(0, 3)
        ]
    )
    assert house.vhost.publish_run(repeated, told, 0) is Published.PENDING
    await told.answers(3)
    assert told.committed == [0, 1, 2]
    inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
    found = await inbox.has(4)
    assert bodies(found) == [b"first", *numbered(0, 3)]
    assert [each.message.properties.message_id for each in found[1:]] == ["the same"] * 3


async def test_a_filter_looks_at_each_message_of_a_run(house: House) -> None:
    await house.stream()
    await house.store("s", b"0")

    def is_even(message: Message) -> bool:
        return int(message.body) % 2 == 0

    early, _ = await house.consume("s", ACCEPTED, group="g", start=FIRST, accepts=is_even)
    told = Told()
    assert house.vhost.publish_run(run_of(*numbered(1, 100)), told, 0) is Published.PENDING
    late, _ = await house.consume("s", ACCEPTED, start=FIRST, accepts=is_even)
    for inbox in (early, late):
        assert bodies(await inbox.has(50)) == numbered(0, 100)[::2]
    await told.answers(99)
