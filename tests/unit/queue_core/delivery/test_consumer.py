"""Credit, turns and shared windows, without a database."""

from __future__ import annotations

import pytest

from queue_core.delivery.consumer import SharedCredit
from queue_core.delivery.consumer_set import MOST_LINES
from queue_core.delivery.cursor import settle
from queue_core.outcomes import ACCEPTED, FAILED, RELEASED, Outcome, Verdict
from tests.unit.queue_core.scenes import Scene


def test_equal_consumers_take_turns() -> None:
    scene = Scene()
    first, _ = scene.consume()
    second, _ = scene.consume()
    scene.arrive(4)
    assert (first.offsets, second.offsets) == ([0, 2], [1, 3])


def test_turns_go_on_where_they_were() -> None:
    scene = Scene()
    baskets = [scene.consume()[0] for _ in range(3)]
    for _ in range(6):
        scene.arrive(1)
    assert [basket.offsets for basket in baskets] == [[0, 3], [1, 4], [2, 5]]


def test_a_window_over_several_consumers_is_one_window() -> None:
    scene = Scene()
    window = SharedCredit(2)
    first, _ = scene.consume(shared=window)
    second, _ = scene.consume(shared=window)
    scene.arrive(5)
    assert len(first.deliveries + second.deliveries) == 2
    scene.cursor.settle(first.deliveries[:1], ACCEPTED)
    scene.cursor.pump()
    assert len(first.deliveries + second.deliveries) == 3


def test_what_is_settled_twice_is_settled_once() -> None:
    scene = Scene()
    basket, consumer = scene.consume(credit=1)
    scene.arrive(3)
    delivery = basket.deliveries[0]
    for _ in range(2):
        scene.cursor.settle([delivery], ACCEPTED)
        scene.cursor.pump()
    assert basket.offsets == [0, 1]
    assert (scene.cursor.in_flight, consumer.credit) == (1, 0)


def test_one_that_is_barred_does_not_block_the_others() -> None:
    scene = Scene()
    first, _ = scene.consume(credit=1, priority=5)
    scene.arrive(1)
    second, _ = scene.consume(credit=1)
    scene.cursor.settle(first.deliveries, Verdict(Outcome.RELEASED, undeliverable_here=True))
    scene.cursor.pump()
    scene.arrive(1)
    assert (first.offsets, second.offsets) == ([0, 1], [0])


def test_a_drain_ends_though_something_is_left_that_may_not_go_there() -> None:
    scene = Scene()
    basket, consumer = scene.consume(credit=5, replenish=False)
    scene.arrive(1)
    scene.cursor.settle(basket.deliveries, Verdict(Outcome.RELEASED, undeliverable_here=True))
    drained: list[bool] = []
    consumer.drain(lambda: drained.append(True))
    assert drained == [True]


def test_only_what_is_open_waits_to_be_settled_in_time() -> None:
    scene = Scene(ack_timeout=10.0)
    basket, _ = scene.consume(credit=1)
    for _ in range(100):
        scene.arrive(1)
        scene.cursor.settle([basket.deliveries[-1]], ACCEPTED)
        scene.now += 0.01
    assert scene.cursor.deadlines is not None
    assert len(scene.cursor.deadlines) == 0
    assert len(scene.rules.due) == 1


def test_what_is_not_settled_in_time_comes_back_counted() -> None:
    scene = Scene(ack_timeout=10.0)
    basket, _ = scene.consume(credit=1)
    scene.arrive(1)
    for count in range(3):
        assert basket.deliveries[-1].failures == count
        scene.now += 10.0
        scene.cursor.fail_overdue()
    assert len(scene.rules.due) == 4


def test_a_released_delivery_is_flagged_and_not_counted() -> None:
    scene = Scene()
    basket, _ = scene.consume(credit=1)
    scene.arrive(1)
    scene.cursor.settle(basket.deliveries[-1:], RELEASED)
    scene.cursor.pump()
    again = basket.deliveries[-1]
    assert (again.redelivered, again.failures) == (True, 0)


def test_priorities_that_nobody_has_any_more_are_not_remembered() -> None:
    scene = Scene()
    _, last = scene.consume(priority=-1)
    for priority in range(1000):
        scene.consume(priority=priority)[1].close()
    assert len(scene.cursor.consumer_set.line._by_priority) <= MOST_LINES
    basket, _ = scene.consume(priority=5000)
    scene.arrive(1)
    assert basket.offsets == [0]
    assert last.is_waiting


def test_what_the_active_consumer_had_comes_first_to_the_next_one() -> None:
    scene = Scene(single_active=True)
    first, consumer = scene.consume(credit=2)
    second, _ = scene.consume(credit=10)
    scene.arrive(5)
    consumer.close()
    assert (first.offsets, second.offsets) == ([0, 1], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("verdict", [RELEASED, FAILED])
def test_what_comes_back_through_a_shared_window_is_the_next_to_go_out(verdict: Verdict) -> None:
    scene = Scene()
    basket, _ = scene.consume(shared=SharedCredit(2))
    scene.arrive(5)
    scene.cursor.settle(basket.open, verdict)
    scene.cursor.pump()
    assert basket.offsets == [0, 1, 0, 1]


def test_what_comes_back_to_several_queues_is_there_before_their_window_opens() -> None:
    scenes, window = [Scene(), Scene()], SharedCredit(2)
    first, second = (scene.consume(shared=window)[0] for scene in scenes)
    scenes[0].arrive(1)
    scenes[1].arrive(3)
    settle([*first.open, *second.open], RELEASED)
    assert (first.offsets[:1], second.offsets[:2]) == ([0], [0, 0])


def test_a_shared_window_goes_round_whatever_queue_a_consumer_has() -> None:
    scenes, window = [Scene(), Scene(), Scene()], SharedCredit(1)
    baskets = [scene.consume(shared=window)[0] for scene in scenes]
    for scene in scenes:
        scene.arrive(30)
    for _ in range(28):
        settle([each for basket in baskets for each in basket.open], ACCEPTED)
    counts = [len(basket.offsets) for basket in baskets]
    assert sum(counts) == 29
    assert max(counts) - min(counts) <= 2  # the first one had its turn before others came


def test_a_shared_window_goes_round_among_the_consumers_of_one_queue() -> None:
    scene, window = Scene(), SharedCredit(1)
    first, second = (scene.consume(shared=window)[0] for _ in range(2))
    scene.arrive(9)
    for _ in range(5):
        settle([*first.open, *second.open], ACCEPTED)
    assert (first.offsets, second.offsets) == ([0, 2, 4], [1, 3, 5])


def test_a_full_window_holds_back_a_consumer_that_settles_on_delivery_and_costs_it_nothing() -> (
    None
):
    scenes, window = [Scene(), Scene()], SharedCredit(1)
    acks, _ = scenes[0].consume(shared=window)
    free, _ = scenes[1].consume(shared=window, auto_settle=True)
    scenes[1].arrive(2)
    assert (free.offsets, window.free) == ([0, 1], 1)
    scenes[0].arrive(1)
    scenes[1].arrive(2)
    assert free.offsets == [0, 1]
    settle(acks.open, ACCEPTED)
    assert (free.offsets, window.free) == ([0, 1, 2, 3], 1)
