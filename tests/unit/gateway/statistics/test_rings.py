"""Rings keep totals of equal steps. A time that a ring was not told of has the totals before it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.statistics.rings import LONG, SHORT, TICK_SECONDS, History, Ring, Span

START = 1_000_000


def test_a_ring_begins_with_the_totals_before_it() -> None:
    ring = Ring(SHORT, (7, 9), START)
    assert ring.column(1, START, 3) == [9, 9, 9]


def test_totals_come_newest_first() -> None:
    ring = Ring(SHORT, (0,), START)
    for step in range(1, 4):
        ring.put(START + step * TICK_SECONDS, (step,))
    assert ring.column(0, START + 3 * TICK_SECONDS, 4) == [3, 2, 1, 0]


def test_times_that_were_left_out_have_the_totals_before_them() -> None:
    ring = Ring(SHORT, (0,), START)
    ring.put(START, (5,))
    ring.put(START + 3 * TICK_SECONDS, (8,))
    assert ring.column(0, START + 4 * TICK_SECONDS, 6) == [8, 8, 5, 5, 5, 0]


def test_a_slot_has_the_last_totals_of_its_step() -> None:
    ring = Ring(Span(600, 30), (0,), START)
    for second in range(0, 30, 5):
        ring.put(START // 30 * 30 + second, (second,))
    assert ring.column(0, START, 1) == [25]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), max_size=60))
def test_a_ring_tells_what_a_list_of_everything_would(told: list[tuple[int, int]]) -> None:
    span = Span(60, 5)
    ring, now, everything = Ring(span, (0,), START), START, {0: 0}
    total = 0
    for pause, grown in told:
        now += pause
        total += grown
        ring.put(now, (total,))
        everything[now] = total

    def known_at(slot: int) -> int:
        return everything[max(each for each in everything if each // 5 <= slot)]

    slots = range(now // 5, now // 5 - span.slots, -1)
    assert ring.column(0, now, 99) == [known_at(slot) for slot in slots]


def test_a_rate_is_the_growth_between_the_last_two_samples() -> None:
    history = History((0,), START)
    history.put(START, (10,))
    history.put(START + TICK_SECONDS, (60,))
    assert history.rate(0, START + TICK_SECONDS) == 10.0
    assert history.rate(0, START + 2 * TICK_SECONDS) == 0.0


def test_hours_are_kept_from_the_moment_on_that_somebody_asks() -> None:
    history = History((0,), START)
    assert not history.is_long
    history.put(START, (5,))
    history.lengthen(START)
    history.put(START + 3600, (50,))
    found = history.samples(0, START + 3600, 28_800, 300)
    assert found[0] == ((START + 3600) // 300 * 300, 50)
    assert found[-1][1] == 5
    assert len(found) == LONG[-1].slots


def test_samples_come_as_far_apart_as_asked() -> None:
    history = History((0,), START, is_long=True)
    times = [time for time, _ in history.samples(0, START, 600, 60)]
    assert {before - after for before, after in pairwise(times)} == {60}
