"""Dead letters: what dies, why, where it goes, and that it is never in two places or in none."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.message.message import Death, Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED
from queue_core.routing.exchanges import ExchangeSpec
from tests.support.managers import House, bodies

TO_DEAD = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}


def deaths(message: Message) -> list[tuple[str, str, int]]:
    return [(death.queue, death.reason, death.count) for death in message.deaths]


async def reject(house: House, queue: str) -> None:
    delivery = await house.vhost.get(queue)
    assert delivery is not None
    house.vhost.settle([delivery], REJECTED)
    await house.flushed()


async def test_a_rejected_message_says_where_and_why_it_died(house: House) -> None:
    await house.queue("dead")
    await house.queue("q", **TO_DEAD)
    await house.vhost.bind("amq.direct", house.vhost.queue("q"), "orders")
    house.vhost.publish(Message(b"1", "amq.direct", routing_key="orders", publisher="p"))
    await house.flushed()
    await reject(house, "q")
    assert house.vhost.queue("q").counts().ready == 0
    await house.crash_and_reopen()
    (dead,) = await house.drain("dead")
    assert dead.message.deaths == (
        Death(
            queue="q",
            reason="rejected",
            count=1,
            time=house.clock(),
            exchange="amq.direct",
            routing_keys=("orders",),
        ),
    )
    assert (dead.message.exchange, dead.message.routing_key) == ("", "dead")
    assert dead.message.publisher == "p"
    assert not dead.redelivered


async def test_without_a_key_of_its_own_a_dead_letter_keeps_the_one_it_had(house: House) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("graves", "topic"))
    await house.queue("dead")
    await house.vhost.bind("graves", house.vhost.queue("dead"), "#")
    await house.queue("q", dead_letter_exchange="graves")
    await house.store("q", b"1")
    await reject(house, "q")
    (dead,) = await house.drain("dead")
    assert (dead.message.exchange, dead.message.routing_key) == ("graves", "q")


async def test_rejected_without_a_dead_letter_exchange_is_dropped_and_counted(house: House) -> None:
    await house.queue()
    await house.store("q", b"1")
    await reject(house, "q")
    assert house.manager.counters.dropped_rejected == 1
    await house.crash_and_reopen()
    assert await house.drain() == []


async def test_a_dead_letter_exchange_that_does_not_exist_drops_and_counts(house: House) -> None:
    await house.queue("q", dead_letter_exchange="nowhere")
    await house.store("q", b"1")
    await reject(house, "q")
    assert house.manager.counters.dropped_rejected == 1
    assert house.vhost.queue("q").counts().ready == 0


async def test_an_expired_message_dies_of_it_without_an_expiry_of_its_own(house: House) -> None:
    await house.queue("dead")
    await house.queue("q", **TO_DEAD)
    house.vhost.publish(
        Message(b"1", "", routing_key="q", expires_at=house.clock() + 2.5, priority=3)
    )
    await house.flushed()
    await house.later(3)
    (dead,) = await house.drain("dead")
    assert deaths(dead.message) == [("q", "expired", 1)]
    assert dead.message.expires_at is None
    assert dead.message.priority == 3


async def test_what_overflows_dies_of_maxlen_in_order(house: House) -> None:
    await house.queue("dead")
    await house.queue("q", max_length=1, **TO_DEAD)
    await house.store("q", b"1", b"2", b"3")
    await house.flushed()
    found = await house.drain("dead")
    assert bodies(found) == [b"1", b"2"]
    assert {d for each in found for d in deaths(each.message)} == {("q", "maxlen", 1)}
    assert bodies(await house.drain("q")) == [b"3"]


@pytest.mark.parametrize("limit", [0, 2])
async def test_a_message_that_fails_too_often_dies_of_it(house: House, limit: int) -> None:
    await house.queue("dead")
    await house.queue("q", delivery_limit=limit, **TO_DEAD)
    await house.store("q", b"1")
    for expected in range(limit + 1):
        delivery = await house.vhost.get("q")
        assert delivery is not None
        assert delivery.failures == expected
        house.vhost.settle([delivery], FAILED)
    await house.flushed()
    assert await house.vhost.get("q") is None
    (dead,) = await house.drain("dead")
    assert deaths(dead.message) == [("q", "delivery_limit", 1)]
    assert dead.failures == 0


async def test_released_does_not_count_towards_the_limit(house: House) -> None:
    await house.queue("q", delivery_limit=1)
    await house.store("q", b"1")
    for _ in range(5):
        delivery = await house.vhost.get("q")
        assert delivery is not None
        house.vhost.settle([delivery], RELEASED)
    assert len(await house.drain()) == 1


async def test_failures_are_counted_over_a_crash(house: House) -> None:
    await house.queue("q", delivery_limit=3)
    await house.store("q", b"1", b"2")
    for _ in range(2):
        delivery = await house.vhost.get("q")
        assert delivery is not None
        house.vhost.settle([delivery], FAILED)
    await house.flushed()
    await house.crash_and_reopen()
    delivery = await house.vhost.get("q")
    assert delivery is not None
    assert (delivery.message.body, delivery.failures, delivery.redelivered) == (b"1", 2, True)


async def test_a_quorum_queue_gives_up_after_twenty_failures(house: House) -> None:
    await house.queue("q", queue_type="quorum")
    await house.store("q", b"1")
    count = 0
    while (delivery := await house.vhost.get("q")) is not None:
        house.vhost.settle([delivery], FAILED)
        count += 1
    assert count == 21
    assert house.manager.counters.dropped_exhausted == 1


async def test_deaths_of_one_kind_are_counted_and_the_newest_comes_first(house: House) -> None:
    await house.queue(
        "wait", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="q"
    )
    await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="wait")
    await house.store("q", b"1")
    for _ in range(3):
        await reject(house, "q")
        await house.later(1.1)
    (found,) = await house.drain("q")
    assert deaths(found.message) == [("wait", "expired", 3), ("q", "rejected", 3)]


async def test_a_letter_that_would_go_round_for_ever_is_dropped_and_counted(house: House) -> None:
    await house.queue("a", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="b")
    await house.queue("b", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="a")
    await house.store("a", b"1")
    await house.later(1.1)
    assert house.vhost.queue("b").counts().ready == 1
    await house.later(1.1)
    assert house.vhost.queue("a").counts().ready + house.vhost.queue("b").counts().ready == 0
    assert house.manager.counters.dropped_cycle == 1


async def test_a_dead_letter_reaches_all_queues_and_leaves_its_own_in_one_commit(
    house: House, db: asyncpg.Connection
) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("graves", "fanout"))
    for name in ("d1", "d2"):
        await house.queue(name)
        await house.vhost.bind("graves", house.vhost.queue(name))
    queue = await house.queue("q", dead_letter_exchange="graves")
    await house.store("q", b"1")
    await reject(house, "q")
    moved = await db.fetch(
        "SELECT xmin::text FROM howdah.message WHERE queue_id <> $1", queue.log.queue_id
    )
    settled = await db.fetch(
        "SELECT xmin::text FROM howdah.settlement WHERE queue_id = $1 AND acked @> 0::int8",
        queue.log.queue_id,
    )
    assert len(moved) == 2
    assert len({row["xmin"] for row in [*moved, *settled]}) == 1


async def test_after_a_crash_a_dying_message_is_in_one_place(house: House) -> None:
    """Whatever was written when the gateway died: never both, never neither."""
    await house.queue("dead")
    await house.queue("q", **TO_DEAD)
    await house.store("q", *[b"%d" % i for i in range(200)])
    inbox, _ = await house.consume("q", credit=200)
    await inbox.has(200)
    for delivery in inbox.deliveries:
        house.vhost.settle([delivery], REJECTED)
    await house.crash_and_reopen()
    dead = bodies(await house.drain("dead"))
    left = bodies(await house.drain("q"))
    assert sorted(dead + left) == sorted(b"%d" % i for i in range(200))


async def test_an_ephemeral_queue_dead_letters_to_a_durable_one(house: House) -> None:
    await house.queue("dead")
    await house.ephemeral("e", **TO_DEAD)
    await house.store("e", b"1", b"2")
    first = await house.vhost.get("e")
    assert first is not None
    house.vhost.settle([first], REJECTED)
    second = await house.vhost.get("e")
    assert second is not None
    house.vhost.settle([second], ACCEPTED)
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain("dead")) == [b"1"]


async def test_a_dead_letter_that_cannot_be_stored_is_dropped_once(house: House) -> None:
    await house.queue("dead")
    await house.ephemeral("e", message_ttl=1000, dead_letter_exchange="amq.fanout")
    await house.vhost.bind("amq.fanout", house.vhost.queue("dead"))
    await house.vhost.bind("amq.topic", house.vhost.queue("e"), "#")
    house.vhost.publish(Message(b"1", "amq.topic", routing_key="with\0nul"))
    await house.later(1.1)
    failed = house.manager.counters.failed_writes
    assert failed == 1
    await house.later(5)
    assert house.manager.counters.failed_writes == failed
    assert house.vhost.queue("e").counts().ready == 0


async def test_a_dead_letter_that_nobody_takes_is_counted_as_dropped(house: House) -> None:
    await house.queue("dead", max_length=0, overflow="reject-publish")
    await house.queue("q", **TO_DEAD)
    await house.store("q", b"1")
    await reject(house, "q")
    assert house.manager.counters.dead_lettered == 0
    assert house.manager.counters.dropped_rejected == 1
