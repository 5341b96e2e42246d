"""How many messages may wait for their time, in all queues together."""

from __future__ import annotations

import logging

import pytest

from queue_core.delivery.delayed import DueTimes
from queue_core.delivery.delayed_messages_limit import DelayBudget
from queue_core.errors import QueueFull, QueueNotFound
from queue_core.message.message import Message
from queue_core.outcomes import Outcome, Published, Verdict
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.spec import QueueSpec
from tests.unit.queue_core.session_world import World


async def bounded(world: World, limit: int) -> tuple[DelayBudget, EphemeralQueue]:
    """A world where so many may wait, and a queue `q` in it."""
    delays = world.vhost.context.delays
    delays.limit = limit
    queue = await world.vhost.declare_queue(QueueSpec.parse("q", {}, durable=False))
    assert isinstance(queue, EphemeralQueue)
    return delays, queue


def message(not_before: float | None) -> Message:
    return Message(b"x", "", routing_key="q", not_before=not_before)


async def test_above_the_bound_a_delay_is_refused_and_nothing_else() -> None:
    world = World()
    budget, queue = await bounded(world, 2)
    later, due = message(world.now + 60), message(world.now - 1)
    assert [world.vhost.publish(later) for _ in range(3)] == [
        Published.DONE,
        Published.DONE,
        Published.REFUSED,
    ]
    assert world.vhost.publish(message(None)) is Published.DONE
    assert world.vhost.publish(due) is Published.DONE
    assert (len(queue.cursor.delayed), budget.used) == (2, 2)
    assert world.vhost.context.counters.refused_delays == 1


async def test_what_is_due_makes_room() -> None:
    world = World()
    budget, queue = await bounded(world, 1)
    world.vhost.publish(message(world.now + 60))
    world.now += 61
    world.agenda.run_due(world.now)
    assert (queue.cursor.ready.count(), budget.used) == (1, 0)
    assert world.vhost.publish(message(world.now + 60)) is Published.DONE


@pytest.mark.parametrize("way", ["purge", "delete"])
async def test_a_queue_that_is_purged_or_deleted_makes_room(way: str) -> None:
    world = World()
    budget, queue = await bounded(world, 2)
    for _ in range(2):
        world.vhost.publish(message(world.now + 60))
    if way == "purge":
        queue.cursor.purge()
    else:
        world.vhost.end_ephemeral(queue, QueueNotFound("gone"))
    assert budget.used == 0


async def test_a_return_for_later_above_the_bound_comes_back_at_once() -> None:
    world = World()
    budget, queue = await bounded(world, 1)
    world.vhost.publish(message(None))
    delivery = await world.vhost.get("q")
    assert delivery is not None
    world.vhost.publish(message(world.now + 60))
    world.vhost.settle([delivery], Verdict(Outcome.MODIFIED, delay=60))
    again = await world.vhost.get("q")
    assert again is not None
    assert (again.offset, again.failures) == (delivery.offset, 1)
    assert (len(queue.cursor.delayed), budget.used) == (1, 1)
    assert world.vhost.context.counters.cut_delays == 1


async def test_a_transaction_with_more_delays_than_fit_is_refused_whole() -> None:
    world = World()
    _, queue = await bounded(world, 2)
    transaction = world.vhost.transaction()
    for _ in range(3):
        transaction.publish(message(world.now + 60))
    with pytest.raises(QueueFull, match=r"publish without a delay.*memory\.high_watermark"):
        await transaction.commit()
    assert len(queue.cursor.delayed) == 0


def test_times_of_a_stream_count_until_they_are_due_dropped_or_gone() -> None:
    now = [0.0]
    budget = DelayBudget(4, clock=lambda: now[0])
    due: list[int] = []
    times = DueTimes(budget, due.extend, lambda when: None)
    for offset in range(4):
        times.add(10.0 * (offset + 1), offset)
    assert budget.is_full()
    now[0] = 10.0  # the budget asks, though nobody counts the stream
    assert not budget.is_full()
    assert (due, 0 in times, 1 in times) == ([0], False, True)
    times.forget_below(2)
    assert 1 not in times
    assert budget.used == 2
    times.clear()
    assert budget.used == 0


async def test_the_log_says_it_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await bounded(world, 0)
    with caplog.at_level(logging.WARNING, "queue_core.delivery.delayed_messages_limit"):
        for seconds in (0, 1, 60):
            world.now += seconds
            world.vhost.publish(message(world.now + 600))
    assert len(caplog.records) == 2
    assert "raise memory.high_watermark" in caplog.text


async def test_a_consumer_with_a_return_within_the_bound_waits_for_its_time() -> None:
    world = World()
    budget, queue = await bounded(world, 1)
    world.vhost.publish(message(None))
    delivery = await world.vhost.get("q")
    assert delivery is not None
    world.vhost.settle([delivery], Verdict(Outcome.MODIFIED, delay=60))
    assert (queue.cursor.ready.count(), budget.used) == (0, 1)
