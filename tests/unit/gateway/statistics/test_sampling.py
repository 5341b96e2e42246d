"""The sampler looks at what changed, and its totals are those of all queues, those that are gone as
well."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.connections import Connections
from gateway.statistics import sampling
from gateway.statistics.figures import BROKER_FIGURES, QUEUE_FIGURES, queue_figures
from gateway.statistics.rings import TICK_SECONDS
from gateway.statistics.sampling import Statistics
from queue_core.counters import QueueCounts
from queue_core.message.message import Message
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.traffic import Traffic
from tests.unit.queue_core.session_world import World


class House:
    """A virtual host with a sampler whose clock stands until it is moved."""

    def __init__(self) -> None:
        self.world = World()
        self.now = 1_000_000.0
        context = self.world.vhost.context
        self.vhosts = {"/": self.world.vhost}
        self.counters = context.counters
        self.changed_traffic = context.changed
        manager: Any = self  # as far as a sampler asks of one
        self.statistics = Statistics(manager, Connections(), {}, lambda: self.now)

    def count_passed_on(self) -> None:
        """Nothing is passed on here."""

    async def queue(self, name: str) -> Queue:
        return await self.world.vhost.declare_queue(QueueSpec.parse(name, {}, durable=False))

    def publish(self, name: str, count: int) -> None:
        for _ in range(count):
            self.world.vhost.publish(Message(b"", "", routing_key=name))

    async def tick(self) -> None:
        self.now += TICK_SECONDS
        await self.statistics.sample()

    def broker(self, name: str) -> int:
        return self.statistics.broker.totals[BROKER_FIGURES.index(name)]

    def rate(self, queue: Queue, name: str) -> float:
        history = self.statistics.of_queue(queue)
        return history.rate(QUEUE_FIGURES.index(name), self.statistics.now)


async def test_a_rate_is_there_for_one_interval_and_then_zero() -> None:
    house = House()
    queue = await house.queue("q")
    await house.tick()
    house.publish("q", 50)
    await house.tick()
    assert house.rate(queue, "publish") == 10.0
    await house.tick()
    assert house.rate(queue, "publish") == 0.0


async def test_totals_are_the_sum_of_all_queues_and_keep_what_is_gone() -> None:
    house = House()
    await house.queue("a")
    await house.queue("b")
    house.publish("a", 3)
    house.publish("b", 4)
    await house.tick()
    assert house.broker("messages") == 7
    await house.world.vhost.delete_queue("a")
    await house.tick()
    assert house.broker("messages") == 4
    assert house.broker("publish") == 7
    assert house.statistics.of_vhost("/").totals[QUEUE_FIGURES.index("publish")] == 7


async def test_a_queue_that_is_made_again_begins_anew() -> None:
    house = House()
    await house.queue("q")
    house.publish("q", 5)
    await house.world.vhost.delete_queue("q")
    queue = await house.queue("q")
    house.publish("q", 1)
    await house.tick()
    figures = dict(zip(QUEUE_FIGURES, house.statistics.figures_of(queue), strict=True))
    assert figures["publish"] == 1
    assert house.broker("messages") == 1


async def test_a_queue_that_rests_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    await house.queue("busy")
    await house.queue("resting")
    await house.tick()
    looked_at: list[str] = []

    def figures(traffic: Traffic, counts: QueueCounts) -> tuple[int, ...]:
        looked_at.append(traffic.name)
        return queue_figures(traffic, counts)

    monkeypatch.setattr(sampling, "queue_figures", figures)
    house.publish("busy", 1)
    await house.tick()
    assert looked_at == ["busy"]


async def test_histories_are_bounded_and_those_that_rested_longest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "MOST_HISTORIES", 2)
    house = House()
    queues = [await house.queue(name) for name in "abc"]
    for queue in queues:
        house.publish(queue.name, 5)
        await house.tick()
    assert house.rate(queues[2], "publish") == 1.0
    assert house.broker("messages") == 15
    house.publish("a", 5)
    await house.tick()
    assert house.rate(queues[0], "publish") == 1.0
    assert house.broker("messages") == 20
