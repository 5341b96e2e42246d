"""Shows the progress of a running job: a bar on a terminal, a line per batch in a log.

Answers for the words and for the pace. It must not know what is read or written.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WIDTH: Final = 24
_REDRAW_SECONDS: Final = 0.5


class Progress:
    """Counts messages of a job whose size is known."""

    def __init__(self, title: str, total: int, output: TextIO | None = None) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._output = sys.stderr if output is None else output
        self._is_terminal = self._output.isatty()

    @contextmanager
    def batch(self, label: str, size: int, share: Callable[[], float]) -> Iterator[None]:
        """Shows one batch; `share` tells how much of it is done, from 0 to 1."""
        began, stop = time.monotonic(), threading.Event()
        painter = threading.Thread(target=self._paint, args=(size, share, stop), daemon=True)
        if self._is_terminal:
            painter.start()
        try:
            yield
            self._done += size
        finally:
            stop.set()
            if painter.is_alive():
                painter.join()
        self._say(label, size, time.monotonic() - began)

    def note(self, text: str) -> None:
        self._output.write(f"{self._clear()}{self._title}: {text}\n")
        self._output.flush()

    def line(self, done: int) -> str:
        """Formats the bar as it stands."""
        took = max(time.monotonic() - self._started, 1e-9)
        part = min(1.0, done / self._total) if self._total else 1.0
        bar = ("#" * round(part * _WIDTH)).ljust(_WIDTH, ".")
        rate = done / took
        left = f"{(self._total - done) / rate:.0f} s left" if rate else "waiting"
        return f"{self._title} [{bar}] {part:4.0%} {rate:,.0f} rows/s, {left}"

    def _paint(self, size: int, share: Callable[[], float], stop: threading.Event) -> None:
        while not stop.wait(_REDRAW_SECONDS):
            done = self._done + int(size * share())
            self._output.write(f"{self._clear()}{self.line(done)}")
            self._output.flush()

    def _say(self, label: str, size: int, took: float) -> None:
        rate = size / max(took, 1e-9)
        if self._is_terminal:
            self._output.write(f"{self._clear()}{self.line(self._done)}")
            if self._done >= self._total:
                self._output.write("\n")
            self._output.flush()
        else:
            left = max(0, self._total - self._done)
            self.note(f"{label}: {size} messages in {took:.1f} s, {rate:,.0f} rows/s, {left} to go")

    def _clear(self) -> str:
        return "\r\x1b[K" if self._is_terminal else ""


def finished_share(spark: SparkSession) -> Callable[[], float]:
    """Returns a function that tells the share of the running stages' tasks that are done:
    partitions are equal, so it is the share of the work."""
    tracker = spark.sparkContext.statusTracker()

    def share() -> float:
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                total += info.numTasks
        return done / total if total else 0.0

    return share
