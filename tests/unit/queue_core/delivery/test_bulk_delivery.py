"""The short ways of a cursor do what the long ones do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queue_core.delivery.bulk_delivery import runs_of
from queue_core.delivery.consumer import SharedCredit
from queue_core.delivery.intervals import Intervals
from queue_core.outcomes import ACCEPTED, FAILED, RELEASED, Outcome, Verdict
from tests.unit.queue_core.scenes import Basket, Scene

LATER = Verdict(Outcome.RELEASED, delay=5.0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 300)),
        st.tuples(st.just("wait"), st.integers(1, 10)),
        st.tuples(
            st.sampled_from([ACCEPTED, RELEASED, FAILED, LATER]),
            st.tuples(st.integers(0, 5), st.integers(1, 50)),  # of those in hand: from, how many
        ),
    ),
    max_size=20,
)


def _told(basket: Basket) -> list[tuple[int, bool, int]]:
    return [(each.offset, each.redelivered, each.failures) for each in basket.deliveries]


@given(steps=STEPS, credit=st.integers(1, 40), window=st.one_of(st.none(), st.integers(1, 20)))
def test_one_alone_gets_what_it_would_get_beside_one_that_takes_nothing(
    steps: list[tuple[object, object]], credit: int, window: int | None
) -> None:
    scenes = [Scene(), Scene()]
    hands = []
    for scene in scenes:
        shared = None if window is None else SharedCredit(window)
        hands.append(scene.consume(credit=credit, shared=shared))
    scenes[1].consume(credit=0)  # with it there, everything goes the long way
    for what, how in steps:
        for scene, (basket, _) in zip(scenes, hands, strict=True):
            if isinstance(how, tuple):
                assert isinstance(what, Verdict)
                start, count = how
                scene.cursor.settle(basket.open[start : start + count], what)
                scene.cursor.pump()
            elif what == "arrive":
                assert isinstance(how, int)
                scene.arrive(how)
            else:
                assert isinstance(how, int)
                scene.now += how
                scene.cursor.pump()
        (short, one), (long, other) = hands
        assert _told(short) == _told(long)
        assert one.credit == other.credit
        assert scenes[0].cursor.in_flight == scenes[1].cursor.in_flight == len(short.open)
        assert scenes[0].cursor.ready.count() == scenes[1].cursor.ready.count()
        assert scenes[0].cursor.context.counters == scenes[1].cursor.context.counters


@given(st.lists(st.integers(0, 60), unique=True, min_size=1))
def test_runs_hold_all_offsets_and_no_others(offsets: list[int]) -> None:
    runs = list(runs_of(offsets))
    assert [each for start, end in runs for each in range(start, end)] == offsets
    assert Intervals(runs).size() == len(offsets)
