"""Snapshots: hold one moment of the log for all partitions of a read.

Answers for a transaction that holds the moment, and for the statement that puts others into it.
While it is held no segment can be dropped: hold it for one batch, never for a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_etl.database import Database, connected
from spark_etl.errors import EtlError, InterruptedReadError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Before the first query, so that the moment is younger than the locks: a segment that is dropped
# between the two would take messages along that were carried forward where the moment sees none.
_LOCKS: Final = "LOCK TABLE howdah.message, howdah.message_body IN ACCESS SHARE MODE"

# A plan over many segments takes longer to compile than to run.
_NO_JIT: Final = "SET LOCAL jit = off"


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: str
    database: Database  # inside the moment, too


@contextmanager
def held_snapshot(spark: SparkSession, url: str) -> Iterator[Snapshot]:
    """Holds a snapshot as long as the block lasts."""
    with connected(spark, url) as database, snapshot_of(database) as snapshot:
        yield snapshot


@contextmanager
def snapshot_of(database: Database) -> Iterator[Snapshot]:
    """Holds a snapshot by a connection that is there already."""
    with database.transaction(is_frozen=True):
        database.execute(_LOCKS)
        try:
            yield Snapshot(database.value("SELECT pg_export_snapshot()"), database)
        except InterruptedReadError:
            raise
        except EtlError:
            # With the moment lost, its readers know no more than that it is not there.
            database.check()
            raise


def join_statement(snapshot: Snapshot | None) -> str:
    """Makes the first statement of a reading session, which puts it into the snapshot."""
    if snapshot is None:
        return f"SET TRANSACTION READ ONLY; {_NO_JIT}"
    return (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
        f"SET TRANSACTION SNAPSHOT '{snapshot.id}'; {_NO_JIT}"
    )
