"""Transactions: all or nothing, on a real database."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.errors import InvalidArgument, QueueFull
from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Verdict
from tests.support.managers import House, bodies
from tests.support.until import turns


def to(queue: str, body: bytes, **values: object) -> Message:
    return Message(body, "", routing_key=queue, **values)  # type: ignore[arg-type]


async def test_nothing_is_seen_before_the_commit_and_everything_after_it(house: House) -> None:
    await house.queue("a")
    await house.queue("b")
    await house.store("a", b"in")
    taken = await house.vhost.get("a")
    assert taken is not None
    transaction = house.vhost.transaction()
    assert transaction.publish(to("a", b"1"))
    assert transaction.publish(to("b", b"2"))
    assert not transaction.publish(to("nobody", b"3"))
    transaction.settle([taken], ACCEPTED)
    await house.flushed()
    assert house.vhost.queue("b").counts().ready == 0
    assert house.vhost.queue("a").counts().in_flight == 1
    await transaction.commit()
    await house.crash_and_reopen()
    assert bodies(await house.drain("a")) == [b"1"]
    assert bodies(await house.drain("b")) == [b"2"]


async def test_a_rollback_leaves_everything_as_it_was(house: House) -> None:
    await house.queue("a")
    await house.store("a", b"in")
    taken = await house.vhost.get("a")
    assert taken is not None
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"1"))
    transaction.settle([taken], ACCEPTED)
    transaction.rollback()
    assert taken.is_open
    house.vhost.settle([taken], RELEASED)
    assert bodies(await house.drain("a")) == [b"in"]


async def test_a_transaction_lies_in_the_log_whole_and_in_order(house: House) -> None:
    await house.queue("a")
    transaction = house.vhost.transaction()
    for i in range(50):
        transaction.publish(to("a", b"%d" % i))
    await transaction.commit()
    assert bodies(await house.drain("a")) == [b"%d" % i for i in range(50)]


async def test_large_bodies_of_one_transaction_stay_apart(house: House) -> None:
    await house.queue("a")
    await house.queue("b")
    large = [bytes([i]) * 10_000 for i in range(4)]
    transaction = house.vhost.transaction()
    for i, body in enumerate(large):
        transaction.publish(to("ab"[i % 2], body))
    await transaction.commit()
    await house.crash_and_reopen()
    assert bodies(await house.drain("a")) == [large[0], large[2]]
    assert bodies(await house.drain("b")) == [large[1], large[3]]


async def test_every_verdict_may_be_part_of_a_transaction(house: House) -> None:
    await house.queue("dead")
    await house.queue("a", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.store("a", b"accept", b"release", b"reject", b"fail")
    inbox, consumer = await house.consume("a", credit=4, replenish=False)
    await inbox.has(4)
    transaction = house.vhost.transaction()
    for delivery, verdict in zip(
        inbox.deliveries, (ACCEPTED, RELEASED, REJECTED, FAILED), strict=True
    ):
        transaction.settle([delivery], verdict)
    await transaction.commit()
    await house.flushed()
    house.vhost.end_consumer(consumer, RELEASED)
    assert bodies(await house.drain("dead")) == [b"reject"]
    found = await house.drain("a")
    assert [(d.message.body, d.failures) for d in found] == [(b"release", 0), (b"fail", 1)]


async def test_a_queue_that_refuses_refuses_all_of_it(house: House) -> None:
    await house.queue("a")
    await house.ephemeral("e")
    await house.queue("full", max_length=1, overflow="reject-publish")
    await house.queue("ids", deduplication_window=60_000)
    message = to("ids", b"id", properties=Properties(message_id="m"))
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"1"))
    transaction.publish(to("e", b"2"))
    transaction.publish(message)
    transaction.publish(to("full", b"3"))
    transaction.publish(to("full", b"4"))
    with pytest.raises(QueueFull, match="'full' is full"):
        await transaction.commit()
    await house.flushed()
    for name in ("a", "e", "ids", "full"):
        assert house.vhost.queue(name).counts().ready == 0, name
    house.vhost.publish(message)
    house.put("full", b"5")
    await house.flushed()
    assert bodies(await house.drain("ids")) == [b"id"]
    assert bodies(await house.drain("full")) == [b"5"]


async def test_a_transaction_that_cannot_be_stored_gives_back_what_it_had_accepted(
    house: House,
) -> None:
    await house.queue("a")
    await house.vhost.bind("amq.topic", house.vhost.queue("a"), "#")
    await house.store("a", b"in")
    taken = await house.vhost.get("a")
    assert taken is not None
    transaction = house.vhost.transaction()
    transaction.settle([taken], ACCEPTED)
    transaction.publish(Message(b"bad", "amq.topic", routing_key="with\0nul"))
    with pytest.raises(InvalidArgument, match="cannot be stored"):
        await transaction.commit()
    found = await house.drain("a")
    assert [(d.message.body, d.redelivered) for d in found] == [(b"in", True)]


async def test_after_a_crash_a_transaction_is_there_or_not(house: House) -> None:
    await house.queue("a")
    await house.queue("b")
    await house.store("a", *[b"%d" % i for i in range(30)])
    inbox, _ = await house.consume("a")
    await inbox.has(30)
    commits = []
    for delivery in inbox.deliveries:
        transaction = house.vhost.transaction()
        transaction.settle([delivery], ACCEPTED)
        transaction.publish(to("b", delivery.message.body))
        commits.append(asyncio.create_task(transaction.commit()))
    await turns()  # the commit has begun
    await house.crash()
    for task in commits:
        task.cancel()
    await asyncio.gather(*commits, return_exceptions=True)
    await house.open()
    left, moved = bodies(await house.drain("a")), bodies(await house.drain("b"))
    assert sorted(left + moved) == sorted(b"%d" % i for i in range(30))


@pytest.mark.parametrize("verdict", [REJECTED, RELEASED, FAILED])
async def test_a_transaction_that_cannot_be_stored_settles_nothing(
    house: House, verdict: Verdict
) -> None:
    await house.queue("a")
    await house.store("a", b"in")
    taken = await house.vhost.get("a")
    assert taken is not None
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"1", priority=70_000))  # that no column holds
    transaction.settle([taken], verdict)
    with pytest.raises(InvalidArgument):
        await transaction.commit()
    assert house.manager.counters.returned == 0
    await house.crash_and_reopen()
    assert bodies(await house.drain("a")) == [b"in"]


async def test_a_rejected_message_is_dead_lettered_with_the_commit(house: House) -> None:
    await house.queue("dead")
    await house.queue("a", dead_letter_exchange="", dead_letter_routing_key="dead")
    await house.store("a", b"in")
    taken = await house.vhost.get("a")
    assert taken is not None
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"out"))
    transaction.settle([taken], REJECTED)
    transaction.settle([taken], ACCEPTED)  # said twice: the first word counts
    commits = house.manager.counters.commits
    await transaction.commit()
    assert house.manager.counters.commits == commits + 1
    await house.crash_and_reopen()
    assert bodies(await house.drain("a")) == [b"out"]
    assert bodies(await house.drain("dead")) == [b"in"]


async def test_a_queue_in_memory_gets_its_messages_when_the_rest_is_committed(
    house: House,
) -> None:
    await house.queue("a")
    await house.ephemeral("e")
    inbox, _ = await house.consume("e", auto_settle=True)
    transaction = house.vhost.transaction()
    transaction.publish(to("e", b"live"))
    transaction.publish(to("a", b"1", priority=70_000))  # that no column holds
    with pytest.raises(InvalidArgument):
        await transaction.commit()
    assert not inbox.direct
    transaction.publish(to("e", b"live"))
    transaction.publish(to("a", b"1"))
    commit = asyncio.create_task(transaction.commit())
    await turns()  # the commit has begun
    assert not inbox.direct  # nothing is committed yet
    await commit
    assert [message.body for message in await inbox.has_direct(1)] == [b"live"]


async def test_what_a_transaction_accepts_is_counted_as_settled(house: House) -> None:
    await house.queue("a")
    await house.store("a", b"1", b"2")
    taken = [await house.vhost.get("a") for _ in range(2)]
    transaction = house.vhost.transaction()
    transaction.settle([delivery for delivery in taken if delivery], ACCEPTED)
    await transaction.commit()
    assert house.manager.counters.settled == 2


@pytest.mark.parametrize("is_bad", [False, True])
async def test_a_commit_goes_on_to_its_end_when_nobody_waits_for_it_any_more(
    house: House, is_bad: bool
) -> None:
    await house.queue("a")
    await house.queue("b")
    await house.store("a", b"accepted", b"released")
    inbox, consumer = await house.consume("a", credit=2, replenish=False)
    accepted, released = await inbox.has(2)
    transaction = house.vhost.transaction()
    transaction.settle([accepted], ACCEPTED)
    transaction.settle([released], RELEASED)
    transaction.publish(to("b", b"out", priority=70_000 if is_bad else 1))
    commit = asyncio.create_task(transaction.commit())
    await turns()  # the commit has begun
    commit.cancel()
    await asyncio.gather(commit, return_exceptions=True)
    await house.flushed()
    house.vhost.end_consumer(consumer, RELEASED)
    assert bodies(await house.drain("b")) == ([] if is_bad else [b"out"])
    left = [b"accepted", b"released"] if is_bad else [b"released"]
    assert bodies(await house.drain("a")) == left


async def test_a_repetition_in_a_transaction_is_none_if_the_first_could_not_be_stored(
    house: House,
) -> None:
    await house.queue("a", deduplication_window=60_000)
    await house.queue("b")
    await house.store("b", b"in")
    taken = await house.vhost.get("b")
    assert taken is not None
    once = Properties(message_id="1")
    house.vhost.publish(to("a", b"never", expires_at=1e12, properties=once))
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"stored", properties=once))
    transaction.settle([taken], ACCEPTED)
    await transaction.commit()
    again = house.vhost.transaction()
    again.publish(to("a", b"repeated", properties=once))
    await again.commit()
    await house.crash_and_reopen()
    assert bodies(await house.drain("a")) == [b"stored"]
    assert bodies(await house.drain("b")) == []


async def test_what_is_said_while_a_commit_waits_belongs_to_the_next_transaction(
    house: House,
) -> None:
    await house.queue("a", deduplication_window=60_000)
    once = Properties(message_id="1")
    house.vhost.publish(to("a", b"first", properties=once))
    transaction = house.vhost.transaction()
    transaction.publish(to("a", b"again", properties=once))
    committing = asyncio.ensure_future(transaction.commit())
    await turns()  # the commit has begun
    transaction.publish(to("a", b"next"))
    await committing
    assert bodies(await house.drain("a")) == [b"first"]
    await transaction.commit()
    assert bodies(await house.drain("a")) == [b"next"]
