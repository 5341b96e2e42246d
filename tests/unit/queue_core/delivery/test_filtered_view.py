"""A consumer with a filter gets what it asks for, and leaves the rest where it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.delivery import dispatch
from queue_core.delivery.dispatch import LOOK_SECONDS, TURN_LOOKS
from queue_core.delivery.filtered_view import LOOK_AHEAD_BYTES
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, RELEASED, Outcome, Verdict
from tests.unit.queue_core.scenes import PRIORITIES, Scene, Shelf


def number(message: Message) -> int:
    return int(message.body)


def every(count: int, rest: int = 0) -> Callable[[Message], bool]:
    return lambda message: number(message) % count == rest


def nothing(_: Message) -> bool:
    return False


class Counting:
    """A filter that knows how often it was asked."""

    def __init__(self, accepts: Callable[[Message], bool]) -> None:
        self.accepts = accepts
        self.asked = 0

    def __call__(self, message: Message) -> bool:
        self.asked += 1
        return self.accepts(message)


def test_what_a_filter_refuses_stays_in_its_place_for_others() -> None:
    scene = Scene()
    even, _ = scene.consume(accepts=every(2))
    scene.arrive(6)
    everyone, _ = scene.consume()
    assert (even.offsets, everyone.offsets) == ([0, 2, 4], [1, 3, 5])


def test_what_was_passed_over_is_neither_flagged_nor_counted() -> None:
    scene = Scene()
    scene.consume(accepts=nothing)
    scene.arrive(3)
    everyone, _ = scene.consume()
    assert [(d.redelivered, d.failures) for d in everyone.deliveries] == [(False, 0)] * 3


def test_what_is_passed_over_costs_no_credit() -> None:
    scene = Scene()
    third, consumer = scene.consume(accepts=every(3), credit=4, replenish=False)
    scene.arrive(9)
    assert (third.offsets, consumer.credit) == ([0, 3, 6], 1)


def test_a_filter_without_a_match_does_not_hold_up_the_others() -> None:
    scene = Scene()
    scene.consume(accepts=nothing, priority=9)
    even, _ = scene.consume(accepts=every(2))
    everyone, _ = scene.consume()
    scene.arrive(4)
    assert sorted(even.offsets + everyone.offsets) == [0, 1, 2, 3]


def test_each_message_is_looked_at_once_however_often_others_come_and_go() -> None:
    scene = Scene()
    accepts = Counting(nothing)
    scene.consume(accepts=accepts)
    scene.arrive(500)
    for _ in range(100):
        scene.cursor.pump()
    scene.arrive(1)
    assert accepts.asked == 501


def test_what_others_give_back_is_looked_at_again_and_nothing_else() -> None:
    scene = Scene()
    slow, consumer = scene.consume(credit=2)
    scene.arrive(100)
    accepts = Counting(every(2))
    even, _ = scene.consume(accepts=accepts, credit=1)
    assert (slow.offsets, even.offsets) == ([0, 1], [2])
    before = accepts.asked
    consumer.close(FAILED)
    assert accepts.asked == before + 2
    scene.cursor.settle(even.open, ACCEPTED)
    scene.cursor.pump()
    assert even.offsets == [2, 0]  # in its place: before all that it had not looked at yet
    assert (even.deliveries[1].redelivered, even.deliveries[1].failures) == (True, 1)


def test_a_match_that_is_released_comes_again_in_its_place() -> None:
    scene = Scene()
    even, consumer = scene.consume(accepts=every(2), credit=2)
    scene.arrive(10)
    scene.cursor.settle(even.open[:1], RELEASED)
    scene.cursor.pump()
    assert even.offsets == [0, 2, 0]
    consumer.close(RELEASED)
    everyone, _ = scene.consume()
    assert everyone.offsets == list(range(10))


def test_one_that_is_barred_from_a_match_is_not_asked_again() -> None:
    scene = Scene()
    even, consumer = scene.consume(accepts=every(2), credit=1)
    scene.arrive(4)
    barred = Verdict(Outcome.MODIFIED, undeliverable_here=True)
    scene.cursor.settle(even.open, barred)
    scene.cursor.pump()
    assert even.offsets == [0, 2]
    drained: list[bool] = []
    scene.cursor.settle(even.open, barred)
    consumer.drain(lambda: drained.append(True))
    assert drained == [True]


def test_a_drain_ends_when_nothing_that_matches_is_ready() -> None:
    scene = Scene()
    third, consumer = scene.consume(accepts=every(3), credit=10, replenish=False)
    scene.arrive(8)
    drained: list[bool] = []
    consumer.drain(lambda: drained.append(True))
    assert (third.offsets, drained, scene.cursor.ready.count()) == ([0, 3, 6], [True], 5)


def test_a_drain_waits_for_what_must_be_read_back_first() -> None:
    scene = Scene(shelf=Shelf(), limit=0)
    scene.arrive(5000)
    last, consumer = scene.consume(
        accepts=lambda message: number(message) == 4999, credit=10, replenish=False
    )
    drained: list[bool] = []
    consumer.drain(lambda: drained.append(True))
    assert not drained
    scene.settle_down()
    assert (last.offsets, drained) == ([4999], [True])


@pytest.mark.parametrize(("slowness", "looks"), [(0, TURN_LOOKS), (9, TURN_LOOKS // 10)])
def test_a_turn_is_short_however_much_there_is_to_look_at_and_however_long_a_look_takes(
    slowness: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that takes ten times as long as it should counts for ten."""
    times = itertools.count(step=slowness * LOOK_SECONDS * 1.01)
    monkeypatch.setattr(dispatch, "perf_counter", lambda: next(times))
    scene = Scene()
    scene.arrive(3 * TURN_LOOKS)
    accepts = Counting(nothing)
    scene.consume(accepts=accepts)
    assert scene.rules.unfinished == 1
    assert looks <= accepts.asked <= looks + 1
    scene.settle_down()
    assert accepts.asked == 3 * TURN_LOOKS


def test_expired_and_delayed_messages_are_not_a_filters_business() -> None:
    scene = Scene()
    scene.arrive(4)
    entries = scene.cursor.ready.peek(0, 4)
    entries[0].expires_at = entries[1].not_before = 5.0
    scene.now = 4.0
    all_of_them, _ = scene.consume(accepts=every(1), credit=1)
    assert all_of_them.offsets == [0]
    scene.now = 6.0
    scene.cursor.settle(all_of_them.open, RELEASED)
    scene.cursor.pump()
    assert all_of_them.offsets == [0, 1]  # which was due by then; the first had expired


def test_a_message_that_is_delayed_comes_to_a_filter_when_it_is_due() -> None:
    scene = Scene()
    even, _ = scene.consume(accepts=every(2))
    scene.arrive(1)
    scene.cursor.settle(even.open, Verdict(Outcome.RELEASED, delay=10.0))
    scene.cursor.pump()
    assert even.offsets == [0]
    scene.now = 10.0
    scene.cursor.pump()
    assert even.offsets == [0, 0]


def test_a_purge_empties_what_filters_would_look_at() -> None:
    scene = Scene()
    even, consumer = scene.consume(accepts=every(2), credit=1)
    scene.arrive(10)
    assert scene.cursor.purge() == 9
    consumer.grant(5)
    assert even.offsets == [0]
    assert scene.cursor.in_flight == 1


def test_a_million_messages_that_do_not_match_are_not_held() -> None:
    shelf = Shelf()
    scene = Scene(shelf=shelf, limit=100_000)
    scene.arrive(20_000)
    most = 0

    def accepts(message: Message) -> bool:
        nonlocal most
        selection = consumer.view
        assert selection is not None
        most = max(most, selection._budget.used)
        return number(message) == 19_999

    basket, consumer = scene.consume(accepts=accepts)
    scene.settle_down()
    assert basket.offsets == [19_999]
    assert 0 < most <= LOOK_AHEAD_BYTES + 1000 * 600
    assert scene.budget.used < 150_000


def test_a_consumer_that_takes_nothing_does_not_hold_what_others_took() -> None:
    scene = Scene()
    _, waiting = scene.consume(accepts=every(1), credit=0)
    everyone, _ = scene.consume(auto_settle=True)
    for _ in range(100):
        scene.arrive(100)
    assert waiting.view is not None
    assert waiting.view._view.count() < 1000
    assert len(everyone.deliveries) == 10_000


def test_what_filters_took_from_the_middle_is_not_held_either() -> None:
    scene = Scene(shelf=Shelf(), limit=10_000_000)
    basket, _ = scene.consume(accepts=lambda message: number(message) > 0, auto_settle=True)
    for _ in range(100):
        scene.arrive(100)
    scene.settle_down()
    assert len(basket.deliveries) == 9_999
    assert len(scene.cursor.ready.peek(0, 10)) == 1
    ready = scene.cursor.ready
    assert len(ready._run) < 200  # type: ignore[attr-defined]


def test_a_stream_moves_on_over_what_nobody_in_the_group_wants() -> None:
    scene = Scene(shelf=Shelf(), limit=1_000_000, requeues=False)
    scene.consume(accepts=every(4), auto_settle=True)
    twos, _ = scene.consume(accepts=every(4, 2), auto_settle=True)
    scene.arrive(8)
    assert twos.offsets == [2, 6]
    assert scene.cursor.ready.count() == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 30)),
        st.tuples(st.just("grant"), st.integers(0, 20)),
        st.tuples(st.just("accept"), st.integers(0, 40)),
        st.tuples(st.just("release"), st.integers(0, 40)),
        st.tuples(st.just("fail"), st.integers(0, 40)),
        st.tuples(st.just("leave"), st.integers(0, 2)),
        st.tuples(st.just("withdraw"), st.integers(0, 60)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("purge"), st.just(0)),
    ),
    max_size=40,
)
FILTERS = (every(2), every(3), None)


@pytest.mark.parametrize("has_priorities", [False, True])
@pytest.mark.parametrize("limit", [0, 5_000, 1_000_000])
@pytest.mark.parametrize("is_stored", [True, False])
@given(steps=STEPS)
def test_nothing_is_lost_or_handed_out_twice_whoever_filters(
    has_priorities: bool, limit: int, is_stored: bool, steps: list[tuple[str, int]]
) -> None:
    scene = Scene(shelf=Shelf() if is_stored else None, limit=limit, has_priorities=has_priorities)
    cursor = scene.cursor
    hands = [scene.consume(accepts=accepts, credit=0, replenish=False) for accepts in FILTERS]
    gone: set[int] = set()

    def settle(pick: int, verdict: Verdict) -> None:
        held = [delivery for basket, _ in hands for delivery in basket.open]
        if held:
            delivery = held[pick % len(held)]
            gone.update([delivery.offset] if verdict is ACCEPTED else [])
            cursor.settle([delivery], verdict)
            cursor.pump()

    for step, count in steps:
        match step:
            case "arrive":
                scene.arrive(count)
            case "grant":
                hands[count % 3][1].grant(count)
            case "accept":
                settle(count, ACCEPTED)
            case "release":
                settle(count, RELEASED)
            case "fail":
                settle(count, FAILED)
            case "leave":
                hands[count][1].close(RELEASED)
                accepts = FILTERS[count]
                hands[count] = scene.consume(accepts=accepts, credit=0, replenish=False)
            case "withdraw":
                before = cursor.ready.bytes
                taken = cursor.ready.withdraw([count])
                gone.update(taken)
                # whoever withdraws knows the size of what was not in memory
                cursor.ready.bytes = before - sum(len(str(offset)) for offset in taken)
            case "answer":
                scene.settle_down()
            case "purge":
                held = {d.offset for basket, _ in hands for d in basket.open}
                cursor.purge()
                gone |= set(range(scene.tail)) - held
        held_now = [d.offset for basket, _ in hands for d in basket.open]
        assert len(held_now) == len(set(held_now)) == cursor.in_flight
        assert not set(held_now) & gone
        assert cursor.ready.count() == scene.tail - len(gone) - len(held_now)

    for basket, consumer in hands:
        cursor.settle(basket.open, RELEASED)
        consumer.close()
    expected = sorted(set(range(scene.tail)) - gone)
    for accepts in FILTERS:
        basket, consumer = scene.consume(accepts=accepts, auto_settle=True)
        scene.settle_down()
        wanted = [o for o in expected if accepts is None or accepts(Message(b"%d" % o, "", "q"))]
        assert basket.offsets == in_order(wanted, has_priorities)
        expected = [o for o in expected if o not in wanted]
        consumer.close()
    assert not expected
    assert cursor.ready.count() == 0
    assert cursor.ready.bytes == 0
    assert scene.budget.used == 0


def in_order(offsets: list[int], has_priorities: bool) -> list[int]:
    if not has_priorities:
        return offsets
    return sorted(offsets, key=lambda offset: (-(offset % PRIORITIES), offset))
