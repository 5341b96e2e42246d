"""A gateway whose database went back in time starts anew, whatever its end came to."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gateway import service
from gateway.config.keys import Config
from gateway.file_descriptors import Descriptors
from queue_core.errors import StoreUnavailable
from queue_core.store.ownership import OwnershipLost, Setback


class StuckManager:
    """A manager that waits for a database which does not answer."""

    async def close(self) -> None:
        await asyncio.Event().wait()


class Runs:
    """Takes the place of a gateway's run: the first ends by the error, the second is told to."""

    def __init__(self, error: Exception) -> None:
        self.count = 0
        self._error = error

    async def __call__(self, config: Config, descriptors: Descriptors) -> None:
        self.count += 1
        if self.count == 1:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(service._close, StuckManager())  # type: ignore[arg-type]
                raise self._error


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(service, "ANEW_SECONDS", 0.0)


async def test_a_setback_is_followed_by_a_new_start_though_the_old_end_got_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(Setback("the database went back in time"))
    monkeypatch.setattr(service, "_run", runs)
    await service._run_anew(Config(), Descriptors(1024))
    assert runs.count == 2


async def test_a_gateway_that_lost_its_database_to_another_does_not_start_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(OwnershipLost("another gateway took over"))
    monkeypatch.setattr(service, "_run", runs)
    with pytest.raises(StoreUnavailable):
        await service._run_anew(Config(), Descriptors(1024))
    assert runs.count == 1
