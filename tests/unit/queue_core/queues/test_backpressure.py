"""Back-pressure: who finds a queue full, who waits for it, and how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.errors import ConsumerStalled, CoreError
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED
from queue_core.queues.backpressure import Backpressure
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import wait_for_room
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import Router
from queue_core.timers import Agenda
from tests.support.contexts import queue_context
from tests.support.until import PATIENCE_SECONDS, turns
from tests.unit.queue_core.session_world import World

LIMIT, STALL = 4, 30.0


class Peer:
    """A consumer's sink that takes as many as its credit allows."""

    def __init__(self) -> None:
        self.taken: list[Delivery] = []
        self.reasons: list[CoreError] = []
        self.unsent = 0

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.taken += deliveries

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        raise AssertionError("not the short way")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.reasons.append(reason)
        consumer.close()
        consumer.cursor.policy.on_consumer_gone()


class Stage:
    """One queue that holds its publishers, at a time that the test tells."""

    def __init__(self, **arguments: Any) -> None:
        self.now = 0.0
        self.agenda = Agenda()
        self.context = queue_context(Router(), clock=lambda: self.now, agenda=self.agenda)
        self.counters = self.context.counters
        spec = QueueSpec.parse("q", arguments or {"x-max-length": LIMIT}, durable=False)
        self.queue = EphemeralQueue(spec, self.context)
        self.queue.backpressure = self.pressure = Backpressure(self.queue, STALL)
        self.peer = Peer()
        self.consumer = self.queue.consume(self.peer, ConsumerSpec(credit=1))
        self.consumer.unsent = lambda: self.peer.unsent
        self.consumer.wake()

    def publish(self, count: int) -> None:
        for _ in range(count):
            assert self.queue.take(Message(b"1234"), (), [])

    def acknowledge(self) -> None:
        self.queue.cursor.settle([self.peer.taken.pop(0)], ACCEPTED)
        self.queue.cursor.pump()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.agenda.run_due(self.now)

    async def waiting(self) -> asyncio.Task[None]:
        task = asyncio.create_task(wait_for_room([self.queue]))
        await turns()  # it has begun
        assert not task.done()
        return task


@pytest.mark.parametrize("arguments", [{"x-max-length": 4}, {"x-max-length-bytes": 16}])
def test_a_full_queue_drops_nothing_and_is_told_to_its_publisher(arguments: dict[str, int]) -> None:
    stage = Stage(**arguments)
    stage.publish(LIMIT)
    assert stage.context.pressed == []
    stage.publish(100)
    assert stage.context.pressed == [stage.queue]
    assert stage.queue.counts().ready == LIMIT + 100 - 1
    assert stage.counters.dropped_overflow == 0


async def test_a_publisher_goes_on_when_half_of_the_queue_is_free() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    task = await stage.waiting()
    stage.acknowledge()
    await turns()  # it would have been woken
    assert not task.done()
    stage.acknowledge()
    await task
    assert stage.agenda.next_time() is None


async def test_the_time_of_a_consumer_begins_with_the_first_of_those_who_wait_now() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    gone = await stage.waiting()
    gone.cancel()
    await asyncio.wait([gone])
    stage.pass_time(STALL - 1)
    while stage.peer.taken:
        stage.acknowledge()  # nobody waits, and it takes all there is
    stage.publish(LIMIT + 1)
    task = await stage.waiting()
    stage.pass_time(1)
    assert stage.peer.reasons == []
    stage.pass_time(STALL - 1)
    assert [type(each) for each in stage.peer.reasons] == [ConsumerStalled]
    await task


async def test_a_consumer_that_takes_nothing_is_ended_and_its_publishers_go_on() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    task = await stage.waiting()
    stage.pass_time(STALL - 1)
    assert stage.peer.reasons == []
    stage.pass_time(1)
    assert [type(each) for each in stage.peer.reasons] == [ConsumerStalled]
    await task
    assert stage.counters.stalled_consumers == 1


@pytest.mark.parametrize("moves", ["it acknowledges", "its socket takes bytes"])
async def test_a_consumer_that_is_slow_is_not_ended(moves: str) -> None:
    stage = Stage()
    stage.publish(100)
    stage.peer.unsent = 1000
    task = await stage.waiting()
    for _ in range(20):
        stage.pass_time(STALL * 0.9)
        if moves == "it acknowledges":
            stage.acknowledge()
        else:
            stage.peer.unsent -= 1
    assert stage.peer.reasons == []
    assert not task.done()
    stage.consumer.close()
    stage.queue.on_consumer_gone()
    await task


async def test_nobody_waits_for_a_queue_without_consumers() -> None:
    stage = Stage()
    stage.publish(100)
    stage.consumer.close()
    stage.queue.on_consumer_gone()
    await wait_for_room([stage.queue])


async def test_no_consumer_is_ended_for_a_publisher_that_has_gone() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    gone = await stage.waiting()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    stage.pass_time(STALL - 1)
    task = await stage.waiting()  # its time begins now
    stage.pass_time(STALL - 1)
    assert stage.peer.reasons == []
    stage.pass_time(1)
    assert [type(each) for each in stage.peer.reasons] == [ConsumerStalled]
    await task


async def test_no_consumer_is_ended_when_what_waited_for_it_is_gone() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    task = await stage.waiting()
    stage.queue.cursor.purge()
    stage.pass_time(1)
    await task
    stage.pass_time(STALL)
    assert stage.peer.reasons == []


async def test_more_that_waits_in_a_consumers_socket_is_no_sign_that_it_reads() -> None:
    stage = Stage()
    stage.publish(LIMIT + 1)
    task = await stage.waiting()
    for _ in range(int(STALL)):
        stage.peer.unsent += 2  # the answer to a ping
        stage.pass_time(1)
    assert [type(each) for each in stage.peer.reasons] == [ConsumerStalled]
    await task


async def test_publishers_go_on_at_once_when_a_queue_goes_with_its_virtual_host() -> None:
    here = World()
    queue = EphemeralQueue(
        QueueSpec.parse("q", {"x-max-length": LIMIT}, durable=False), here.vhost.context
    )
    queue.backpressure = Backpressure(queue, STALL)
    here.vhost.add_queue(queue)
    consumer = queue.consume(_Deaf(), ConsumerSpec(credit=1))
    consumer.wake()
    for _ in range(LIMIT + 2):
        queue.take(Message(b""), (), [])
    waiting = asyncio.create_task(wait_for_room([queue]))
    await turns()  # it has begun
    assert not waiting.done()
    here.vhost.end()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert here.agenda.next_time() is None
    await here.idle()


class _Deaf(Peer):
    """Is told that its queue is gone, and does nothing about it."""

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.reasons.append(reason)
