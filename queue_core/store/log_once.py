"""Logs warnings about what is tried again and again: each once, and once more after a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from queue_core.message.memo import Memo

REPEAT_SECONDS: Final = 60.0  # until the same warning is written again
MOST_REMEMBERED_TEXTS: Final = 100  # after which all are forgotten


class Complaints:
    """Writes each different warning at most once in REPEAT_SECONDS seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: Memo[str, float] = Memo(MOST_REMEMBERED_TEXTS)

    def warn(self, text: str, *arguments: object, exc_info: bool = False) -> None:
        said, now = text % arguments, self._clock()
        if now - self._said.get(said, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._said.keep(said, now)
        self._log.warning("%s", said, exc_info=exc_info)
