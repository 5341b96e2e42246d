"""Consumers: credit, turns, windows, exclusive and single active ones, on a real database."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.delivery.consumer import ConsumerSpec, SharedCredit
from queue_core.errors import InvalidArgument, ResourceLocked
from queue_core.outcomes import (
    ACCEPTED,
    FAILED,
    Outcome,
    Verdict,
)
from tests.support.inbox import Inbox
from tests.support.managers import KINDS, House, bodies, declare
from tests.support.until import PATIENCE_SECONDS, turns


async def test_a_consumer_gets_no_more_than_its_credit(house: House) -> None:
    await house.queue()
    inbox, consumer = await house.consume("q", credit=2)
    await house.store("q", *[b"%d" % i for i in range(6)])
    assert len(inbox.deliveries) == 2
    house.vhost.settle(inbox.deliveries[:1], ACCEPTED)
    assert len(inbox.deliveries) == 3
    consumer.grant(1)
    assert len(inbox.deliveries) == 4


async def test_credit_that_is_not_replenished_is_spent(house: House) -> None:
    await house.queue()
    inbox, consumer = await house.consume("q", ACCEPTED, credit=2, replenish=False)
    await house.store("q", *[b"%d" % i for i in range(6)])
    assert len(inbox.deliveries) == 2
    consumer.set_credit(3)
    assert len(inbox.deliveries) == 5


async def test_a_short_way_to_one_consumer_keeps_to_its_credit(house: House) -> None:
    await house.ephemeral("q")
    inbox, consumer = await house.consume("q", credit=2, replenish=False, auto_settle=True)
    house.put("q", b"1", b"2", b"3")
    await inbox.has(2)
    assert inbox.bodies == [b"1", b"2"]
    consumer.grant(1)
    assert inbox.bodies == [b"1", b"2", b"3"]


async def test_a_new_consumer_gets_nothing_before_it_is_woken(house: House) -> None:
    await house.ephemeral("q")
    inbox = Inbox()
    consumer = await house.vhost.consume("q", inbox, ConsumerSpec(auto_settle=True))
    house.put("q", b"1")
    assert not inbox.direct
    assert not inbox.deliveries
    consumer.wake()
    assert inbox.bodies == [b"1"]


async def test_a_window_is_shared_by_the_consumers_of_a_channel(house: House) -> None:
    await house.queue("q")
    await house.queue("r")
    window = SharedCredit(3)
    first, _ = await house.consume("q", shared=window)
    second, _ = await house.consume("r", shared=window)
    await house.store("q", *[b"%d" % i for i in range(5)])
    await house.store("r", *[b"%d" % i for i in range(5)])
    assert len(first.deliveries) + len(second.deliveries) == 3
    house.vhost.settle(first.deliveries[:2], ACCEPTED)
    assert len(first.deliveries) + len(second.deliveries) == 5


async def test_consumers_take_turns(house: House) -> None:
    await house.queue()
    first, _ = await house.consume("q")
    second, _ = await house.consume("q")
    await house.store("q", b"0", b"1", b"2", b"3")
    assert [len(first.deliveries), len(second.deliveries)] == [2, 2]


async def test_a_consumer_of_higher_priority_goes_first_while_it_has_credit(house: House) -> None:
    await house.queue()
    low, _ = await house.consume("q", priority=0)
    high, _ = await house.consume("q", priority=10, credit=2)
    await house.store("q", b"0", b"1", b"2")
    assert (high.bodies, low.bodies) == ([b"0", b"1"], [b"2"])


async def test_one_consumer_is_active_and_the_next_follows_it(house: House) -> None:
    await house.queue("q", single_active_consumer=True)
    first, one = await house.consume("q", ACCEPTED)
    second, two = await house.consume("q", ACCEPTED)
    third, _ = await house.consume("q", ACCEPTED)
    await house.store("q", b"0", b"1")
    house.vhost.end_consumer(one, FAILED)
    await house.store("q", b"2")
    house.vhost.end_consumer(two, None)
    await house.store("q", b"3")
    assert (first.bodies, second.bodies, third.bodies) == ([b"0", b"1"], [b"2"], [b"3"])


async def test_what_the_active_consumer_had_goes_to_the_next(house: House) -> None:
    await house.queue("q", single_active_consumer=True)
    first, one = await house.consume("q")
    second, _ = await house.consume("q")
    await house.store("q", b"0", b"1")
    await first.has(2)
    house.vhost.end_consumer(one, FAILED)
    found = await second.has(2)
    assert [(d.message.body, d.failures) for d in found] == [(b"0", 1), (b"1", 1)]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_exclusive_consumer_is_alone(house: House, kind: str) -> None:
    await declare(house, kind)
    _, consumer = await house.consume("q", exclusive=True)
    with pytest.raises(ResourceLocked, match="exclusive use"):
        await house.consume("q")
    house.vhost.end_consumer(consumer, None)
    await house.consume("q")
    with pytest.raises(ResourceLocked, match="must be the only one"):
        await house.consume("q", exclusive=True)


async def test_groups_and_positions_are_for_streams(house: House) -> None:
    await house.queue()
    with pytest.raises(InvalidArgument, match="for streams"):
        await house.consume("q", group="g")


@pytest.mark.parametrize("priority", [0, 5])
async def test_a_message_undeliverable_to_one_goes_to_another(house: House, priority: int) -> None:
    await house.queue()
    first, _ = await house.consume("q", credit=1, priority=priority)
    await house.store("q", b"1")
    second, _ = await house.consume("q", credit=1)
    house.vhost.settle(first.take(), Verdict(Outcome.MODIFIED, undeliverable_here=True))
    assert bodies(await second.has(1)) == [b"1"]
    assert not first.deliveries


async def test_a_message_undeliverable_to_all_waits_for_somebody_else(house: House) -> None:
    await house.queue()
    first, _ = await house.consume("q", credit=2)
    await house.store("q", b"1", b"2")
    await first.has(2)
    house.vhost.settle(first.deliveries[:1], Verdict(Outcome.RELEASED, undeliverable_here=True))
    assert len(first.deliveries) == 2
    third, _ = await house.consume("q")
    assert bodies(await third.has(1)) == [b"1"]


async def test_a_paused_consumer_gets_nothing_until_it_resumes(house: House) -> None:
    await house.queue()
    inbox, consumer = await house.consume("q", ACCEPTED)
    consumer.pause()
    await house.store("q", b"1")
    assert not inbox.deliveries
    consumer.resume()
    assert inbox.bodies == [b"1"]


async def test_draining_ends_when_nothing_is_left(house: House) -> None:
    await house.queue()
    await house.store("q", b"1")
    inbox, consumer = await house.consume("q", ACCEPTED, credit=5, replenish=False)
    drained = asyncio.Event()
    consumer.drain(drained.set)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await drained.wait()
    assert inbox.bodies == [b"1"]


async def test_a_get_that_is_given_up_keeps_no_message(house: House) -> None:
    await house.queue()
    await house.store("q", b"1")
    getting = asyncio.create_task(house.vhost.get("q"))
    await turns()  # it has begun
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
    await house.flushed()
    assert bodies(await house.drain()) == [b"1"]


async def test_a_message_that_is_not_acknowledged_in_time_comes_back_counted(house: House) -> None:
    await house.queue("q", consumer_timeout=30_000)
    await house.store("q", b"1")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.later(29)
    assert len(inbox.deliveries) == 1
    for count in (1, 2, 3):
        await house.later(31)
        delivery = (await inbox.has(count + 1))[count]
        assert (delivery.message.body, delivery.failures) == (b"1", count)


async def test_an_exclusive_consumer_of_a_stream_needs_a_group(house: House) -> None:
    await house.stream("q")
    with pytest.raises(InvalidArgument, match="needs a group"):
        await house.consume("q", exclusive=True)
