"""Classic and ephemeral queues as semantics describe them: what expires, what is limited, who gets
what and in which order, on a real database."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.errors import QueueNotFound
from queue_core.message.message import Message, Properties
from queue_core.outcomes import (
    ACCEPTED,
    FAILED,
    REJECTED,
    RELEASED,
    Outcome,
    Published,
    Verdict,
)
from queue_core.queues.deduplication_by_message_id import Window
from tests.support.managers import KINDS, House, Told, bodies, declare
from tests.support.until import PATIENCE_SECONDS, turns


def letter(body: bytes, **values: object) -> Message:
    return Message(body, "", routing_key="q", **values)  # type: ignore[arg-type]


# --- time to live


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_lives_no_longer_than_its_queue_allows(house: House, kind: str) -> None:
    await declare(house, kind, message_ttl=1000)
    await house.store("q", b"1", b"2")
    await house.later(0.9)
    assert house.vhost.queue("q").counts().ready == 2
    await house.later(0.2)
    assert house.vhost.queue("q").counts().ready == 0
    assert house.manager.counters.dropped_expired == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_the_shorter_of_two_times_to_live_counts(house: House, kind: str) -> None:
    await declare(house, kind, message_ttl=5000)
    house.vhost.publish(letter(b"short", expires_at=house.clock() + 1))
    house.vhost.publish(letter(b"long", expires_at=house.clock() + 60))
    await house.flushed()
    await house.later(1.5)
    assert bodies(await house.drain()) == [b"long"]
    await house.store("q", b"again")
    house.vhost.publish(letter(b"long", expires_at=house.clock() + 60))
    await house.later(5.1)
    assert await house.drain() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_an_expired_message_is_not_handed_out_even_if_nobody_looked(
    house: House, kind: str
) -> None:
    await declare(house, kind)
    house.vhost.publish(letter(b"old", expires_at=house.clock() + 1))
    house.vhost.publish(letter(b"fresh"))
    await house.flushed()
    house.clock.now += 2
    assert bodies(await house.drain()) == [b"fresh"]


async def test_a_message_in_flight_does_not_expire_before_it_returns(house: House) -> None:
    await house.queue("q", message_ttl=1000)
    await house.store("q", b"1")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.later(2)
    assert house.vhost.queue("q").counts().in_flight == 1
    house.vhost.settle(inbox.take(), RELEASED)
    await house.later(0.1)
    assert inbox.deliveries == []
    assert house.manager.counters.dropped_expired == 1


async def test_what_was_to_expire_expires_after_a_restart_with_nobody_looking(house: House) -> None:
    await house.queue("q", message_ttl=1000)
    await house.queue("own")
    await house.store("q", b"1", b"2")
    house.vhost.publish(Message(b"3", "", routing_key="own", expires_at=house.clock() + 1))
    await house.flushed()
    await house.crash_and_reopen()
    house.clock.now += 2
    await house.later(0.1)
    await house.until(lambda: house.manager.counters.dropped_expired == 3)
    assert house.manager.counters.dropped_expired == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_that_nobody_uses_is_deleted(house: House, kind: str) -> None:
    await declare(house, kind, expires=1000)
    inbox, consumer = await house.consume("q")
    await house.later(5)
    assert "q" in house.vhost.queues
    house.vhost.end_consumer(consumer, None)
    await house.later(0.9)
    assert "q" in house.vhost.queues
    await house.later(0.2)
    await house.until(lambda: "q" not in house.vhost.queues)
    assert inbox.cancelled is None


async def test_an_unused_queue_stays_gone_after_a_restart(house: House) -> None:
    await house.queue("q", expires=1000)
    await house.reopen()
    assert "q" in house.vhost.queues
    await house.later(1.1)
    await house.until(lambda: "q" not in house.vhost.queues)
    await house.reopen()
    with pytest.raises(QueueNotFound):
        house.vhost.queue("q")


# --- limits


@pytest.mark.parametrize("kind", KINDS)
async def test_the_oldest_goes_when_a_queue_is_too_long(house: House, kind: str) -> None:
    await declare(house, kind, max_length=2)
    await house.store("q", b"1", b"2", b"3", b"4")
    assert bodies(await house.drain()) == [b"3", b"4"]
    assert house.manager.counters.dropped_overflow == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_the_oldest_go_when_a_queue_is_too_large(house: House, kind: str) -> None:
    await declare(house, kind, max_length_bytes=10)
    await house.store("q", b"1234", b"5678", b"90ab")
    assert bodies(await house.drain()) == [b"5678", b"90ab"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_in_flight_does_not_count_for_the_length(house: House, kind: str) -> None:
    await declare(house, kind, max_length=1)
    await house.store("q", b"1")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.store("q", b"2")
    house.vhost.settle(inbox.take(), ACCEPTED)
    assert bodies(await inbox.has(1)) == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_queue_refuses_and_tells_the_publisher(house: House, kind: str) -> None:
    await declare(house, kind, max_length=2, overflow="reject-publish")
    told = Told()
    answers = house.put("q", b"1", b"2", b"3", told=told)
    assert answers[2] is Published.REFUSED
    await house.flushed()
    assert house.vhost.publish(letter(b"4")) is Published.REFUSED
    assert bodies(await house.drain()) == [b"1", b"2"]
    assert house.vhost.publish(letter(b"5")) is not Published.REFUSED
    await house.flushed()
    assert bodies(await house.drain()) == [b"5"]
    assert house.manager.counters.refused_full == 2


async def test_a_full_queue_refuses_by_bytes_after_a_restart_too(house: House) -> None:
    await house.queue("q", max_length_bytes=8, overflow="reject-publish")
    await house.store("q", b"1234", b"5678")
    await house.crash_and_reopen()
    assert house.vhost.publish(letter(b"x")) is Published.REFUSED
    await house.drain()
    assert house.vhost.publish(letter(b"x")) is Published.PENDING


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_queue_may_dead_letter_what_it_refuses(house: House, kind: str) -> None:
    await house.queue("dead")
    await declare(
        house,
        kind,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    await house.store("q", b"1", b"2")
    assert bodies(await house.drain("q")) == [b"1"]
    (dead,) = await house.drain("dead")
    assert dead.message.body == b"2"
    assert [(d.queue, d.reason) for d in dead.message.deaths] == [("q", "maxlen")]


# --- order, redelivery, delay


@pytest.mark.parametrize("kind", KINDS)
async def test_a_returned_message_goes_back_to_its_own_place(house: House, kind: str) -> None:
    await declare(house, kind)
    await house.store("q", b"0", b"1", b"2", b"3", b"4")
    inbox, consumer = await house.consume("q", credit=4, replenish=False)
    first = (await inbox.has(4))[:4]
    house.vhost.settle([first[2]], RELEASED)
    house.vhost.settle([first[0]], FAILED)
    house.vhost.settle([first[1]], ACCEPTED)
    house.vhost.end_consumer(consumer, RELEASED)
    again = await house.drain()
    assert bodies(again) == [b"0", b"2", b"3", b"4"]
    assert [(d.redelivered, d.failures) for d in again] == [
        (True, 1),
        (True, 0),
        (True, 0),
        (False, 0),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_consumer_counts_and_a_closed_one_does_not(house: House, kind: str) -> None:
    await declare(house, kind)
    await house.store("q", b"1")
    for verdict, expected in ((RELEASED, 0), (FAILED, 1), (FAILED, 2)):
        inbox, consumer = await house.consume("q", credit=1)
        await inbox.has(1)
        house.vhost.end_consumer(consumer, verdict)
        delivery = await house.vhost.get("q")
        assert delivery is not None
        assert (delivery.redelivered, delivery.failures) == (True, expected)
        house.vhost.settle([delivery], RELEASED)


async def test_a_cancelled_consumer_may_still_settle(house: House) -> None:
    await house.queue()
    await house.store("q", b"1", b"2")
    inbox, consumer = await house.consume("q", credit=1)
    await inbox.has(1)
    house.vhost.end_consumer(consumer, None)
    assert house.vhost.queue("q").counts().in_flight == 1
    house.vhost.settle(inbox.deliveries, ACCEPTED)
    assert bodies(await house.drain()) == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.MODIFIED])
async def test_a_returned_message_waits_if_asked_to(
    house: House, kind: str, outcome: Outcome
) -> None:
    await declare(house, kind)
    await house.store("q", b"1", b"2")
    inbox, _ = await house.consume("q", credit=1)
    (first,) = await inbox.has(1)
    house.vhost.settle([first], Verdict(outcome, delay=5.0))
    assert bodies(await inbox.has(2)) == [b"1", b"2"]
    await house.later(4.9)
    assert house.vhost.queue("q").counts().delayed == 1
    house.vhost.settle([inbox.deliveries[1]], ACCEPTED)
    await house.later(0.2)
    await inbox.has(3)
    assert inbox.bodies == [b"1", b"2", b"1"]
    assert inbox.deliveries[2].redelivered


async def test_a_delay_that_is_asked_for_again_survives_a_crash_too(house: House) -> None:
    await house.queue("q")
    await house.store("q", b"1")
    for _ in range(3):
        taken = await house.vhost.get("q")
        assert taken is not None
        house.vhost.settle([taken], Verdict(Outcome.RELEASED, delay=50.0))
        await house.later(51)
    taken = await house.vhost.get("q")
    assert taken is not None
    house.vhost.settle([taken], Verdict(Outcome.RELEASED, delay=50.0))
    await house.flushed()
    await house.crash_and_reopen()
    assert await house.vhost.get("q") is None
    await house.later(51)
    assert bodies(await house.drain()) == [b"1"]


async def test_a_delay_survives_a_crash(house: House) -> None:
    await house.queue()
    await house.store("q", b"1", b"2")
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], Verdict(Outcome.MODIFIED, delay=60.0))
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"2"]
    await house.later(61)
    assert bodies(await house.drain()) == [b"1"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_may_be_published_for_later(house: House, kind: str) -> None:
    await declare(house, kind)
    house.vhost.publish(letter(b"later", not_before=house.clock() + 10))
    house.vhost.publish(letter(b"now"))
    await house.flushed()
    inbox, _ = await house.consume("q")
    assert bodies(await inbox.has(1)) == [b"now"]
    await house.later(11)
    assert bodies(await inbox.has(2)) == [b"now", b"later"]


@pytest.mark.parametrize("priorities", [None, 3])
async def test_messages_for_later_are_not_all_kept_in_memory(
    house: House, priorities: int | None
) -> None:
    arguments = {} if priorities is None else {"max_priority": priorities}
    queue = await house.queue("q", **arguments)
    queue.context.budget.limit = 100_000  # some forty of them
    for number in range(200):
        house.vhost.publish(letter(bytes(2000) + b"%d" % number, not_before=house.clock() + 10))
    await house.flushed()
    inbox, _ = await house.consume("q")
    await house.flushed()
    while queue.counts().delayed < 200:  # the rest is read back
        await house.flushed()
    assert queue.context.budget.used < 200_000
    await house.later(11)
    assert bodies(await inbox.has(200)) == [bytes(2000) + b"%d" % n for n in range(200)]
    assert queue.cursor.ready.bytes == 0


async def test_a_message_for_later_waits_over_a_restart(house: House) -> None:
    await house.queue()
    house.vhost.publish(letter(b"later", not_before=house.clock() + 10))
    await house.flushed()
    await house.reopen()
    inbox, _ = await house.consume("q")
    await house.store("q", b"now")
    assert bodies(await inbox.has(1)) == [b"now"]
    await house.later(11)
    assert bodies(await inbox.has(2)) == [b"now", b"later"]


# --- priority


@pytest.mark.parametrize("kind", KINDS)
async def test_higher_priority_goes_first_and_equals_in_order(house: House, kind: str) -> None:
    await declare(house, kind, max_priority=5)
    for body, priority in ((b"a", None), (b"b", 3), (b"c", 9), (b"d", 3), (b"e", 5), (b"f", 0)):
        house.vhost.publish(letter(body, priority=priority))
    await house.flushed()
    assert bodies(await house.drain()) == [b"c", b"e", b"b", b"d", b"a", b"f"]


async def test_priorities_are_found_again_after_a_crash(house: House) -> None:
    await house.queue("q", max_priority=9)
    for i in range(30):
        house.vhost.publish(letter(b"%d" % i, priority=i % 3))
    await house.flushed()
    first = await house.vhost.get("q")
    second = await house.vhost.get("q")
    assert first is not None
    assert second is not None
    house.vhost.settle([first], ACCEPTED)
    await house.flushed()
    await house.crash_and_reopen()
    found = await house.drain()
    expected = [b"%d" % i for p in (2, 1, 0) for i in range(30) if i % 3 == p][1:]
    assert bodies(found) == expected
    assert found[0].redelivered


async def test_an_orderly_restart_suspects_no_message_that_was_never_handed_out(
    house: House,
) -> None:
    for name, arguments in (("q", {}), ("p", {"max_priority": 3})):
        await house.queue(name, **arguments)
        inbox, consumer = await house.consume(name, credit=2, replenish=False)
        await house.store(name, b"1", b"2", b"3", b"4")
        await inbox.has(2)
        house.vhost.settle([inbox.deliveries[0]], ACCEPTED)
        house.vhost.end_consumer(consumer, RELEASED)
    await house.reopen()
    for name in ("q", "p"):
        found = await house.drain(name)
        assert [(d.message.body, d.redelivered) for d in found][1:] == [
            (b"3", False),
            (b"4", False),
        ], name


# --- auto-settle, purge, deduplication


@pytest.mark.parametrize("kind", KINDS)
async def test_what_settles_by_being_handed_over_never_comes_back(house: House, kind: str) -> None:
    await declare(house, kind)
    await house.store("q", b"1", b"2")
    inbox, consumer = await house.consume("q", auto_settle=True)
    await inbox.has(2)
    house.vhost.end_consumer(consumer, FAILED)
    assert house.vhost.queue("q").counts().ready == 0
    if kind == "classic":
        await house.flushed()
        await house.crash_and_reopen()
        assert await house.drain() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_purge_leaves_what_is_in_flight(house: House, kind: str) -> None:
    await declare(house, kind)
    await house.store("q", b"1", b"2", b"3", b"4")
    inbox, consumer = await house.consume("q", credit=1)
    await inbox.has(1)
    second = await house.vhost.get("q")
    assert second is not None
    house.vhost.settle([second], Verdict(Outcome.RELEASED, delay=100.0))
    assert await house.vhost.purge_queue("q") == 3
    assert house.vhost.queue("q").counts().in_flight == 1
    house.vhost.end_consumer(consumer, RELEASED)
    assert bodies(await house.drain()) == [b"1"]


async def test_a_purge_is_remembered(house: House) -> None:
    await house.queue()
    await house.store("q", b"1", b"2", b"3")
    inbox, _ = await house.consume("q", credit=1)
    await inbox.has(1)
    await house.vhost.purge_queue("q")
    await house.store("q", b"4")
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"1", b"4"]


def with_id(body: bytes, message_id: str) -> Message:
    return letter(body, properties=Properties(message_id=message_id))


async def test_a_repeated_message_id_is_stored_once_within_the_window(house: House) -> None:
    await house.queue("q", deduplication_window=10_000)
    told = Told()
    house.vhost.publish(with_id(b"1", "a"), told, 1)
    assert house.vhost.publish(with_id(b"2", "a"), told, 2) is Published.PENDING
    house.vhost.publish(with_id(b"3", "b"), told, 3)
    house.vhost.publish(letter(b"4"), told, 4)
    house.vhost.publish(letter(b"5"), told, 5)
    await told.answers(5)
    assert told.committed == [1, 2, 3, 4, 5]
    house.clock.now += 11
    house.vhost.publish(with_id(b"6", "a"))
    assert bodies(await house.drain()) == [b"1", b"3", b"4", b"5", b"6"]
    assert house.manager.counters.duplicates == 1


@pytest.mark.parametrize(
    "message_id",
    [
        pytest.param("a", id="short"),
        pytest.param("".join(map(str, range(20_000))), id="longer than an index takes"),
        pytest.param("a\0b", id="nul"),
        pytest.param("\N{ELEPHANT}" * 256, id="wide"),
    ],
)
async def test_the_window_is_remembered_over_a_crash(house: House, message_id: str) -> None:
    await house.queue("q", deduplication_window=10_000)
    told = Told()
    house.vhost.publish(with_id(b"1", message_id), told, 1)
    await told.answers(1)
    assert told.committed == [1]
    await house.crash_and_reopen()
    house.clock.now += 5
    house.vhost.publish(with_id(b"2", message_id))
    await house.reopen()  # what is known is written down anew
    house.clock.now += 1
    house.vhost.publish(with_id(b"3", message_id))
    house.clock.now += 5
    house.vhost.publish(with_id(b"4", message_id))
    assert bodies(await house.drain()) == [b"1", b"4"]


async def test_a_message_that_was_refused_may_be_published_again(house: House) -> None:
    await house.queue("q", deduplication_window=10_000, max_length=1, overflow="reject-publish")
    await house.store("q", b"full")
    assert house.vhost.publish(with_id(b"1", "a")) is Published.REFUSED
    await house.drain()
    assert house.vhost.publish(with_id(b"1", "a")) is Published.PENDING
    await house.flushed()
    assert bodies(await house.drain()) == [b"1"]


async def test_a_dead_letter_that_returns_is_no_repetition(house: House) -> None:
    await house.queue(
        "wait", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="q"
    )
    await house.queue(
        "q",
        deduplication_window=60_000,
        dead_letter_exchange="",
        dead_letter_routing_key="wait",
    )
    house.vhost.publish(with_id(b"1", "a"))
    await house.flushed()
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], REJECTED)
    await house.flushed()
    await house.later(1.1)
    assert bodies(await house.drain()) == [b"1"]


async def test_a_manager_closes_while_something_becomes_due(house: House) -> None:
    """An appointment that is made in the turn of the closing does not keep it open."""
    await house.queue("q")
    house.manager.agenda.at(house.clock() + 50, lambda: None)
    await turns()  # the agenda waits for its first appointment
    house.manager.agenda.at(house.clock() + 40, lambda: None)
    await asyncio.wait_for(house.close(), PATIENCE_SECONDS)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_delivered_and_settled_is_counted(house: House, kind: str) -> None:
    await declare(house, kind)
    await house.store("q", b"1", b"2", b"3")
    inbox, _ = await house.consume("q")
    deliveries = await inbox.has(3)
    house.vhost.settle(deliveries[:2], ACCEPTED)
    counters = house.manager.counters
    assert (counters.delivered, counters.settled) == (3, 2)


async def test_a_repetition_of_what_could_not_be_stored_is_refused(house: House) -> None:
    await house.queue(deduplication_window=60_000)
    told, again = Told(), Told()
    once = Properties(message_id="1")
    beyond = letter(b"never", expires_at=1e12, properties=once)  # after the last year there is
    house.vhost.publish(beyond, told, 1)
    house.vhost.publish(letter(b"repeated", properties=once), again, 2)
    await told.answers(1)
    await again.answers(1)
    assert [token for token, _ in told.refused + again.refused] == [1, 2]
    third = Told()
    house.vhost.publish(letter(b"stored", properties=once), third, 3)
    await third.answers(1)
    assert third.committed == [3]
    assert bodies(await house.drain()) == [b"stored"]


async def test_an_id_is_written_down_apart_from_its_message_only_when_that_is_stored(
    house: House,
) -> None:
    """A new generation of the journal copies the ids. One of a message that a crash then keeps from
    the disk would make a repetition of the next, which is the only one there is."""
    queue = await house.queue(deduplication_window=60_000)
    assert isinstance(queue.window, Window)
    house.vhost.publish(letter(b"1", properties=Properties(message_id="1")))
    assert dict(queue.window.stored()) == {}
    await house.flushed()
    assert dict(queue.window.stored()) == {"1": house.clock()}
    house.vhost.publish(letter(b"2", properties=Properties(message_id="2"), expires_at=1e12))
    await house.flushed()
    assert not queue.window._coming


async def test_a_stream_delivers_no_message_before_its_time(house: House) -> None:
    await house.stream("q")
    inbox, _ = await house.consume("q")
    house.vhost.publish(letter(b"later", not_before=house.clock() + 10))
    house.vhost.publish(letter(b"now"))
    assert bodies(await inbox.has(1)) == [b"now"]
    await house.later(11)
    assert bodies(await inbox.has(2)) == [b"now", b"later"]


async def test_a_crash_counts_for_what_was_released_before_however_orderly_the_next_end_is(
    house: House,
) -> None:
    await house.queue()
    await house.store("q", b"0")
    inbox, consumer = await house.consume()
    await inbox.has(1)
    house.vhost.end_consumer(consumer, RELEASED)
    await house.reopen()
    inbox, _ = await house.consume()
    (delivery,) = await inbox.has(1)
    assert (delivery.redelivered, delivery.failures) == (True, 0)
    await house.crash_and_reopen()
    await house.reopen()
    inbox, _ = await house.consume()
    (delivery,) = await inbox.has(1)
    assert (delivery.redelivered, delivery.failures) == (True, 1)
