"""Ready messages come in their order, whether in memory or to be read back first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.delivery.consumer import Entry
from queue_core.delivery.intervals import Intervals
from queue_core.delivery.ready import (
    CHUNK_ENTRIES,
    LEAST_ENTRIES,
    Budget,
    FifoReady,
    Ready,
    cost,
    gone_of,
)
from queue_core.delivery.ready_by_priority import PriorityReady
from queue_core.message.message import Message
from tests.unit.queue_core.scenes import PRIORITIES, Shelf, copy


def entry(offset: int) -> Entry:
    return Entry(Message(b"x" * 100, "", "q", priority=offset % PRIORITIES), offset=offset)


def make(kind: str, shelf: Shelf | None, budget: Budget) -> Ready:
    if kind == "fifo":
        return FifoReady(0, 0, budget, shelf, lambda: None)
    return PriorityReady(PRIORITIES - 1, 0, budget, shelf, lambda: None)


def order(kind: str, offsets: set[int]) -> list[int]:
    if kind == "fifo":
        return sorted(offsets)
    return sorted(offsets, key=lambda offset: (-(offset % PRIORITIES), offset))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 30)),
        st.tuples(st.just("take"), st.integers(1, 10)),
        st.tuples(st.just("return"), st.integers(0, 20)),
        st.tuples(st.just("withdraw"), st.integers(0, 40)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", ["fifo", "priority"])
@pytest.mark.parametrize("limit", [0, 5_000, 1_000_000])
@pytest.mark.parametrize("is_stored", [True, False])
@given(steps=STEPS)
def test_entries_come_in_order_whatever_fits_into_memory(
    kind: str, limit: int, is_stored: bool, steps: list[tuple[str, int]]
) -> None:
    shelf, budget = Shelf(), Budget(limit)
    ready = make(kind, shelf if is_stored else None, budget)
    waiting: set[int] = set()
    taken: list[Entry] = []
    tail = 0
    for step, number in [*steps, ("answer", 0), ("take", 1000)]:
        match step:
            case "arrive":
                new = [entry(offset) for offset in range(tail, tail + number)]
                shelf.entries |= {each.offset: each for each in new}
                ready.arrive([copy(each) for each in new])
                waiting |= {each.offset for each in new}
                tail += number
            case "take":
                for _ in range(number):
                    found = ready.take()
                    while found is None and shelf.asked:
                        shelf.answer_all()
                        found = ready.take()
                    if found is None:
                        assert not waiting
                        break
                    assert found.offset == order(kind, waiting)[0]
                    waiting.remove(found.offset)
                    taken.append(found)
            case "return" if taken:
                back = taken.pop(number % len(taken))
                ready.give_back(back)
                waiting.add(back.offset)
            case "withdraw":
                assert ready.withdraw([number]) == ([number] if number in waiting else [])
                waiting.discard(number)
            case "answer":
                shelf.answer_all()
            case "clear":
                gone = Intervals(ready.clear())
                assert all(offset in gone for offset in waiting)
                waiting.clear()
        assert ready.count() == len(waiting)
        assert sorted(ready.offsets_below(10)) == sorted(o for o in waiting if o < 10)
    assert not waiting
    assert budget.used == (sum(map(cost, taken)) if is_stored else 0)


def test_memory_is_taken_and_given_back() -> None:
    shelf, budget = Shelf(), Budget(1_000_000)
    ready = make("fifo", shelf, budget)
    ready.arrive([entry(offset) for offset in range(10)])
    assert budget.used > 0
    ready.clear()
    assert budget.used == 0


@pytest.mark.parametrize("kind", ["fifo", "priority"])
def test_what_is_looked_at_stays_in_memory_however_tight_that_is(kind: str) -> None:
    shelf, budget = Shelf(), Budget(0)
    ready = make(kind, shelf, budget)
    shelf.entries[0] = entry(0)
    ready.arrive([entry(0)])
    while (taken := ready.take()) is None:
        shelf.answer_all()
    ready.give_back(taken)
    while ready.head() is None:
        shelf.answer_all()
    assert ready.take() is not None


def test_no_more_is_read_back_at_once_than_there_is_room_for() -> None:
    budget = Budget(100_000)
    assert budget.chunk(0) == LEAST_ENTRIES
    assert budget.chunk(1_000) == 100
    assert budget.chunk(1) == CHUNK_ENTRIES
    budget.used = 200_000
    assert budget.chunk(1_000) == LEAST_ENTRIES


@pytest.mark.parametrize(
    ("entries", "gone"),
    [([1, 2, 3], []), ([1, 3], [2]), ([1], []), ([], [1, 2, 3])],
    ids=["all are there", "one was taken away", "the rest was not looked for", "none is there"],
)
def test_what_was_not_looked_for_is_not_given_up(entries: list[int], gone: list[int]) -> None:
    found = [Entry(Message(b"", ""), offset=offset) for offset in entries]
    assert gone_of([1, 2, 3], found) == gone
