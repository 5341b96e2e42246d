"""What a manager says of itself, without a database."""

from __future__ import annotations

import pytest

from queue_core.errors import StoreUnavailable
from queue_core.manager import Manager


@pytest.mark.parametrize("is_late", [False, True])
async def test_whoever_listens_hears_that_the_database_is_lost_also_when_it_listens_late(
    is_late: bool,
) -> None:
    manager, error = Manager("postgresql://nowhere"), StoreUnavailable("taken")
    heard: list[Exception] = []
    assert manager.writer.on_lost is not None
    if is_late:
        manager.writer.on_lost(error)
    manager.on_lost(heard.append)
    if not is_late:
        manager.writer.on_lost(error)
    assert heard == [error]
