"""Transactions of cold tables that many callers share: items that gather while one transaction runs
go into the next, as in the writer. A thousand clients that come back together cost a few commits,
not a thousand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from queue_core.errors import StoreUnavailable

log = logging.getLogger(__name__)

MOST_ITEMS: Final = 500  # of one transaction

T = TypeVar("T")
R = TypeVar("R")


class Gathering(Generic[T, R]):
    """Commits items of many callers together. `write` takes a list of items and returns an answer
    for each, in one transaction."""

    def __init__(self, write: Callable[[list[T]], Awaitable[Sequence[R]]]) -> None:
        self._write = write
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: T) -> R:
        """Adds one item to the next commit, and returns its answer when it is committed."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MOST_ITEMS]
                del self._waiting[:MOST_ITEMS]
                await self._write_batch(batch)
        finally:
            self._task = None

    async def _write_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
        except StoreUnavailable as error:
            for _, answer in batch:
                _fail(answer, StoreUnavailable(str(error)))
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for each in batch:  # one bad item must not fail its neighbours
                await self._write_batch([each])
        else:
            for (_, answer), result in zip(batch, results, strict=True):
                if not answer.done():
                    answer.set_result(result)


def _fail(answer: asyncio.Future[R], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
