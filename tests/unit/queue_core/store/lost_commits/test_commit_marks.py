"""Marks: which commits prove all others, when several transactions run side by side."""

from __future__ import annotations

from datetime import UTC, datetime

from queue_core.store.lost_commits.commit_marks import Extent, Marks


def test_a_commit_vouches_for_all_that_was_answered_before_it_began() -> None:
    marks = Marks()
    for _ in range(3):
        marks.committed(marks.begin())
    assert marks.numbers == [3]


def test_transactions_side_by_side_do_not_vouch_for_each_other() -> None:
    marks = Marks()
    first, second = marks.begin(), marks.begin()
    marks.committed(second)
    marks.committed(first)
    # Whichever was committed last, a standby may have one of them without the other.
    assert sorted(marks.numbers) == [1, 2]
    marks.committed(marks.begin())
    assert marks.numbers == [3]


def test_a_long_transaction_vouches_only_for_what_was_answered_when_it_began() -> None:
    marks = Marks()
    marks.committed(marks.begin())
    long = marks.begin()
    marks.committed(marks.begin())
    marks.committed(marks.begin())
    marks.committed(long)
    assert sorted(marks.numbers) == [2, 4]
    assert marks.number == 4


def test_a_transaction_that_was_rolled_back_is_not_missed() -> None:
    marks = Marks()
    marks.committed(marks.begin(messages=5))
    marks.begin(messages=7)
    assert (marks.numbers, marks.number, marks.messages) == ([1], 1, 5)


def test_numbers_and_counts_go_on_where_the_database_is() -> None:
    marks = Marks(Extent(40, 1000, datetime(2026, 1, 1, tzinfo=UTC)))
    assert marks.numbers == []
    mark = marks.begin(messages=3)
    assert (mark.number, mark.messages) == (41, 1003)
    marks.committed(mark)
    assert (marks.number, marks.messages) == (41, 1003)
