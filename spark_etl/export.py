"""export: a queue or stream to Parquet, each message once, whatever is killed and when.

Answers for the order of the steps. A batch is planned and read in one snapshot, written to a place
of its own, counted, put on the disk, made visible by its manifest, and noted in the database. Up to
the manifest nothing has happened; after it, everything has, and the next run notes what is missing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_etl.batch_writer import BatchWriter
from spark_etl.checkpoints import Checkpoint, Ledger
from spark_etl.database import Database, connected, refuse_standby
from spark_etl.errors import EtlError, InterruptedReadError, SomeFailedError
from spark_etl.manifest import Batch, ExportDirectory, QueueFolder
from spark_etl.messages import CONNECTIONS, MESSAGE_SCHEMA, ORIGIN, SCHEMA
from spark_etl.progress import Progress, finished_share
from spark_etl.queues import Queue, edges, find_queues, lost, lost_upto
from spark_etl.ranges import Range
from spark_etl.snapshot import Snapshot, held_snapshot, snapshot_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BATCH_MESSAGES: Final = 1_000_000
# A long read shall not cost the gateway much, and a short one shall be short: after so many
# messages of a run comes a rate, unless another is asked for.
FREE_MESSAGES: Final = 1_000_000
GENTLE_RATE: Final = 20_000.0
_SNAPSHOT_SECONDS: Final = 60
_ATTEMPTS: Final = 3  # at a batch that a standby interrupts
JOB: Final = "export"
SEE_LOSSES: Final = "see howdah.loss"
_SYSTEM: Final = "SELECT system_identifier::text FROM pg_control_system()"

# Told after each step, so that a test can end the process there.
STEPS: Final = ("planned", "written", "counted", "synced", "published", "noted")
OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportSettings:
    directory: Path
    batch_messages: int = BATCH_MESSAGES
    connections: int = CONNECTIONS
    checkpoint_url: str | None = None  # the primary, when a standby is read
    # Most messages a second; infinite: as fast as it goes; None: that for the first, then gently.
    rate: float | None = None

    def rate_after(self, count: int) -> float:
        """Returns the messages a second of the batch that comes after `count` messages of a run."""
        if self.rate is not None:
            return self.rate
        return inf if count < FREE_MESSAGES else GENTLE_RATE

    def most_after(self, count: int) -> int:
        """Returns the most messages of the batch that comes after `count`: its snapshot is held for
        a minute or so, also at a low rate."""
        most = self.batch_messages
        if self.rate is None and count < FREE_MESSAGES:
            most = min(most, FREE_MESSAGES - count)
        return max(1, int(min(most, self.rate_after(count) * _SNAPSHOT_SECONDS)))


@dataclass(frozen=True, slots=True)
class Plan:
    """The range that a run would read of one queue."""

    queue: Queue
    wanted: Range
    missing: int
    folder: Path
    lost: int = 0

    def __str__(self) -> str:
        if not len(self.wanted):
            return f"{self.queue.name}: nothing new after offset {self.wanted.after}"
        gone = f", {self.missing} gone already by retention" if self.missing else ""
        gone += f", {self.lost} lost by the database" if self.lost else ""
        return (
            f"{self.queue.name} ({self.queue.kind}): offsets {self.wanted.after + 1} to "
            f"{self.wanted.upto}{gone} -> {self.folder}"
        )


def plan_export(
    spark: SparkSession,
    url: str,
    queues: list[str] | None,
    settings: ExportSettings,
    vhost: str = "/",
) -> list[Plan]:
    """Plans what would be read and written; changes nothing."""
    directory = ExportDirectory(settings.directory.absolute())
    plans = []
    with connected(spark, url) as database:
        for queue in find_queues(database, vhost, queues):
            folder = directory.folder(queue)
            plans.append(_plan(database, queue, folder, _end(folder.batches())))
    return plans


def export(
    spark: SparkSession,
    url: str,
    queues: list[str] | None,
    settings: ExportSettings,
    vhost: str = "/",
    *,
    on_step: OnStep = lambda step: None,
) -> list[Batch]:
    """Exports everything that is committed when it begins, and returns the batches that it
    added."""
    if settings.rate is not None and not settings.rate > 0:
        raise EtlError(f"the rate is {settings.rate:g}, and must be above 0")
    directory = ExportDirectory(settings.directory.absolute())
    primary_url = settings.checkpoint_url or url
    added: list[Batch] = []
    with connected(spark, url) as database:
        found = find_queues(database, vhost, queues)
        with connected_also(spark, primary_url, database, url) as primary:
            refuse_standby(primary, primary_url)
            directory.prepare()
            source = ReadFrom(spark, url, database, is_primary=primary is database)
            failed: dict[str, EtlError] = {}
            for queue in found:
                ledger = Ledger(primary, JOB, str(directory.path), queue.id)
                folder = directory.folder(queue)
                before = sum(batch.messages for batch in added)
                try:
                    with ledger.locked():
                        one = QueueExport(source, queue, folder, ledger, settings, before)
                        added += one.run(on_step)
                except EtlError as error:
                    if len(found) == 1:
                        raise
                    for each in (database, primary):
                        each.value("SELECT 1")  # without it, none of the others can be read
                    failed[queue.name] = error
    if failed:
        count = sum(batch.messages for batch in added)
        raise SomeFailedError("queues", failed, len(found), f"{count} messages of the others done")
    return added


@contextmanager
def connected_also(
    spark: SparkSession, url: str, database: Database, its_url: str
) -> Iterator[Database]:
    """Yields a connection to another database, or the one that is there: SCRAM makes logins
    dear."""
    if url == its_url:
        yield database
        return
    with connected(spark, url) as other:
        yield other


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """The database that an export reads from: the primary itself, or a standby."""

    spark: SparkSession
    url: str
    database: Database
    is_primary: bool

    def moment(self) -> AbstractContextManager[Snapshot]:
        """Opens the snapshot of one batch. Each batch has its own, since a standby may end the
        session that holds it."""
        if self.is_primary:
            return snapshot_of(self.database)
        return held_snapshot(self.spark, self.url)


class QueueExport:
    """The export of one queue, under its lock."""

    def __init__(
        self,
        source: ReadFrom,
        queue: Queue,
        folder: QueueFolder,
        ledger: Ledger,
        settings: ExportSettings,
        count: int = 0,
    ) -> None:
        self._source = source
        self._queue = queue
        self._folder = folder
        self._ledger = ledger
        self._settings = settings
        self._count_so_far = count  # messages of this run, of other queues too
        self._writer = BatchWriter(
            source.spark,
            source.url,
            queue,
            settings.connections,
            must_pace=settings.rate is not None,
        )

    def run(self, on_step: OnStep) -> list[Batch]:
        before = self._recover()
        plan = _plan(self._source.database, self._queue, self._folder, _end(before))
        self._check_system(self._source.database, before)
        progress = Progress(f"export {self._queue.name}", len(plan.wanted))
        if plan.missing and before:
            progress.note(f"{plan.missing} messages are gone by retention since the last export")
        if not len(plan.wanted):
            progress.note(str(plan))
        added: list[Batch] = []
        while _end([*before, *added]) < plan.wanted.upto:
            after, upto = _end([*before, *added]), plan.wanted.upto
            batch = self._batch_at_last(after, upto, progress, on_step)
            added.append(batch)
            self._count_so_far += batch.messages
            self._note([*before, *added])
            on_step("noted")
        return added

    def _recover(self) -> list[Batch]:
        """Returns the batches of earlier runs, after it has put in order what a killed one left."""
        batches = self._folder.batches()
        self._folder.check(batches)
        noted = self._ledger.read()
        if noted is not None and noted.offset > _end(batches):
            raise EtlError(
                f"{self._folder.path} ends at offset {_end(batches)}, but was exported up to "
                f"{noted.offset}: manifests are missing; restore them, or export to a new directory"
            )
        self._folder.remove_leftovers(batches)
        if batches:
            self._note(batches)
        return batches

    def _note(self, batches: list[Batch]) -> None:
        count = sum(batch.messages for batch in batches)
        self._ledger.note(Checkpoint(_end(batches), count))

    def _check_system(self, database: Database, before: list[Batch]) -> None:
        """Refuses to add to an export of another cluster, or of a restored one: its offsets mean
        other messages."""
        if not before:
            return
        system = database.value(_SYSTEM)
        if before[-1].system != system:
            raise EtlError(
                f"{self._folder.path} was exported from another database cluster "
                f"({before[-1].system}, this is {system}): export to a new directory"
            )
        found = edges(database, self._queue)
        if self._queue.is_stream and found is not None and found.newest < before[-1].upto:
            if lost_upto(database, self._queue) >= before[-1].upto:
                return  # noted as lost: what comes next is numbered behind it
            raise EtlError(
                f"stream {self._queue.name} ends at offset {found.newest}, but was exported up to "
                f"{before[-1].upto}: this is a standby that is behind, or a restored database; "
                "for the latter export to a new directory, or have numbers go on behind it: with "
                "the gateway stopped, INSERT INTO howdah.loss (cause, queue_id, first_offset, "
                f"end_offset, detail) VALUES ('setback', {self._queue.id}, {found.newest + 1}, "
                f"{before[-1].upto + 1}, 'restored')"
            )

    def _batch_at_last(self, after: int, upto: int, progress: Progress, on_step: OnStep) -> Batch:
        """Exports a batch, and tries again where a standby ends a read that is in its way."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._batch(after, upto, progress, on_step)
            except InterruptedReadError as error:
                progress.note(f"{error.reason}: reading the batch again")
                self._folder.remove_leftovers(self._folder.batches())
        return self._batch(after, upto, progress, on_step)

    def _batch(self, after: int, upto: int, progress: Progress, on_step: OnStep) -> Batch:
        with self._source.moment() as snapshot:
            wanted, missing = self._range(snapshot, after, upto)
            there = Range(wanted.after + missing, wanted.upto)
            gap = lost(snapshot.database, self._queue, there)
            missing += gap
            system = snapshot.database.value(_SYSTEM)
            name = self._folder.batch_name(wanted, secrets.token_hex(6))
            on_step("planned")
            label = f"offsets {wanted.after + 1} to {wanted.upto}"
            with progress.batch(label, len(wanted), finished_share(self._source.spark)):
                rate = self._settings.rate_after(self._count_so_far)
                read = self._writer.write(snapshot, there, self._folder.data(name), rate)
        if gap:
            progress.note(f"{label}: {gap} have no message, the database has lost it; {SEE_LOSSES}")
        for note in self._writer.notes():
            progress.note(note)
        on_step("written")
        messages = self._count(name, read, len(wanted) - missing)
        on_step("counted")
        files = self._folder.sync(name)
        on_step("synced")
        batch = Batch(
            vhost=self._queue.vhost,
            queue=self._queue.name,
            queue_id=self._queue.id,
            system=system,
            after=wanted.after,
            upto=wanted.upto,
            messages=messages,
            missing=missing,
            written_at=datetime.now(UTC).isoformat(timespec="seconds"),
            folder=name,
            files=files,
        )
        self._folder.publish(batch)
        on_step("published")
        return batch

    def _range(self, snapshot: Snapshot, after: int, upto: int) -> tuple[Range, int]:
        """Returns the offsets of the next batch, and how many of them retention has taken."""
        found = edges(snapshot.database, self._queue)
        if found is None or found.head > upto:
            return Range(after, upto), upto - after
        start = max(after, found.head - 1)
        end = start + self._settings.most_after(self._count_so_far)
        return Range(after, min(upto, end)), start - after

    def _count(self, name: str, read: int, expected: int) -> int:
        """Counts the rows in the files, which must be those that were read. A stream has no gaps
        that nobody knows of: with fewer rows than offsets, something is wrong; of a classic queue,
        what is settled may be gone."""
        from pyarrow import parquet

        found: int = sum(parquet.read_metadata(path).num_rows for path in self._folder.files(name))
        if found != read:
            raise EtlError(
                f"{self._folder.data(name)} has {found} messages, and {read} were read: not "
                "published; see who else writes there, and run the export again"
            )
        if found > expected or (self._queue.is_stream and found != expected):
            raise EtlError(
                f"{self._folder.data(name)} has {found} messages, and {expected} were to be read: "
                "not published; run the export again, and if it stays so, look for gaps in "
                f"howdah.message of queue {self._queue.id}"
            )
        return found


def read_export(
    spark: SparkSession, directory: Path, queue: str | None = None, vhost: str = "/"
) -> DataFrame:
    """Reads all visible batches of a queue, or of every queue, in today's SCHEMA: a column that
    older batches did not have yet is null."""
    batches = ExportDirectory(directory).batches(queue, vhost)
    return read_batches(spark, directory, [batch for batch in batches if batch.messages])


def read_batches(spark: SparkSession, directory: Path, batches: list[Batch]) -> DataFrame:
    from pyspark.sql import functions as F

    if not batches:
        return spark.createDataFrame([], f"{SCHEMA}, day date")
    # The folders are partitions to Spark: a filter on the day opens only that day's files.
    paths = sorted(
        {str(directory / file.path.split("/day=")[0]) for b in batches for file in b.files}
    )
    frame = (
        spark.read.schema(f"{MESSAGE_SCHEMA}, log string, batch string, day date")
        .option("basePath", str(directory))
        .parquet(*paths)
    )
    origins: dict[str, Column] = {
        b.log: F.struct(F.lit(b.vhost), F.lit(b.queue), F.lit(b.queue_id).cast("bigint"))
        for b in batches
    }
    pairs = [column for log, origin in origins.items() for column in (F.lit(log), origin)]
    origin = F.create_map(*pairs)[F.col("log")]
    return frame.select(
        *(origin.getField(f"col{n}").alias(name) for n, name in enumerate(ORIGIN, 1)),
        *(name for name in frame.columns if name not in ("log", "batch")),
    )


def _end(batches: list[Batch]) -> int:
    return batches[-1].upto if batches else -1


def _plan(database: Database, queue: Queue, folder: QueueFolder, after: int) -> Plan:
    found = edges(database, queue)
    if found is None:
        return Plan(queue, Range(after, after), 0, folder.path)
    upto = max(after, found.newest)
    missing = max(0, min(found.head - 1, upto) - after)
    gap = lost(database, queue, Range(after + missing, upto))
    return Plan(queue, Range(after, upto), missing, folder.path, gap)
