"""Deduplication by the header x-deduplication-header: exchanges of their own kind, and queues with
the argument x-message-deduplication."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.errors import InvalidArgument, QueueFull
from queue_core.message.message import Message, Properties, Value
from queue_core.outcomes import ACCEPTED, REJECTED, RELEASED, Published
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from tests.support.managers import KINDS, House, Told, bodies, declare, drained

HEADER = "x-deduplication-header"
MEMORIES = ["disk", "memory"]


async def exchange(house: House, **arguments: object) -> None:
    words = {"x-cache-size": 100} | {key.replace("_", "-"): v for key, v in arguments.items()}
    await house.vhost.declare_exchange(ExchangeSpec.parse("d", "x-message-deduplication", words))


async def bound(house: House, **arguments: object) -> None:
    """An exchange with a queue."""
    await exchange(house, **arguments)
    await house.vhost.bind("d", await house.queue())


def said(
    body: bytes, key: Value = "a", exchange: str = "d", ttl: int | None = None, **values: object
) -> Message:
    headers: tuple[tuple[str, Value], ...] = ((HEADER, key),)
    if ttl is not None:
        headers += (("x-cache-ttl", ttl),)
    properties = Properties(headers=headers)
    return Message(body, exchange, routing_key="q", properties=properties, **values)  # type: ignore[arg-type]


def plain(body: bytes, exchange: str = "d") -> Message:
    return Message(body, exchange, routing_key="q")


# --- exchanges


@pytest.mark.parametrize("memory", MEMORIES)
async def test_each_value_of_the_header_is_let_through_once(house: House, memory: str) -> None:
    await bound(house, x_cache_persistence=memory)
    for body, key in ((b"1", "a"), (b"2", "a"), (b"3", "b"), (b"4", "a")):
        house.vhost.publish(said(body, key))
    for body in (b"5", b"6"):
        house.vhost.publish(plain(body))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"3", b"5", b"6"]
    house.vhost.publish(said(b"7"))  # that it was consumed changes nothing
    await house.flushed()
    assert await house.drain() == []
    assert house.manager.counters.duplicates == 3
    assert house.manager.counters.unroutable == 0


@pytest.mark.parametrize("value", ["a", 42, 4.5, True, None, b"\x00\xff", ["x", 1], "long " * 100])
async def test_values_of_every_type_tell_repetitions(house: House, value: Value) -> None:
    await bound(house)
    for body in (b"1", b"2"):
        house.vhost.publish(said(body, value))
    await house.flushed()
    await house.crash_and_reopen()
    house.vhost.publish(said(b"3", value))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-cache-size": None},
        {"x-cache-size": 0},
        {"x-cache-size": "many"},
        {"x-cache-size": 1, "x-cache-ttl": 0},
        {"x-cache-size": 1, "x-cache-ttl": "soon"},
        {"x-cache-size": 1, "x-cache-persistence": "paper"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="x-cache"):
        ExchangeSpec.parse("d", "x-message-deduplication", arguments)


def test_a_cache_has_a_size() -> None:
    with pytest.raises(InvalidArgument, match="x-cache-size"):
        ExchangeSpec.parse("d", "x-message-deduplication")
    ExchangeSpec.parse("d", "x-message-deduplication", {"x-cache-size": "5"})


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_full_cache_forgets_the_oldest(house: House, memory: str) -> None:
    await bound(house, x_cache_size=2, x_cache_persistence=memory)
    for key in "abca":
        house.vhost.publish(said(key.encode(), key))
    await house.flushed()
    assert bodies(await house.drain()) == [b"a", b"b", b"c", b"a"]
    house.vhost.publish(said(b"again", "c"))
    await house.flushed()
    assert await house.drain() == []


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_value_may_come_again_when_its_time_is_over(house: House, memory: str) -> None:
    await bound(house, x_cache_ttl=1000, x_cache_persistence=memory)
    house.vhost.publish(said(b"1"))
    house.vhost.publish(said(b"2", "long", ttl=60_000))
    await house.later(0.9)
    house.vhost.publish(said(b"3"))
    await house.later(0.2)
    for body, key in ((b"4", "a"), (b"5", "long"), (b"6", "a")):
        house.vhost.publish(said(body, key))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"2", b"4"]
    assert house.manager.counters.dropped_expired == 0


async def test_a_stored_cache_outlives_a_crash_with_its_times(house: House) -> None:
    await bound(house, x_cache_ttl=10_000)
    house.vhost.publish(said(b"1"))
    house.vhost.publish(said(b"2", "short", ttl=1000))
    await house.flushed()
    await house.crash_and_reopen()
    await house.later(2)
    for key in ("a", "short"):
        house.vhost.publish(said(b"again", key))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"2", b"again"]
    await house.later(9)
    house.vhost.publish(said(b"late"))
    await house.flushed()
    assert bodies(await house.drain()) == [b"late"]


async def test_a_cache_in_memory_ends_with_the_gateway(house: House) -> None:
    await bound(house, x_cache_persistence="memory")
    house.vhost.publish(said(b"1"))
    await house.flushed()
    await house.crash_and_reopen()
    house.vhost.publish(said(b"2"))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"2"]


async def test_what_a_crash_kept_from_the_disk_was_not_seen(house: House) -> None:
    """A value and its message are committed together, or neither is."""
    await bound(house)
    house.vhost.publish(said(b"lost"))
    await house.crash_and_reopen()
    house.vhost.publish(said(b"stored"))
    await house.flushed()
    await house.crash_and_reopen()
    house.vhost.publish(said(b"repeated"))
    await house.flushed()
    assert bodies(await house.drain()) in ([b"stored"], [b"lost"])


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_repetition_is_confirmed_with_what_it_repeats(house: House, memory: str) -> None:
    await bound(house, x_cache_persistence=memory)
    told = Told()
    assert house.vhost.publish(said(b"1"), told, 1) is Published.PENDING
    assert house.vhost.publish(said(b"2"), told, 2) is Published.REMEMBERED
    await told.answers(2)
    assert told.committed == [1, 2]


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_repetition_of_what_could_not_be_stored_is_refused(
    house: House, memory: str
) -> None:
    await bound(house, x_cache_persistence=memory)
    told = Told()
    house.vhost.publish(said(b"never", expires_at=1e12), told, 1)  # after the last year there is
    house.vhost.publish(said(b"repeated"), told, 2)
    await told.answers(2)
    assert sorted(token for token, _ in told.refused) == [1, 2]
    house.vhost.publish(said(b"stored"), told, 3)
    await told.answers(3)
    assert told.committed == [3]
    assert bodies(await house.drain()) == [b"stored"]


@pytest.mark.parametrize("memory", MEMORIES)
async def test_what_a_full_queue_refuses_may_be_published_again(house: House, memory: str) -> None:
    await exchange(house, x_cache_persistence=memory)
    await house.vhost.bind("d", await house.queue(max_length=1, overflow="reject-publish"))
    house.vhost.publish(said(b"1"))
    assert house.vhost.publish(said(b"2", "b")) is Published.REFUSED
    await house.flushed()
    await house.drain()
    assert house.vhost.publish(said(b"2", "b")) is Published.PENDING
    await house.flushed()
    assert bodies(await house.drain()) == [b"2"]


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_value_is_seen_though_no_queue_is_bound(house: House, memory: str) -> None:
    await exchange(house, x_cache_persistence=memory)
    assert house.vhost.publish(said(b"1")) in (Published.NOWHERE, Published.REMEMBERED)
    assert house.manager.counters.unroutable == 1
    await house.vhost.bind("d", await house.queue())
    house.vhost.publish(said(b"2"))
    await house.flushed()
    assert await house.drain() == []


@pytest.mark.parametrize("memory", MEMORIES)
async def test_an_alternate_exchange_gets_the_repetitions(house: House, memory: str) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("other", "fanout"))
    await house.vhost.bind("other", await house.queue("rest"))
    await bound(house, x_cache_persistence=memory, alternate_exchange="other")
    for body in (b"1", b"2"):
        house.vhost.publish(said(body))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1"]
    assert bodies(await house.drain("rest")) == [b"2"]


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_transaction_is_judged_when_it_is_committed(house: House, memory: str) -> None:
    await bound(house, x_cache_persistence=memory)
    first, second, third = (house.vhost.transaction() for _ in range(3))
    for work in (first, second, third):
        assert work.publish(said(b"once"))
        assert work.publish(said(b"twice"))
    first.rollback()
    assert [each.body for each in await second.commit()] == [b"twice"]
    assert [each.body for each in await third.commit()] == [b"once", b"twice"]
    assert bodies(await house.drain()) == [b"once"]
    assert house.manager.counters.duplicates == 3


@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_transaction_that_is_refused_was_not_seen(house: House, memory: str) -> None:
    await bound(house, x_cache_persistence=memory)
    await house.queue("full", max_length=1, overflow="reject-publish")
    await house.store("full", b"x")
    work = house.vhost.transaction()
    work.publish(said(b"1"))
    work.publish(Message(b"too much", "", routing_key="full"))
    with pytest.raises(QueueFull):
        await work.commit()
    house.vhost.publish(said(b"2"))
    await house.flushed()
    assert bodies(await house.drain()) == [b"2"]


async def test_a_dead_letter_that_returns_is_no_repetition(house: House) -> None:
    """A dead letter that is taken for a repetition is lost for good: nobody else has it."""
    await exchange(house)
    await house.vhost.bind("d", await house.queue(dead_letter_exchange="d"))
    house.vhost.publish(said(b"1"))
    inbox, consumer = await house.consume()
    house.vhost.settle(await inbox.has(1), REJECTED)
    (_, returned) = await inbox.has(2)
    assert returned.message.deaths
    house.vhost.settle([returned], ACCEPTED)
    house.vhost.end_consumer(consumer, None)
    house.vhost.publish(said(b"2"))
    await house.flushed()
    assert await house.drain() == []


async def test_exchanges_before_and_behind(house: House) -> None:
    await bound(house)
    for name in ("before", "behind"):
        await house.vhost.declare_exchange(ExchangeSpec.parse(name, "fanout"))
    await house.vhost.bind("before", ExchangeRef("d"))
    await house.vhost.bind("d", ExchangeRef("behind"))
    await house.vhost.bind("behind", await house.queue("far"))
    await house.vhost.bind("before", await house.queue("all"))
    for body in (b"1", b"2"):
        house.vhost.publish(said(body, exchange="before"))
    await house.flushed()
    assert bodies(await house.drain()) == bodies(await house.drain("far")) == [b"1"]
    assert bodies(await house.drain("all")) == [b"1", b"2"]


async def test_sql_publishes_each_value_once(house: House, db: asyncpg.Connection) -> None:
    await bound(house)
    for body in ("1", "2"):
        await db.execute(
            "SELECT howdah.publish('k', $1::text, exchange => 'd', headers => $2::jsonb)",
            body,
            f'{{"{HEADER}": "a"}}',
        )
    await drained(db)
    assert bodies(await house.drain()) == [b"1"]


async def test_what_is_remembered_is_bounded_over_all_exchanges(house: House) -> None:
    await bound(house, x_cache_size=1000, x_cache_persistence="memory")
    house.manager._ids.limit = 10
    for number in range(50):
        house.vhost.publish(said(b"%d" % number, number))
    assert house.manager._ids.used == 10
    assert house.manager.counters.dedup_forgotten == 40
    await house.vhost.delete_exchange("d")
    assert house.manager._ids.used == 0


async def test_a_cache_ends_with_its_exchange(house: House, db: asyncpg.Connection) -> None:
    await bound(house)
    house.vhost.publish(said(b"1"))
    await house.vhost.delete_exchange("d")
    await bound(house)
    house.vhost.publish(said(b"2"))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"2"]
    await house.vhost.delete_exchange("d")
    assert await db.fetchval("SELECT count(*) FROM howdah.queue WHERE name LIKE '$seen/%'") == 0


async def test_no_body_is_stored_for_a_value_that_was_seen(
    house: House, db: asyncpg.Connection
) -> None:
    await exchange(house)
    house.vhost.publish(said(b"body"))
    await house.flushed()
    (row,) = await db.fetch(
        "SELECT m.message_id, m.body, m.headers FROM howdah.message m "
        "JOIN howdah.queue q ON q.id = m.queue_id WHERE q.name = '$seen/d'"
    )
    assert dict(row) == {"message_id": "'a'", "body": b"", "headers": None}


# --- queues


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_takes_no_repetition_of_what_is_in_it(house: House, kind: str) -> None:
    await declare(house, kind, message_deduplication=True)
    for body in (b"1", b"2"):
        house.vhost.publish(said(body, exchange=""))
    for body in (b"3", b"4"):
        house.vhost.publish(plain(body, ""))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"3", b"4"]
    house.vhost.publish(said(b"5", exchange=""))  # the first has left
    await house.flushed()
    assert bodies(await house.drain()) == [b"5"]
    assert house.manager.counters.duplicates == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_consumer_holds_or_gave_back_is_in_the_queue(house: House, kind: str) -> None:
    await declare(house, kind, message_deduplication=True)
    house.vhost.publish(said(b"1", exchange=""))
    inbox, consumer = await house.consume(credit=1)
    (delivery,) = await inbox.has(1)
    house.vhost.publish(said(b"held", exchange=""))
    house.vhost.end_consumer(consumer, None)
    house.vhost.settle([delivery], RELEASED)
    house.vhost.publish(said(b"given back", exchange=""))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1"]
    assert house.manager.counters.duplicates == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["rejected", "purged", "expired", "overflown", "not acknowledged"])
async def test_what_leaves_a_queue_may_come_again(house: House, kind: str, how: str) -> None:
    limits = {"overflown": {"max_length": 1}}.get(how, {})
    await declare(house, kind, message_deduplication=True, **limits)
    expires_at = house.clock() + 1 if how == "expired" else None
    house.vhost.publish(said(b"1", exchange="", expires_at=expires_at))
    await house.flushed()
    match how:
        case "rejected":
            inbox, consumer = await house.consume(credit=1)
            house.vhost.settle(await inbox.has(1), REJECTED)
            house.vhost.end_consumer(consumer, None)
        case "purged":
            await house.vhost.purge_queue("q")
        case "expired":
            await house.later(2)
        case "overflown":
            house.vhost.publish(said(b"other", "b", exchange=""))
        case "not acknowledged":
            inbox, consumer = await house.consume(auto_settle=True)
            await inbox.has(1)
            house.vhost.end_consumer(consumer, None)
    await house.flushed()
    house.vhost.publish(said(b"again", exchange=""))
    await house.flushed()
    assert bodies(await house.drain())[-1] == b"again"


async def test_a_queue_knows_after_a_crash_what_is_in_it(house: House) -> None:
    await house.queue(message_deduplication=True)
    for key in "abc":
        house.vhost.publish(said(key.encode(), key, exchange=""))
    await house.flushed()
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], ACCEPTED)
    await house.flushed()
    await house.crash_and_reopen()
    for key in "abc":
        house.vhost.publish(said(key.encode() + b"2", key, exchange=""))
    await house.flushed()
    assert bodies(await house.drain()) == [b"b", b"c", b"a2"]


async def test_a_repetition_of_what_a_queue_could_not_store_is_refused(house: House) -> None:
    await house.queue(message_deduplication=True)
    told = Told()
    house.vhost.publish(said(b"never", exchange="", expires_at=1e12), told, 1)
    house.vhost.publish(said(b"repeated", exchange=""), told, 2)
    await told.answers(2)
    assert sorted(token for token, _ in told.refused) == [1, 2]
    house.vhost.publish(said(b"stored", exchange=""), told, 3)
    house.vhost.publish(said(b"repeated", exchange=""), told, 4)
    await told.answers(4)
    assert told.committed == [3, 4]
    assert bodies(await house.drain()) == [b"stored"]


async def test_a_queue_takes_a_value_once_in_a_transaction(house: House) -> None:
    await house.queue(message_deduplication=True)
    work = house.vhost.transaction()
    for body in (b"1", b"2"):
        work.publish(said(body, exchange=""))
    await work.commit()
    assert bodies(await house.drain()) == [b"1"]


async def test_what_a_queue_remembers_stays_as_small_as_the_queue(house: House) -> None:
    await house.queue(message_deduplication=True)
    for number in range(5000):
        house.vhost.publish(said(b"", number, exchange=""))
        if number % 500 == 0:
            await house.drain()
    await house.drain()
    house.vhost.publish(said(b"", "last", exchange=""))
    assert house.manager._ids.used < 3000
    await house.vhost.delete_queue("q")
    assert house.manager._ids.used == 0


def test_a_queue_deduplicates_in_one_way() -> None:
    arguments = {"x-message-deduplication": True, "x-deduplication-window": 1000}
    with pytest.raises(InvalidArgument, match="either"):
        QueueSpec.parse("q", arguments)
    with pytest.raises(InvalidArgument, match="x-message-deduplication"):
        QueueSpec.parse("q", {"x-message-deduplication": "yes"})
    with pytest.raises(InvalidArgument, match="stream"):
        QueueSpec.parse("q", {"x-message-deduplication": True, "x-queue-type": "stream"})
