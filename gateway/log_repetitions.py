"""Limits repeated log lines, of which a peer can cause any number: the first of a kind are written,
the others counted, and the count is a line of its own.

A kind is a logger, a level and the text before its arguments are put in: names that a peer chooses
make no new kind. Answers for how many lines there are, not for what they say.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SAID_AT_ONCE: Final = 20  # lines of one kind in one period
PERIOD_SECONDS: Final = 10.0
MOST_KINDS: Final = 512  # that are told apart; what comes then shares its logger's count
LEFT_OUT: Final = "%d more lines like this one were left out in the last %.0f s: %s"

Kind = tuple[str, int, str]


@dataclass(slots=True)
class Count:
    """The lines of one kind in its present period."""

    began_at: float
    said: int = 0
    left_out: int = 0
    example: logging.LogRecord | None = None  # the first that was left out, without its trace


class Repetitions(logging.Filter):
    """Lets a handler write the first lines of each kind in a period. What ends the gateway
    (CRITICAL) is always written."""

    def __init__(
        self,
        handler: logging.Handler,
        text_of: Callable[[logging.LogRecord], str] = logging.LogRecord.getMessage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._handler = handler
        self._text_of = text_of
        self._clock = clock
        self._counts: dict[Kind, Count] = {}
        self._lock = threading.RLock()  # threads log, too
        self._loop: asyncio.AbstractEventLoop | None = None  # that has a timer of ours

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or record.msg is LEFT_OUT:
            return True
        with self._lock:
            now = self._clock()
            self.say_left_out(now)
            count = self._count(record, now)
            if count.said < SAID_AT_ONCE:
                count.said += 1
                return True
            count.left_out += 1
            if count.example is None:
                count.example = _example(record, self._text_of(record))
                self._plan()
            return False

    def _count(self, record: logging.LogRecord, now: float) -> Count:
        kind = (record.name, record.levelno, str(record.msg))
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            kind = (record.name, record.levelno, "")
        return self._counts.setdefault(kind, Count(now))

    def say_left_out(self, now: float) -> None:
        """Ends the periods that are over, and writes how much of each was left out. They end in
        the order in which they began, so that a look at the first is enough."""
        with self._lock:
            while self._counts:
                kind = next(iter(self._counts))
                count = self._counts[kind]
                if now - count.began_at < PERIOD_SECONDS:
                    return
                del self._counts[kind]
                if count.example is not None:
                    self._handler.handle(_summary(count, count.example))

    def end(self) -> None:
        """Writes all counts that are left when the process ends."""
        self.say_left_out(float("inf"))

    def _plan(self) -> None:
        """Plans to write the counts when the period ends, though nothing more is logged: in the
        event loop where there is one; elsewhere with the next line."""
        if self._loop is not None and not self._loop.is_closed():
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._loop.call_later(PERIOD_SECONDS, self._on_time)

    def _on_time(self) -> None:
        with self._lock:
            self._loop = None
            self.say_left_out(self._clock())
            if any(count.left_out for count in self._counts.values()):
                self._plan()


def _example(record: logging.LogRecord, text: str) -> logging.LogRecord:
    return logging.LogRecord(
        record.name,
        record.levelno,
        record.pathname,
        record.lineno,
        text,
        None,
        None,
    )


def _summary(count: Count, example: logging.LogRecord) -> logging.LogRecord:
    record = logging.LogRecord(
        example.name,
        example.levelno,
        example.pathname,
        example.lineno,
        LEFT_OUT,
        (count.left_out, PERIOD_SECONDS, example.msg),
        None,
    )
    record.left_out = count.left_out
    return record
