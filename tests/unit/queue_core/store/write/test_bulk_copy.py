"""Which rows go into their table by COPY."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.store.write.bulk_copy import COPY_BYTES, COPY_ROWS, is_for_copy
from queue_core.store.write.rows import NARROW


def row(body: bytes | None) -> tuple[Any, ...]:
    return tuple(body if name == "body" else None for name in NARROW)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([row(b"x")], False, id="a small message"),
        pytest.param([row(b"x")] * COPY_ROWS, True, id="many messages"),
        pytest.param([row(bytes(COPY_BYTES))], True, id="one large body"),
        pytest.param([row(bytes(COPY_BYTES // 4))] * 4, True, id="bodies that are large together"),
        pytest.param([row(None)] * 4, False, id="bodies that are stored apart"),
    ],
)
def test_many_rows_and_large_bodies_are_copied(rows: list[tuple[Any, ...]], expected: bool) -> None:
    assert is_for_copy(rows) is expected
