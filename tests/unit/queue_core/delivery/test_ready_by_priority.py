"""Offsets of a queue with priorities, as ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queue_core.delivery.ready_by_priority import Offsets


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30))))
def test_offsets_are_a_set_whose_neighbours_cost_nothing(steps: list[tuple[bool, int]]) -> None:
    offsets, held = Offsets(), set[int]()
    for is_added, offset in steps:
        if not is_added:
            assert offsets.discard(offset) is (offset in held)
            held.discard(offset)
        elif offset not in held:
            offsets.add(offset)
            held.add(offset)
    ranges = list(offsets.ranges())
    assert [offset for start, end in ranges for offset in range(start, end)] == sorted(held)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_returning_many_in_a_row_builds_one_range() -> None:
    offsets = Offsets()
    offsets.extend([(50_000, 100_000)])
    for offset in range(50_000):
        offsets.add(offset)
    assert list(offsets.ranges()) == [(0, 100_000)]
