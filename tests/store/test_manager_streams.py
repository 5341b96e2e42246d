"""Streams: a log that everyone may read, each group from its own place, on a real database."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import pytest

from queue_core.delivery.consumer import Position
from queue_core.errors import CoreError, InvalidArgument, NotSupported, ResourceLocked
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Outcome, Verdict
from queue_core.queues.stream import StreamQueue
from tests.support.managers import House, bodies

FIRST = Position(name="first")


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, end)]


async def committed(house: House, group: str) -> int:
    """The floor of a group, as the database knows it."""
    await house.flushed()
    connection = await asyncpg.connect(house.url)
    try:
        floor: int = await connection.fetchval(
            "SELECT floor FROM howdah.consumer_lag WHERE queue = 's' AND group_name = $1", group
        )
        return floor
    finally:
        await connection.close()


async def test_everyone_may_read_everything(house: House) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 5))
    for _ in range(2):
        inbox, _ = await house.consume("s", ACCEPTED, start=FIRST)
        assert bodies(await inbox.has(5)) == numbered(0, 5)
    grouped, _ = await house.consume("s", ACCEPTED, start=FIRST, group="g")
    assert bodies(await grouped.has(5)) == numbered(0, 5)
    await house.store("s", b"5")
    assert bodies(await inbox.has(6)) == numbered(0, 6)
    assert bodies(await grouped.has(6)) == numbered(0, 6)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Position(name="first"), numbered(0, 11)),
        (Position(name="last"), numbered(9, 11)),
        (Position(name="next"), numbered(10, 11)),
        (None, numbered(10, 11)),
        (Position(offset=4), numbered(4, 11)),
        (Position(offset=-4), numbered(0, 11)),
        (Position(offset=400), []),
        (Position(offset=2**62), []),
        (Position(time=-1e300), numbered(0, 11)),
        (Position(time=1e300), numbered(10, 11)),
    ],
)
@pytest.mark.parametrize("group", [None, "g"])
async def test_reading_starts_where_it_is_asked_to(
    house: House, start: Position | None, expected: list[bytes], group: str | None
) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 10))
    inbox, _ = await house.consume("s", start=start, group=group)
    await house.store("s", b"10")
    if expected:
        await inbox.has(len(expected))
    await house.flushed()
    assert inbox.bodies == expected


async def test_reading_may_start_at_a_time(house: House) -> None:
    await house.stream()
    began = house.clock()
    for i in range(5):
        await house.store("s", b"%d" % i)
        house.clock.now += 10
    for seconds, expected in ((-5, 0), (0, 0), (1, 1), (10, 1), (25, 3), (40, 4)):
        inbox, consumer = await house.consume("s", start=Position(time=began + seconds))
        assert bodies(await inbox.has(5 - expected)) == numbered(expected, 5), seconds
        house.vhost.end_consumer(consumer, None)
    inbox, _ = await house.consume("s", start=Position(time=began + 41))
    await house.flushed()
    assert not inbox.deliveries


async def test_a_position_must_say_something(house: House) -> None:
    await house.stream()
    with pytest.raises(InvalidArgument, match="first, last, next"):
        await house.consume("s", start=Position(name="middle"))


@pytest.mark.parametrize("group", [None, "g"])
async def test_an_offset_that_the_journal_cannot_hold_is_refused_to_its_consumer_only(
    house: House, group: str | None
) -> None:
    await house.stream()
    with pytest.raises(InvalidArgument, match="beyond what a stream will ever hold"):
        await house.consume("s", start=Position(offset=10**23), group=group)
    await house.store("s", b"0")
    inbox, _ = await house.consume("s", start=FIRST, group=group)
    assert bodies(await inbox.has(1)) == [b"0"]


async def test_members_of_a_group_compete(house: House) -> None:
    await house.stream()
    first, _ = await house.consume("s", ACCEPTED, group="g")
    second, _ = await house.consume("s", ACCEPTED, group="g")
    await house.store("s", *numbered(0, 10))
    assert sorted(first.bodies + second.bodies) == numbered(0, 10)
    assert first.bodies
    assert second.bodies


async def test_a_group_goes_on_where_it_has_acknowledged_without_gaps(house: House) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 6))
    inbox, _ = await house.consume("s", group="g", start=FIRST)
    await inbox.has(6)
    house.vhost.settle([inbox.deliveries[i] for i in (0, 1, 3)], ACCEPTED)
    assert await committed(house, "g") == 2
    await house.crash_and_reopen()
    inbox, _ = await house.consume("s", group="g", start=Position(name="next"))
    found = await inbox.has(3)
    assert bodies(found) == [b"2", b"4", b"5"]
    assert all(delivery.redelivered for delivery in found)


async def test_groups_do_not_disturb_each_other(house: House) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 4))
    one, _ = await house.consume("s", ACCEPTED, group="one", start=FIRST)
    await one.has(4)
    two, _ = await house.consume("s", group="two", start=FIRST)
    await two.has(4)
    assert (await committed(house, "one"), await committed(house, "two")) == (4, 0)


@pytest.mark.parametrize("verdict", [RELEASED, FAILED, REJECTED])
async def test_a_log_has_nothing_to_requeue(house: House, verdict: Verdict) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 4))
    inbox, consumer = await house.consume("s", credit=1, group="g", start=FIRST)
    (first,) = await inbox.has(1)
    house.vhost.settle([first], verdict)
    assert bodies(await inbox.has(2)) == numbered(0, 2)
    house.vhost.settle([inbox.deliveries[1]], ACCEPTED)
    await inbox.has(3)
    assert await committed(house, "g") == 0
    house.vhost.end_consumer(consumer, FAILED)
    again, _ = await house.consume("s", group="g")
    assert bodies(await again.has(3)) == [b"0", b"2", b"3"]


async def test_a_group_that_comes_back_in_order_is_not_told_of_what_it_never_had(
    house: House,
) -> None:
    await house.stream()
    inbox, consumer = await house.consume("s", credit=2, group="g", start=FIRST, replenish=False)
    await house.store("s", *numbered(0, 4))
    await inbox.has(2)
    house.vhost.settle(inbox.deliveries[:1], ACCEPTED)
    house.vhost.end_consumer(consumer, RELEASED)
    for is_restarted in (False, True):
        if is_restarted:
            await house.reopen()
        again, consumer = await house.consume("s", group="g", replenish=False, credit=3)
        found = await again.has(3)
        flags = [(delivery.offset, delivery.redelivered) for delivery in found]
        assert flags == [(1, True), (2, is_restarted), (3, is_restarted)]
        house.vhost.end_consumer(consumer, RELEASED)


async def test_a_position_may_be_committed_without_reading(house: House) -> None:
    stream = await house.stream()
    await house.store("s", *numbered(0, 10))
    stream.commit_cursor("g", 6)
    assert await committed(house, "g") == 7
    await house.crash_and_reopen()
    inbox, _ = await house.consume("s", group="g", start=FIRST)
    assert bodies(await inbox.has(3)) == numbered(7, 10)


@pytest.mark.parametrize(
    ("place", "floor"),
    [(FIRST, 0), (Position(offset=2), 2), (Position(name="next"), 6), (Position(time=0.0), 0)],
)
async def test_a_group_that_nobody_reads_by_may_be_sent_to_another_place(
    house: House, place: Position, floor: int
) -> None:
    stream = await house.stream()
    await house.store("s", *numbered(0, 6))
    inbox, consumer = await house.consume("s", ACCEPTED, start=FIRST, group="g")
    await inbox.has(6)
    await other_group_reads(house)
    with pytest.raises(ResourceLocked, match="has consumers: stop them first"):
        await stream.reset_group("g", place)
    house.vhost.end_consumer(consumer, RELEASED)
    assert await committed(house, "g") == 6
    assert await stream.reset_group("g", place) == floor
    assert await committed(house, "g") == floor
    await house.crash_and_reopen()
    assert await committed(house, "g") == floor
    again, _ = await house.consume("s", ACCEPTED, group="g")
    await house.store("s", b"6")
    assert bodies(await again.has(7 - floor)) == numbered(floor, 7)
    assert await committed(house, "g") == 7
    assert await committed(house, "other") == 6


async def other_group_reads(house: House) -> None:
    inbox, consumer = await house.consume("s", ACCEPTED, start=FIRST, group="other")
    await inbox.has(6)
    house.vhost.end_consumer(consumer, RELEASED)


async def test_only_a_group_that_there_is_can_be_sent_elsewhere(house: House) -> None:
    stream = await house.stream()
    with pytest.raises(InvalidArgument, match="has no consumer group 'nobody'"):
        await stream.reset_group("nobody", FIRST)


async def test_a_commit_covers_what_is_in_flight(house: House) -> None:
    stream = await house.stream()
    await house.store("s", *numbered(0, 5))
    inbox, _ = await house.consume("s", group="g", start=FIRST)
    await inbox.has(5)
    stream.commit_cursor("g", 3)
    assert await committed(house, "g") == 4
    house.vhost.settle([inbox.deliveries[1], inbox.deliveries[4]], ACCEPTED)
    assert await committed(house, "g") == 5


@pytest.mark.parametrize("accepts", [None, lambda _: True], ids=["all", "by a filter"])
async def test_what_a_commit_covers_is_not_handed_out_any_more(
    house: House, accepts: Callable[[Message], bool] | None
) -> None:
    stream = await house.stream()
    await house.store("s", *numbered(0, 10))
    inbox, _ = await house.consume("s", group="g", start=FIRST, credit=2, accepts=accepts)
    held = list(await inbox.has(2))
    stream.commit_cursor("g", 6)
    house.vhost.settle(held, ACCEPTED)
    assert bodies(await inbox.has(4))[2:] == numbered(7, 9)
    house.vhost.settle(inbox.deliveries[2:], ACCEPTED)
    found = await inbox.has(5)
    assert [(delivery.offset, delivery.redelivered) for delivery in found[2:]] == [
        (7, False),
        (8, False),
        (9, False),
    ]
    house.vhost.settle(found[4:], ACCEPTED)
    assert await committed(house, "g") == 10
    assert house.manager._budget.used == 0


@pytest.mark.parametrize("offset", [-1, 10, 11])
async def test_only_what_is_there_can_be_committed(house: House, offset: int) -> None:
    stream = await house.stream()
    await house.store("s", *numbered(0, 10))
    with pytest.raises(InvalidArgument, match="offsets 0 to 9"):
        stream.commit_cursor("g", offset)


async def test_a_stream_is_neither_purged_nor_read_by_get(house: House) -> None:
    await house.stream()
    with pytest.raises(CoreError, match="x-max-age"):
        await house.vhost.purge_queue("s")
    with pytest.raises(NotSupported):
        await house.vhost.get("s")


async def test_a_group_may_have_one_exclusive_reader(house: House) -> None:
    await house.stream()
    await house.consume("s", group="g", exclusive=True)
    with pytest.raises(ResourceLocked):
        await house.consume("s", group="g")
    await house.consume("s", group="other")


async def test_a_message_of_a_stream_keeps_its_own_expiry(house: House) -> None:
    await house.stream()
    house.vhost.publish(Message(b"1", "", routing_key="s", expires_at=house.clock() + 5))
    await house.flushed()
    for _ in range(2):
        inbox, _ = await house.consume("s", start=FIRST)
        (delivery,) = await inbox.has(1)
        assert delivery.message.expires_at == house.clock() + 5
        await house.reopen()


async def test_a_delay_is_not_for_streams(house: House) -> None:
    """A verdict with a delay frees credit like any other."""
    await house.stream()
    await house.store("s", b"0", b"1")
    inbox, _ = await house.consume("s", credit=1, group="g", start=FIRST)
    house.vhost.settle(list(await inbox.has(1)), Verdict(Outcome.RELEASED, delay=5))
    assert bodies(await inbox.has(2)) == [b"0", b"1"]


# --- retention


async def fill(house: House, rounds: int, size: int = 70_000) -> None:
    """Each round is a segment of its own."""
    for i in range(rounds):
        await house.store("s", (b"%d:" % i).ljust(size, b"x"))


async def test_a_stream_loses_its_oldest_segments_by_bytes(house: House) -> None:
    stream = await house.stream(max_length_bytes=200_000, stream_max_segment_size_bytes=65_536)
    await fill(house, 8)
    await house.upkeep()
    assert stream.first_offset == 5
    assert stream.counts().ready == 3
    inbox, _ = await house.consume("s", start=FIRST)
    assert [body[:2] for body in bodies(await inbox.has(3))] == [b"5:", b"6:", b"7:"]


async def test_a_stream_loses_its_oldest_segments_by_length(house: House) -> None:
    stream = await house.stream(max_length=3, stream_max_segment_size_bytes=65_536)
    await fill(house, 8)
    await house.upkeep()
    assert stream.first_offset == 5


async def test_a_stream_loses_its_oldest_segments_by_age(house: House) -> None:
    stream = await house.stream(max_age="1h", stream_max_segment_size_bytes=65_536)
    await fill(house, 2)
    house.clock.now += 3000
    await fill(house, 2)
    house.clock.now += 1000
    await fill(house, 1)
    await house.upkeep()
    assert stream.first_offset == 2


async def test_age_is_known_after_a_restart(house: House) -> None:
    await house.stream(max_age="1h", stream_max_segment_size_bytes=65_536)
    await fill(house, 2)
    await house.crash_and_reopen()
    house.clock.now += 60
    await fill(house, 2)
    await house.upkeep()
    stream = house.vhost.queue("s")
    assert isinstance(stream, StreamQueue)
    assert stream.first_offset == 0
    house.clock.now += 3560
    await fill(house, 1)
    await house.upkeep()
    assert stream.first_offset == 1  # what was open at the crash took one more, a minute later


async def test_a_group_behind_retention_goes_on_at_the_first_that_is_left(house: House) -> None:
    await house.stream(max_length=3, stream_max_segment_size_bytes=65_536)
    await fill(house, 1)
    inbox, consumer = await house.consume("s", group="g", start=FIRST, credit=1)
    await inbox.has(1)
    house.vhost.end_consumer(consumer, RELEASED)
    await fill(house, 8)
    await house.upkeep()
    again, _ = await house.consume("s", ACCEPTED, group="g")
    found = await again.has(3)
    assert [d.offset for d in found] == [6, 7, 8]
    assert await committed(house, "g") == 9


async def test_numbers_go_on_when_retention_has_taken_everything(house: House) -> None:
    stream = await house.stream(max_age="1h", stream_max_segment_size_bytes=65_536)
    await fill(house, 3)
    tail = stream.log.tail
    house.clock.now += 7200
    await house.upkeep()
    await house.crash_and_reopen()
    await house.upkeep()
    await house.store("s", b"next")
    await house.upkeep()
    await house.crash_and_reopen()
    inbox, _ = await house.consume("s", start=Position(name="last"))
    (last,) = await inbox.has(1)
    assert (last.message.body, last.offset) == (b"next", tail)


async def test_the_room_of_a_deleted_stream_is_given_back(
    house: House, db: asyncpg.Connection
) -> None:
    stream = await house.stream()
    await fill(house, 2)
    count = "SELECT count(*) FROM howdah.segment WHERE queue_id = $1"
    assert await db.fetchval(count, stream.log.queue_id) == 1
    await house.vhost.delete_queue("s")
    await house.upkeep()
    assert await db.fetchval(count, stream.log.queue_id) == 0


async def test_a_group_moves_on_over_what_its_filter_refuses(house: House) -> None:
    await house.stream()
    await house.store("s", *numbered(0, 3_000))

    def is_wanted(message: Message) -> bool:
        return int(message.body) % 1_000 == 999

    inbox, consumer = await house.consume("s", ACCEPTED, group="g", start=FIRST, accepts=is_wanted)
    assert bodies(await inbox.has(3)) == [b"999", b"1999", b"2999"]
    assert await committed(house, "g") == 3_000
    await house.store("s", b"3000", b"3999")
    await inbox.has(4)
    house.vhost.end_consumer(consumer, FAILED)
    await house.crash_and_reopen()
    everyone, _ = await house.consume("s", ACCEPTED, start=Position(offset=3_000))
    assert bodies(await everyone.has(2)) == [b"3000", b"3999"]  # other readers see all of it


async def test_nothing_is_dropped_of_a_stream_that_somebody_made_a_classic_queue_by_hand(
    migrated_url: str,
) -> None:
    house = await House(migrated_url).with_segments(100).open()
    await house.stream()
    for body in numbered(0, 5):
        await house.store("s", body * 200)
    await house.close()
    connection = await asyncpg.connect(house.url)
    await connection.execute("UPDATE howdah.queue SET arguments = '{}' WHERE name = 's'")
    await house.open()
    await house.upkeep()
    assert await connection.fetchval("SELECT count(*) FROM howdah.message") == 5
    await connection.close()
    await house.close()
