"""A timer of a connection: at most one call in the future, which can be replaced or stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Belongs to one connection; stopped when the connection is gone."""

    __slots__ = ("_handle", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None  # None: no call is planned

    def start(self, seconds: float, act: Callable[[], object]) -> None:
        """Plans a call in so many seconds. An earlier plan is dropped."""
        self.stop()
        self._handle = self._loop.call_later(seconds, act)

    def stop(self) -> None:
        """Drops the call that is planned, if there is one."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
