"""Checkpoints of jobs in howdah.etl_checkpoint: how far each has come, and one runner at a time.

Answers for the row and for the advisory lock. Both are in the primary, also for a job that reads
from a standby.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from spark_etl.database import Database
from spark_etl.errors import EtlError

_READ: Final = """
    SELECT "offset", messages FROM howdah.etl_checkpoint
    WHERE job = ? AND target = ? AND queue_id = ?
"""
_NOTE: Final = "SELECT howdah.note_checkpoint(?, ?, ?, ?, ?)"
_KEY: Final = "hashtextextended(concat_ws('|', 'howdah.etl', ?, ?, ?::text), 0)"
_ALL_QUEUES: Final = 0

# The session of a job that was killed may take a moment to end.
LOCK_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    offset: int
    messages: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The checkpoint row of one job, target and queue."""

    database: Database
    job: str
    target: str
    queue_id: int

    def read(self) -> Checkpoint | None:
        rows = self.database.fetch(_READ, self.job, self.target, self.queue_id)
        return Checkpoint(**rows[0]) if rows else None

    def note(self, checkpoint: Checkpoint) -> None:
        self.database.execute(
            _NOTE, self.job, self.target, self.queue_id, checkpoint.offset, checkpoint.messages
        )

    @contextmanager
    def locked(self, patience: float = LOCK_SECONDS) -> Iterator[None]:
        """Keeps others from running the same job, target and queue while the block lasts."""
        what = f"{self.job} of this queue to {self.target}"
        with _locked(self.database, (self.job, self.target, self.queue_id), what, patience):
            yield


@contextmanager
def only_archive(database: Database, patience: float = LOCK_SECONDS) -> Iterator[None]:
    """Keeps others from archiving this database while the block lasts."""
    key = ("archive", "", _ALL_QUEUES)
    with _locked(database, key, "archive of this database", patience):
        yield


@contextmanager
def _locked(
    database: Database, key: tuple[str, str, int], what: str, patience: float
) -> Iterator[None]:
    deadline = time.monotonic() + patience
    while not database.value(f"SELECT pg_try_advisory_lock({_KEY})", *key):
        if time.monotonic() >= deadline:
            raise EtlError(
                f"another {what} is running: wait for it, or end it "
                "(application_name 'howdah spark_etl' in pg_stat_activity)"
            )
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        database.execute(f"SELECT pg_advisory_unlock({_KEY})", *key)
