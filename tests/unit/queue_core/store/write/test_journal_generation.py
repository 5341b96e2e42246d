"""When the journal begins a new generation."""

from __future__ import annotations

import pytest

from queue_core.store.write.journal_generation import GENERATION_ROWS, JournalGeneration


@pytest.mark.parametrize(
    ("rows", "marks", "expected"),
    [
        pytest.param(GENERATION_ROWS - 1, 0, False, id="a row short"),
        pytest.param(GENERATION_ROWS, 0, True, id="rows alone"),
        pytest.param(0, GENERATION_ROWS, True, id="marks alone"),
        pytest.param(GENERATION_ROWS - 5, 5, True, id="rows and marks together"),
    ],
)
def test_a_generation_is_full_by_its_rows_and_the_marks_of_its_commits(
    rows: int, marks: int, expected: bool
) -> None:
    generation = JournalGeneration(3, newest_mark=70)
    generation.rows_beside_marks += rows
    assert generation.is_full(70 + marks) is expected


def test_a_generation_that_could_not_begin_is_tried_again_after_a_tenth_more_rows() -> None:
    generation = JournalGeneration(1, newest_mark=0)
    generation.rows_beside_marks = GENERATION_ROWS
    generation.put_off(newest_mark=0)
    assert not generation.is_full(GENERATION_ROWS // 10 - 1)
    assert generation.is_full(GENERATION_ROWS // 10)
