"""Logs warnings about what is tried again and again: each once, and once more after a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN: Final = 60.0  # seconds until the same is worth saying again
MOST: Final = 100  # different ones that are remembered


class Complaints:
    """Writes each different warning at most once in AGAIN seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, text: str, *arguments: object, exc_info: bool = False) -> None:
        said, now = text % arguments, self._clock()
        if now - self._said.get(said, -AGAIN) < AGAIN:
            return
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[said] = now
        self._log.warning("%s", said, exc_info=exc_info)
