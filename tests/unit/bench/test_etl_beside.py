"""A load counts as beside an export only where rows flowed to the export."""

from __future__ import annotations

import pytest

from bench.etl import QUEUE
from bench.etl_beside import SCENARIO, Span, overlap


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([], 0.0),
        ([(0.0, 20.0)], 1.0),
        ([(0.0, 12.0), (14.0, 20.0)], 0.8),
        ([(0.0, 9.0), (16.0, 17.0)], 0.1),
        ([(25.0, 30.0)], 0.0),
    ],
)
def test_the_share_of_a_load_in_which_rows_flowed(spans: list[Span], share: float) -> None:
    assert overlap(spans, (10.0, 20.0)) == pytest.approx(share)


def test_the_load_does_not_delete_what_the_export_reads() -> None:
    assert SCENARIO.spec.queue != QUEUE
