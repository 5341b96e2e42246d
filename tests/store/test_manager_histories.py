"""Exchanges of the kind x-recent-history: what they remember, who gets it, and what survives."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.errors import InvalidArgument, NameReserved, QueueFull, QueueNotFound
from queue_core.message.message import Message, Properties
from queue_core.outcomes import REJECTED, Published
from queue_core.queues.exchange_history import MOST_OF_ONE_BYTES
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.store.tables.vhosts import Vhosts
from tests.support.managers import House, Told, bodies, drained

LENGTH = "x-recent-history-length"


async def history(
    house: House, name: str = "h", *, durable: bool = True, **arguments: object
) -> None:
    words = {key.replace("_", "-"): value for key, value in arguments.items()}
    spec = ExchangeSpec.parse(name, "x-recent-history", words, durable=durable)
    await house.vhost.declare_exchange(spec)


async def bound(house: House, name: str = "q", source: str = "h") -> list[bytes]:
    """Binds a new queue and gives the messages that it gets at once."""
    queue = await house.queue(name)
    await house.vhost.bind(source, queue)
    return bodies(await house.drain(name))


def said(body: bytes, exchange: str = "h", key: str = "k", **values: object) -> Message:
    return Message(body, exchange, routing_key=key, **values)  # type: ignore[arg-type]


def publish(house: House, *numbers: int, exchange: str = "h") -> None:
    for number in numbers:
        house.vhost.publish(said(str(number).encode(), exchange))


def numbers(*values: int) -> list[bytes]:
    return [str(value).encode() for value in values]


@pytest.mark.parametrize("durable", [True, False])
async def test_a_queue_that_is_bound_later_gets_the_last_messages_in_order(
    house: House, durable: bool
) -> None:
    await history(house, durable=durable)
    publish(house, *range(25))
    assert await bound(house) == numbers(*range(5, 25))
    publish(house, 25)
    await house.flushed()
    assert bodies(await house.drain()) == numbers(25)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_history_has_the_length_that_was_asked_for(house: House, durable: bool) -> None:
    await history(house, durable=durable, x_recent_history_length=3)
    publish(house, *range(10))
    assert await bound(house) == numbers(7, 8, 9)


@pytest.mark.parametrize("length", [0, -1, "3", True, 1 << 40])
async def test_a_length_that_makes_no_sense_is_refused(house: House, length: object) -> None:
    with pytest.raises(InvalidArgument, match=LENGTH):
        await history(house, x_recent_history_length=length)


@pytest.mark.parametrize("durable", [True, False])
async def test_what_comes_after_the_history_stays_behind_it(house: House, durable: bool) -> None:
    """Messages that are still on their way to the disk are part of the history, too."""
    await history(house, durable=durable)
    publish(house, 1, 2)
    queue = await house.queue()
    await house.vhost.bind("h", queue)
    publish(house, 3)
    await house.flushed()
    assert bodies(await house.drain()) == numbers(1, 2, 3)


async def test_a_binding_that_is_there_already_brings_nothing_again(house: House) -> None:
    await history(house)
    publish(house, 1)
    assert await bound(house) == numbers(1)
    await house.vhost.bind("h", house.vhost.queue("q"))
    assert await house.drain() == []
    await house.vhost.bind("h", house.vhost.queue("q"), "another key")
    assert bodies(await house.drain()) == numbers(1)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_message_that_asks_not_to_be_stored_is_not_remembered(
    house: House, durable: bool
) -> None:
    await history(house, durable=durable)
    await bound(house, "early")
    secret = Properties(headers=(("x-recent-history-no-store", True),))
    known = Properties(headers=(("x-recent-history-no-store", False),))
    house.vhost.publish(said(b"secret", properties=secret))
    house.vhost.publish(said(b"known", properties=known))
    await house.flushed()
    assert bodies(await house.drain("early")) == [b"secret", b"known"]
    assert await bound(house, "late") == [b"known"]


async def test_a_history_outlives_a_crash(house: House) -> None:
    await history(house, x_recent_history_length=3)
    publish(house, *range(10))
    await house.flushed()
    await house.crash_and_reopen()
    publish(house, 10)
    assert await bound(house) == numbers(8, 9, 10)
    await house.reopen()
    assert await bound(house, "another") == numbers(8, 9, 10)
    assert await house.drain() == []  # a restart brings nothing to what was bound before


async def test_a_history_outlives_its_segments(house: House) -> None:
    house.with_segments(1000)
    await house.reopen()
    await history(house, x_recent_history_length=3)
    await house.queue()
    for number in range(30):
        house.vhost.publish(said(b"%d" % number))
        await house.store("q", bytes(500))
        await house.drain()
        await house.upkeep()
    await house.crash_and_reopen()
    assert await bound(house, "late") == numbers(27, 28, 29)


async def test_a_message_that_no_queue_takes_is_unroutable_and_remembered(house: House) -> None:
    await history(house)
    told = Told()
    assert house.vhost.publish(said(b"1"), told, 1) is Published.REMEMBERED
    await told.answers(1)
    assert told.committed == [1]
    assert await bound(house) == [b"1"]


async def test_a_message_that_a_full_queue_refuses_is_not_remembered(house: House) -> None:
    await history(house)
    queue = await house.queue(max_length=1, overflow="reject-publish")
    await house.vhost.bind("h", queue)
    assert house.vhost.publish(said(b"fits")) is Published.PENDING
    assert house.vhost.publish(said(b"does not")) is Published.REFUSED
    assert await bound(house, "late") == [b"fits"]


@pytest.mark.parametrize("durable", [True, False])
async def test_a_message_that_cannot_be_stored_is_not_remembered(
    house: House, durable: bool
) -> None:
    await history(house, durable=durable)
    await bound(house)
    told = Told()
    beyond = said(b"never", expires_at=1e12)  # after the last year there is
    house.vhost.publish(beyond, told, 1)
    await told.answers(1)
    assert told.refused
    assert await bound(house, "late") == []


async def test_a_transaction_is_remembered_with_its_commit(house: House) -> None:
    await history(house)
    work = house.vhost.transaction()
    assert work.publish(said(b"1")) is Published.REMEMBERED  # nothing is bound
    assert await bound(house) == []
    stranded = await work.commit()
    assert bodies_of(stranded) == [b"1"]
    assert await bound(house, "late") == [b"1"]
    undone = house.vhost.transaction()
    undone.publish(said(b"2"))
    undone.rollback()
    assert await bound(house, "later") == [b"1"]


@pytest.mark.parametrize("durable", [True, False])
async def test_a_transaction_that_cannot_be_stored_is_not_remembered(
    house: House, durable: bool
) -> None:
    await history(house, durable=durable)
    await bound(house)
    work = house.vhost.transaction()
    work.publish(said(b"1"))
    work.publish(said(b"never", expires_at=1e12))  # after the last year there is
    with pytest.raises(InvalidArgument):
        await work.commit()
    assert await bound(house, "late") == []


@pytest.mark.parametrize("durable", [True, False])
async def test_a_transaction_that_is_refused_is_not_remembered(house: House, durable: bool) -> None:
    await history(house, durable=durable)
    await house.queue("full", max_length=1, overflow="reject-publish")
    await house.store("full", b"x")
    work = house.vhost.transaction()
    work.publish(said(b"1"))
    work.publish(Message(b"too much", "", routing_key="full"))
    with pytest.raises(QueueFull):
        await work.commit()
    assert await bound(house) == []


async def test_dead_letters_are_remembered(house: House) -> None:
    await history(house)
    await house.queue(dead_letter_exchange="h")
    await house.store("q", b"1")
    inbox, _ = await house.consume("q")
    house.vhost.settle(await inbox.has(1), REJECTED)
    await house.flushed()
    assert await bound(house, "late") == [b"1"]


async def test_exchanges_before_and_behind_a_history(house: House) -> None:
    for name in ("before", "behind"):
        await house.vhost.declare_exchange(ExchangeSpec.parse(name, "topic"))
    await history(house)
    await house.vhost.bind("before", ExchangeRef("h"), "a.#")
    await house.vhost.bind("behind", await house.queue("some"), "a.b")
    for key in ("a.b", "a.c", "b"):
        house.vhost.publish(said(key.encode(), "before", key))
    await house.vhost.bind("h", ExchangeRef("behind"))
    assert bodies(await house.drain("some")) == [b"a.b"]
    assert await bound(house, "late") == [b"a.b", b"a.c"]


async def test_a_circle_of_exchanges_does_not_double_a_history(house: House) -> None:
    await history(house)
    await house.vhost.declare_exchange(ExchangeSpec.parse("f", "fanout"))
    await house.vhost.bind("f", ExchangeRef("h"))
    publish(house, 1)
    await house.vhost.bind("h", ExchangeRef("f"))
    assert await bound(house) == numbers(1)


async def test_an_alternate_exchange_gets_what_nothing_is_bound_for(house: House) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("other", "fanout"))
    await house.vhost.bind("other", await house.queue("rest"))
    await history(house, alternate_exchange="other")
    publish(house, 1)
    await house.flushed()
    assert bodies(await house.drain("rest")) == numbers(1)
    assert await bound(house) == numbers(1)
    publish(house, 2)
    await house.flushed()
    assert await house.drain("rest") == []


async def test_sql_publishes_into_a_history(house: House, db: asyncpg.Connection) -> None:
    await history(house)
    await db.execute("SELECT howdah.publish('k', '1'::text, exchange => 'h', mandatory => false)")
    await drained(db)
    assert await bound(house) == numbers(1)


async def test_a_stream_that_is_bound_gets_the_history(house: House) -> None:
    await history(house)
    publish(house, 1, 2)
    stream = await house.stream()
    await house.vhost.bind("h", stream)
    entries = await house.vhost.browse("s", 0, 10)
    assert [entry.message.body for entry in entries] == numbers(1, 2)


async def test_an_expired_message_is_not_given_to_anybody(house: House) -> None:
    await history(house)
    house.vhost.publish(said(b"short", expires_at=house.clock() + 1))
    publish(house, 1)
    await house.later(2)
    assert await bound(house) == numbers(1)
    await house.crash_and_reopen()
    assert await bound(house, "late") == numbers(1)
    assert house.manager.counters.dropped_expired == 0


@pytest.mark.parametrize("durable", [True, False])
async def test_a_history_is_bounded_in_bytes(house: House, durable: bool) -> None:
    await history(house, durable=durable)
    large = bytes(MOST_OF_ONE_BYTES // 3)
    for number in range(5):
        house.vhost.publish(said(b"%d" % number + large))
    found = await bound(house)
    assert [body[:1] for body in found] == [b"3", b"4"]
    used = house.manager._histories.used
    assert 0 < used <= MOST_OF_ONE_BYTES
    assert house.manager.memory.sources["exchange_histories"]() == used


async def test_a_history_does_not_hold_copies_in_other_forms(house: House) -> None:
    await history(house)
    message = said(b"1")
    house.vhost.publish(message)
    message.encoded = {"another protocol": bytes(1 << 20)}
    await house.vhost.bind("h", await house.queue())
    (delivery,) = await house.drain()
    delivery.message.encoded = {"another protocol": bytes(1 << 20)}
    await house.vhost.bind("h", await house.queue("late"))
    (delivery,) = await house.drain("late")
    assert delivery.message.body == b"1"
    assert delivery.message.encoded is None


async def test_many_histories_share_one_bound(house: House) -> None:
    house.manager._histories.limit = 40_000
    for number in range(10):
        await history(house, f"h{number}", durable=False)
        for _ in range(10):
            house.vhost.publish(said(bytes(1000), f"h{number}"))
    assert house.manager._histories.used <= 40_000
    assert len(await bound(house, "q", "h0")) == 2
    for number in range(10):
        await house.vhost.delete_exchange(f"h{number}")
    assert house.manager._histories.used == 0


async def test_a_history_ends_with_its_exchange(house: House, db: asyncpg.Connection) -> None:
    await history(house)
    publish(house, 1)
    await house.vhost.delete_exchange("h")
    await history(house)
    publish(house, 2)
    assert await bound(house) == numbers(2)
    await house.vhost.delete_exchange("h")
    assert await db.fetchval("SELECT count(*) FROM howdah.queue WHERE name = '$history/h'") == 0
    await house.crash_and_reopen()
    await history(house)
    assert await bound(house, "late") == []


async def test_a_crash_between_an_exchange_and_its_memory_is_mended_at_the_next_start(
    house: House, db: asyncpg.Connection
) -> None:
    for name in ("h", "gone"):
        await history(house, name)
    await house.crash()
    await db.execute("DELETE FROM howdah.exchange WHERE name = 'gone'")
    await db.execute("DELETE FROM howdah.queue WHERE name = '$history/h'")
    await house.open()
    publish(house, 1)
    await house.flushed()
    await house.crash_and_reopen()
    assert await bound(house) == numbers(1)
    left = await db.fetch("SELECT name FROM howdah.queue WHERE name LIKE '$history/%'")
    assert [row["name"] for row in left] == ["$history/h"]


async def test_nobody_uses_a_memory_as_a_queue(house: House) -> None:
    await history(house)
    with pytest.raises(QueueNotFound, match="deleting the exchange ends it"):
        house.vhost.queue("$history/h")
    with pytest.raises(NameReserved):
        await house.vhost.declare_queue(QueueSpec.parse("$history/h"))
    assert house.vhost.publish(said(b"x", "", "$history/h")) is Published.NOWHERE
    assert await bound(house) == []


async def test_a_virtual_host_goes_with_the_memories_of_its_exchanges(house: House) -> None:
    vhost = await house.manager.add_vhost("v")
    await vhost.declare_exchange(ExchangeSpec.parse("h", "x-recent-history"))
    vhost.publish(said(b"1"))
    await house.flushed()
    await Vhosts(house.manager._database.engine).remove("v")
    await house.manager.refresh_vhosts()
    await house.reopen()
    assert "v" not in house.manager.vhosts


async def test_a_delayed_history_remembers_messages_with_their_delay(house: House) -> None:
    arguments = {"x-delayed-type": "x-recent-history", LENGTH: 2}
    spec = ExchangeSpec.parse("h", "x-delayed-message", arguments)
    await house.vhost.declare_exchange(spec)
    house.vhost.publish(said(b"late", not_before=house.clock() + 10))
    publish(house, 1)
    assert await bound(house) == numbers(1)
    await house.later(11)
    assert bodies(await house.drain()) == [b"late"]


def bodies_of(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]
