"""A coroutine that waits for one commit, as a publisher of the unit that is committed."""

from __future__ import annotations

import asyncio

from queue_core.errors import CoreError


class Waiter:
    """A publisher that is one coroutine waiting for one commit."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_committed(self, tokens: list[int]) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
