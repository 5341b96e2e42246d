"""A manager's word of itself, without a database."""

from __future__ import annotations

import pytest

from queue_core.errors import StoreUnavailable
from queue_core.manager import LossNotice


@pytest.mark.parametrize("is_late", [False, True])
async def test_whoever_listens_hears_that_the_database_is_lost_also_when_it_listens_late(
    is_late: bool,
) -> None:
    notice, error = LossNotice(), StoreUnavailable("taken")
    heard: list[Exception] = []
    if is_late:
        notice.give(error)
    notice.listen(heard.append)
    if not is_late:
        notice.give(error)
    assert heard == [error]
