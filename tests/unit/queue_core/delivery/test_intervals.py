"""Ranges of offsets behave like the set of offsets that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queue_core.delivery.intervals import Intervals
from queue_core.delivery.settled_offsets import Settled
from queue_core.store.read.recovery import parse_multirange

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def as_set(spans: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}


def check(intervals: Intervals, expected: set[int]) -> None:
    held = list(intervals)
    assert as_set(held) == expected
    assert all(start < end for start, end in held)
    assert all(one[1] < two[0] for one, two in pairwise(held))
    assert intervals.size() == len(expected)
    assert bool(intervals) == bool(expected)


@given(SPANS)
def test_ranges_are_the_set_of_what_was_added(spans: list[tuple[int, int]]) -> None:
    intervals = Intervals(spans)
    expected = as_set(spans)
    check(intervals, expected)
    assert [offset in intervals for offset in range(42)] == [o in expected for o in range(42)]


@given(st.lists(st.integers(0, 30), max_size=30))
def test_single_offsets_join_their_neighbours(offsets: list[int]) -> None:
    intervals = Intervals()
    for offset in offsets:
        intervals.add(offset)
    check(intervals, set(offsets))


@given(SPANS, st.integers(0, 42))
def test_what_is_below_a_floor_can_be_forgotten(spans: list[tuple[int, int]], floor: int) -> None:
    intervals = Intervals(spans)
    intervals.discard_below(floor)
    check(intervals, {offset for offset in as_set(spans) if offset >= floor})


@given(SPANS, st.integers(0, 42), st.integers(0, 42))
def test_gaps_are_all_that_is_not_in_the_set(
    spans: list[tuple[int, int]], start: int, end: int
) -> None:
    gaps = list(Intervals(spans).gaps(start, end))
    assert as_set(gaps) == set(range(start, end)) - as_set(spans)
    assert all(one < two for one, two in gaps)


@given(SPANS)
def test_ranges_survive_the_way_through_the_database(spans: list[tuple[int, int]]) -> None:
    intervals = Intervals(spans)
    assert Intervals(parse_multirange(intervals.text())).text() == intervals.text()


@given(st.integers(0, 5), st.lists(st.integers(0, 30), max_size=40))
def test_the_floor_rises_over_what_is_settled_without_gaps(floor: int, offsets: list[int]) -> None:
    settled = Settled(floor)
    for offset in offsets:
        settled.mark(offset)
    expected = set(range(floor)) | set(offsets)
    first_open = next(o for o in range(100) if o not in expected)
    assert settled.floor == first_open
    assert as_set(list(settled.above)) == {o for o in expected if o > first_open}
    assert all((offset in settled) == (offset in expected) for offset in range(40))


@given(st.integers(0, 5), SPANS)
def test_ranges_are_settled_like_single_offsets(floor: int, spans: list[tuple[int, int]]) -> None:
    settled = Settled(floor)
    for start, end in spans:
        settled.mark_range(start, end)
    expected = set(range(floor)) | as_set(spans)
    assert all((offset in settled) == (offset in expected) for offset in range(45))
    assert settled.floor not in expected
