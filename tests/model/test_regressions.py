"""Defects that the models found, each in as few steps as show it."""

from __future__ import annotations

import pytest

from queue_core.delivery.consumer import Position
from queue_core.errors import QueueFull
from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED, REJECTED, RELEASED, Outcome, Published, Verdict
from queue_core.store.operator.queue_operations import Operations, connect
from queue_core.store.write import journal_generation
from queue_core.timers import MAX_CANCELLED_TIMERS, Agenda
from tests.support.managers import KINDS, House, bodies, declare
from tests.support.until import PATIENCE_SECONDS


def message(body: bytes, queue: str = "q", **more: object) -> Message:
    return Message(body, "", routing_key=queue, **more)  # type: ignore[arg-type]


async def commit(house: House, *messages: Message) -> None:
    transaction = house.vhost.transaction()
    for each in messages:
        transaction.publish(each)
    await transaction.commit()


async def test_bytes_on_their_way_to_the_disk_count_for_a_queue_that_refuses(house: House) -> None:
    await house.queue("q", max_length_bytes=20, overflow="reject-publish")
    answers = house.put("q", b"1" * 10, b"2" * 10, b"3" * 10)
    assert answers == [Published.PENDING, Published.PENDING, Published.REFUSED]
    await house.flushed()
    assert bodies(await house.drain()) == [b"1" * 10, b"2" * 10]


@pytest.mark.parametrize("kind", KINDS)
async def test_bytes_of_one_transaction_count_together(house: House, kind: str) -> None:
    await declare(house, kind, max_length_bytes=20, overflow="reject-publish")
    with pytest.raises(QueueFull):
        await commit(house, *[message(b"x" * 10) for _ in range(3)])
    await commit(house, *[message(b"x" * 10) for _ in range(2)])
    assert len(await house.drain()) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_transaction_that_is_refused_leaves_no_dead_letter(house: House, kind: str) -> None:
    await house.queue("dead")
    await declare(
        house,
        kind,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    with pytest.raises(QueueFull):
        await commit(house, message(b"1"), message(b"2"))
    assert await house.drain() == []
    assert await house.drain("dead") == []


async def test_a_group_that_waits_for_an_offset_to_come_does_not_move_the_end_of_its_stream(
    house: House,
) -> None:
    await house.stream()
    await house.store("s", b"0")
    await house.consume("s", group="g", start=Position(offset=2))
    await house.flushed()
    await house.crash_and_reopen()
    await house.store("s", b"1", b"2")
    inbox, _ = await house.consume("s", group="g")
    assert [(d.offset, d.message.body) for d in await inbox.has(1)] == [(2, b"2")]


async def test_a_message_that_was_given_back_for_later_waits_over_a_crash_and_an_orderly_end(
    house: House,
) -> None:
    await house.queue()
    await house.store("q", b"1")
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], Verdict(Outcome.RELEASED, delay=60))
    await house.flushed()
    await house.crash_and_reopen()
    await house.reopen()
    assert await house.vhost.get("q") is None
    await house.later(60)
    assert bodies(await house.drain()) == [b"1"]


@pytest.mark.parametrize("is_crash_before", [False, True])
async def test_flags_are_kept_though_the_journal_starts_again_with_the_last_word(
    house: House, monkeypatch: pytest.MonkeyPatch, is_crash_before: bool
) -> None:
    await house.queue()
    await house.store("q", b"1")
    delivery = await house.vhost.get("q")
    assert delivery is not None
    if is_crash_before:
        await house.crash_and_reopen()
    else:
        house.vhost.settle([delivery], RELEASED)
    await house.flushed()
    generation = house.manager.writer.generation
    monkeypatch.setattr(journal_generation, "GENERATION_ROWS", 1)
    await house.reopen()
    assert house.manager.writer.generation > generation
    (again,) = await house.drain()
    assert again.redelivered


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_letter_that_its_full_queue_refuses_stays_one_letter(
    house: House, kind: str
) -> None:
    await house.queue("dead")
    await declare(
        house,
        kind,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    house.put("q", b"1", b"2")
    await house.flushed()
    connection = await connect(house.url, "howdah model")
    operations = Operations(connection)
    number = await operations.redrive("/", "dead", "true")
    assert await operations.outcome(number, PATIENCE_SECONDS) == {"moved": 0, "left": 1}
    await connection.close()
    assert bodies(await house.drain("dead")) == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_comes_back_later_into_a_full_queue_pushes_out_the_oldest(
    house: House, kind: str
) -> None:
    await declare(house, kind, max_length=1)
    await house.store("q", b"1")
    delivery = await house.vhost.get("q")
    assert delivery is not None
    house.vhost.settle([delivery], Verdict(Outcome.MODIFIED, delay=60))
    await house.store("q", b"2")
    await house.later(60)
    assert house.vhost.queue("q").counts().ready == 1
    assert bodies(await house.drain()) == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_comes_back_later_expires_with_nobody_looking(house: House, kind: str) -> None:
    await declare(house, kind, message_ttl=90_000)
    inbox, consumer = await house.consume()
    await house.store("q", b"1")
    house.vhost.settle(list(await inbox.has(1)), Verdict(Outcome.MODIFIED, delay=60))
    house.vhost.end_consumer(consumer, RELEASED)
    await house.later(60)
    assert house.vhost.queue("q").counts().ready == 1
    await house.later(30)
    assert house.vhost.queue("q").counts().ready == 0
    assert house.manager.counters.dropped_expired == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_purged", [True, False])
async def test_what_comes_to_the_head_expires_in_time_however_late_the_last_head_would_have(
    house: House, kind: str, is_purged: bool
) -> None:
    await declare(house, kind)
    house.vhost.publish(message(b"1", expires_at=house.clock() + 3600))
    await house.flushed()
    if is_purged:
        await house.vhost.purge_queue("q")
    house.vhost.publish(message(b"2", expires_at=house.clock() + 5))
    await house.flushed()
    if not is_purged:
        assert await house.vhost.get("q", auto_settle=True) is not None
    await house.later(5)
    assert house.vhost.queue("q").counts().ready == 0


async def test_the_first_by_priority_expires_after_a_restart_with_nobody_looking(
    house: House,
) -> None:
    await house.queue(max_priority=1)
    house.vhost.publish(message(b"low"))
    house.vhost.publish(message(b"high", priority=1, expires_at=house.clock() + 5))
    await house.flushed()
    await house.reopen()
    await house.later(5)
    queue = house.vhost.queue("q")
    await house.until(lambda: queue.counts().ready == 1)
    assert bodies(await house.drain()) == [b"low"]


async def test_an_id_of_a_dead_letter_is_not_remembered_with_a_crash_either(house: House) -> None:
    await house.queue("q", deduplication_window=10_000)
    await house.queue("p", dead_letter_exchange="", dead_letter_routing_key="q")
    named = Properties(message_id="a")
    house.vhost.publish(message(b"1", "p", properties=named))
    await house.flushed()
    delivery = await house.vhost.get("p")
    assert delivery is not None
    house.vhost.settle([delivery], REJECTED)
    await house.flushed()
    await house.crash_and_reopen()
    house.vhost.publish(message(b"2", properties=named))
    await house.flushed()
    assert bodies(await house.drain()) == [b"1", b"2"]


async def test_what_is_settled_late_does_not_call_a_group_back_that_was_sent_elsewhere(
    house: House,
) -> None:
    stream = await house.stream()
    await house.store("s", b"0", b"1")
    inbox, consumer = await house.consume("s", group="g", start=Position(name="first"))
    held = list(await inbox.has(2))
    house.vhost.end_consumer(consumer, None)
    await stream.reset_group("g", Position(name="first"))
    await house.flushed()
    house.vhost.settle(held, ACCEPTED)
    await house.flushed()
    await house.crash_and_reopen()
    again, _ = await house.consume("s", group="g")
    assert bodies(await again.has(2)) == [b"0", b"1"]


async def test_a_short_reading_does_not_make_a_group_forget_what_a_longer_one_had(
    house: House,
) -> None:
    await house.stream()
    await house.store("s", b"0", b"1", b"2")
    for credit in (3, 1, 3):
        inbox, consumer = await house.consume(
            "s", group="g", start=Position(name="first"), credit=credit
        )
        last = await inbox.has(credit)
        house.vhost.end_consumer(consumer, RELEASED)
    assert [delivery.redelivered for delivery in last] == [True, True, True]


def test_appointments_that_are_off_take_no_memory_for_long() -> None:
    agenda, done = Agenda(), []
    agenda.at(5.0, lambda: done.append(5))
    for i in range(10_000):
        agenda.at(1000.0 - i / 100, lambda: done.append(0)).cancel()
    assert len(agenda._heap) <= 2 * MAX_CANCELLED_TIMERS
    agenda.run_due(2000.0)
    assert done == [5]
