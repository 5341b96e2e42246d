"""Messages that come back to a queue: who may have them again, when, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from queue_core.delivery.clean_shutdown import end_lease
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.delivery.cursor import Cursor
from queue_core.delivery.delivery_history import History
from queue_core.errors import CoreError, QueueNotFound
from queue_core.message.message import Message
from queue_core.outcomes import RELEASED, Outcome, Verdict
from tests.unit.queue_core.scenes import Basket, Scene, Shelf

NOT_HERE = Verdict(Outcome.RELEASED, undeliverable_here=True)


@dataclass
class Journal:
    """Takes notes: of each failure, until when it waits."""

    delays: dict[int, float | None] = field(default_factory=dict)

    def note(self, cursor: Cursor) -> None:
        """Nothing is written here."""

    def note_failure(
        self, cursor: Cursor, offset: int, count: int, not_before: float | None, reason: str
    ) -> None:
        self.delays[offset] = not_before


@dataclass(frozen=True)
class Note:
    """An amendment: the message is of this type from now on."""

    words: bytes

    def apply(self, message: Message) -> Message:
        return Message(message.body, "", "q", native=self.words)

    def encode(self, before: bytes | None) -> bytes:
        return self.words


class Broken(Basket):
    """A sink with a bug: it cannot write the message with an odd number."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        if any(int(delivery.message.body) % 2 for delivery in deliveries):
            raise ValueError("odd")
        super().deliver(consumer, deliveries)

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.reasons.append(str(reason))


class Counting(History):
    """Knows how often somebody asked whether a message is for a consumer."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def is_barred(self, offset: int, consumer: Consumer) -> bool:
        self.asked += 1
        return super().is_barred(offset, consumer)


class Ending(Basket):
    """A sink that ends another consumer in the middle of the hand-out."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Callable[[], None] = lambda: None

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        super().deliver(consumer, deliveries)
        self.end()


def test_a_sink_with_a_bug_ends_alone_and_what_it_had_goes_back() -> None:
    scene = Scene()
    broken = Broken()
    consumer = scene.cursor.add_consumer(broken, ConsumerSpec(credit=2))
    healthy, _ = scene.consume(credit=10)
    consumer.wake()
    scene.arrive(4)
    assert sorted(healthy.offsets) == [0, 1, 2, 3]
    assert consumer.is_closed
    assert broken.reasons == ["the gateway could not deliver a message; its log says why"]
    assert scene.cursor.in_flight == 4
    assert scene.rules.gone == 1


@pytest.mark.parametrize("end", [Consumer.close, Consumer.cancel])
def test_who_is_ended_by_what_another_does_gets_nothing_more(
    end: Callable[[Consumer], None],
) -> None:
    scene = Scene()
    ending = Ending()
    scene.cursor.add_consumer(ending, ConsumerSpec(credit=10)).wake()
    second, consumer = scene.consume(credit=1)
    ending.end = lambda: end(consumer)
    scene.arrive(2)
    assert (ending.offsets, second.offsets) == ([0, 1], [])
    assert ending.deliveries[1].redelivered


def test_the_only_consumer_with_a_bug_holds_nothing_up_either() -> None:
    scene = Scene()
    broken = Broken()
    scene.cursor.add_consumer(broken, ConsumerSpec()).wake()
    scene.arrive(2)
    healthy, _ = scene.consume()
    assert (broken.offsets, len(broken.reasons)) == ([], 1)
    assert [(d.offset, d.failures) for d in healthy.deliveries] == [(0, 1), (1, 1)]


def test_consumers_that_left_are_not_remembered_for_what_they_could_not_take() -> None:
    scene = Scene()
    scene.arrive(2)
    for _ in range(3):
        basket, consumer = scene.consume(credit=2, replenish=False)
        scene.cursor.settle(basket.open, NOT_HERE)
        consumer.close(RELEASED)
    assert not scene.cursor.history.barred


def test_a_consumer_that_settles_after_its_end_is_not_remembered_either() -> None:
    scene = Scene()
    scene.arrive(1)
    basket, consumer = scene.consume()
    consumer.cancel()
    scene.cursor.settle(basket.open, NOT_HERE)
    assert not scene.cursor.history.barred


def test_who_is_still_there_is_not_asked_again() -> None:
    scene = Scene()
    scene.arrive(1)
    first, _ = scene.consume()
    _, second = scene.consume(credit=0)
    scene.cursor.settle(first.open, NOT_HERE)
    scene.cursor.pump()
    second.close()
    scene.cursor.pump()
    assert first.offsets == [0]


@pytest.mark.parametrize("has_priorities", [False, True])
def test_what_a_consumer_may_not_have_is_looked_at_once_however_much_it_is(
    has_priorities: bool,
) -> None:
    scene = Scene(has_priorities=has_priorities)
    history = scene.cursor.history = Counting()
    scene.arrive(500)
    basket, _ = scene.consume()
    scene.cursor.settle(basket.open, NOT_HERE)
    for _ in range(100):
        scene.arrive(1)
    assert len(basket.offsets) == 600
    assert history.asked == 600
    others, _ = scene.consume()
    assert sorted(others.offsets) == list(range(500))


def test_what_a_consumer_may_not_have_is_looked_at_again_when_it_comes_back() -> None:
    scene = Scene(shelf=Shelf(), limit=1 << 20)
    scene.arrive(3)
    first, consumer = scene.consume(credit=3, replenish=False)
    scene.cursor.settle(first.open[:1], NOT_HERE)
    scene.cursor.settle(first.open, RELEASED)
    consumer.grant(5)
    scene.settle_down()
    assert first.offsets == [0, 1, 2, 1, 2]
    second, _ = scene.consume(credit=1)
    scene.cursor.settle(second.open, RELEASED)
    scene.settle_down()
    assert first.offsets == [0, 1, 2, 1, 2]
    assert {delivery.offset for delivery in second.deliveries} == {0}


class Told(Basket):
    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        assert consumer.is_closed


def test_nobody_gets_anything_from_a_queue_that_ends() -> None:
    scene = Scene(single_active=True)
    first, second = Told(), Told()
    for basket in (first, second):
        scene.cursor.add_consumer(basket, ConsumerSpec(credit=1)).wake()
    scene.arrive(3)
    scene.cursor.end(QueueNotFound("the queue was deleted"))
    assert (first.offsets, second.offsets) == ([0], [])


def test_what_was_begun_is_forgotten_with_what_is_purged() -> None:
    scene = Scene()
    scene.arrive(1)
    basket, consumer = scene.consume()
    scene.cursor.history.begun.add(0)
    consumer.close(RELEASED)
    assert basket.offsets == [0]
    assert scene.cursor.purge() == 1
    assert not scene.cursor.history.begun


def test_an_orderly_end_keeps_the_time_that_a_message_waits_for() -> None:
    scene = Scene()
    journal = scene.cursor.journal = Journal()
    scene.arrive(1)
    basket, _ = scene.consume()
    scene.cursor.settle(basket.open, Verdict(Outcome.RELEASED, delay=60.0))
    end_lease(scene.cursor)
    assert journal.delays == {0: 60.0}


def test_a_filter_sees_what_was_added_to_a_message_that_it_had_read_ahead() -> None:
    scene = Scene(shelf=Shelf(), limit=1 << 20)
    scene.cursor.journal = Journal()
    scene.arrive(3)
    picky, late = scene.consume(credit=0, accepts=lambda _: True)
    late.grant(1)  # reads all of it ahead
    scene.settle_down()
    assert picky.offsets == [0]
    everyone, _ = scene.consume(credit=1, replenish=False)
    assert everyone.offsets == [1]
    added = Verdict(Outcome.RELEASED, amendment=Note(b"added"))
    scene.cursor.settle(everyone.open, added)
    late.grant(1)
    scene.settle_down()
    assert [(d.offset, d.message.native) for d in picky.deliveries] == [(0, b""), (1, b"added")]
    scene.cursor.settle(picky.open, Verdict(Outcome.ACCEPTED))
    late.grant(5)
    scene.settle_down()
    scene.cursor.settle(picky.open, Verdict(Outcome.ACCEPTED))
    assert late.view is not None
    assert (scene.budget.used, late.view._budget.used) == (0, 0)
