"""The traffic of queues: every message is counted where it enters and where it leaves, and the
queues that something happened in are known."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, REJECTED, RELEASED
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import Router
from tests.support.contexts import queue_context


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        """Takes a message past the queue."""

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        raise AssertionError(str(reason))


def make_queue(arguments: dict[str, object] | None = None) -> EphemeralQueue:
    context = queue_context(Router[Queue]())
    return EphemeralQueue(QueueSpec.parse("q", arguments or {}, durable=False), context)


def publish(queue: Queue, count: int = 1) -> None:
    for _ in range(count):
        queue.take(Message(b"body", routing_key="q"), (), [])


def consume(queue: Queue, **wishes: Any) -> tuple[Consumer, Sink]:
    sink = Sink()
    consumer = queue.consume(sink, ConsumerSpec(**wishes))
    consumer.wake()
    return consumer, sink


def test_a_message_counts_when_it_comes_is_handed_out_and_acknowledged() -> None:
    queue = make_queue()
    publish(queue, 3)
    _, sink = consume(queue)
    queue.cursor.settle(sink.deliveries[:2], ACCEPTED)
    traffic = queue.traffic
    assert (traffic.published, traffic.acknowledged, traffic.passed_on) == (3, 2, 0)
    assert traffic.delivered == 3


def test_a_run_counts_as_many_messages_as_it_has() -> None:
    queue = make_queue()
    queue.take_run([Message(b"body", routing_key="q")] * 5, ())
    assert queue.traffic.published == 5


def test_a_message_that_never_waits_counts_as_passed_on() -> None:
    queue = make_queue()
    consume(queue, auto_settle=True)
    publish(queue, 2)
    assert queue.traffic.passed_on == 2
    assert queue.traffic.published == 0


@pytest.mark.parametrize(
    ("is_passing", "auto_settle", "way"),
    [
        (False, False, "delivered"),
        (False, True, "delivered_settled"),
        (True, False, "got"),
        (True, True, "got_settled"),
    ],
)
def test_each_way_out_has_a_count_of_its_own(is_passing: bool, auto_settle: bool, way: str) -> None:
    queue = make_queue()
    publish(queue)
    consume(queue, is_passing=is_passing, auto_settle=auto_settle)
    ways = ("delivered", "delivered_settled", "got", "got_settled")
    assert [each for each in ways if getattr(queue.traffic, each)] == [way]


def test_a_message_that_comes_back_counts_as_redelivered_the_second_time() -> None:
    queue = make_queue()
    publish(queue)
    _, sink = consume(queue)
    assert queue.traffic.redelivered == 0
    queue.cursor.settle(sink.deliveries, RELEASED)
    queue.cursor.pump()
    assert queue.traffic.redelivered == 1
    assert queue.traffic.delivered == 2


def test_a_message_that_nobody_wants_counts_as_dropped() -> None:
    queue = make_queue()
    publish(queue)
    _, sink = consume(queue)
    queue.cursor.settle(sink.deliveries, REJECTED)
    assert (queue.traffic.dropped, queue.traffic.dead_lettered) == (1, 0)


def test_messages_beyond_a_limit_count_as_dropped() -> None:
    queue = make_queue({"x-max-length": 2})
    publish(queue, 5)
    assert queue.traffic.dropped == 3


def test_a_queue_is_noted_once_until_somebody_looks() -> None:
    queue = make_queue()
    changed = queue.context.changed
    assert not changed
    publish(queue, 2)
    assert changed == {queue.traffic}
    changed.clear()
    queue.traffic.is_noted = False
    consume(queue)
    assert changed == {queue.traffic}


def test_a_purge_is_noted_though_nothing_was_published_or_delivered() -> None:
    queue = make_queue()
    publish(queue)
    queue.context.changed.clear()
    queue.purge()
    assert queue.context.changed == {queue.traffic}
