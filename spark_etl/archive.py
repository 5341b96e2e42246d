"""archive: sealed segments to Parquet, so that the gateway may drop them.

Answers for the order: copied, counted, on the disk, visible, and only then confirmed to the
gateway, which keeps a marked segment until then (howdah.keep_for_archive). Killed anywhere, the
next run goes on; a segment whose manifest is there only lacks the confirmation.

    <directory>/_howdah-archive.json          says that the directory is ours
    <directory>/_manifest/<segment>.json      that segment is whole
    <directory>/segment=<segment>/run=<run>/day=2026-01-31/*.parquet

A message that outlived its segment was carried into a newer one, and is in the archive of both:
(queue_id, offset) tells them apart.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_etl.atomic_files import load, sync, write_new
from spark_etl.checkpoints import only_archive
from spark_etl.database import connected, explained, place, refuse_standby
from spark_etl.errors import EtlError, SomeFailedError
from spark_etl.jdbc_options import jdbc_options
from spark_etl.messages import COLUMNS, IS_FINITE, SCHEMA, fetch_rows, plain_or_raise
from spark_etl.parquet import write_messages
from spark_etl.progress import Progress, finished_share
from spark_etl.snapshot import Snapshot, held_snapshot, join_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKER: Final = "_howdah-archive.json"
STEPS: Final = ("written", "counted", "synced", "published", "confirmed")
_MANIFESTS: Final = "_manifest"
_SYSTEM: Final = "SELECT system_identifier::text FROM pg_control_system()"
_WAITING: Final = """
    SELECT s.id, s.messages, s.bytes FROM howdah.segment s
    JOIN howdah.archive_mark m ON m.queue_id = coalesce(s.queue_id, 0)
    WHERE s.sealed_at IS NOT NULL AND s.archive IS NULL ORDER BY s.id
"""
_COUNT: Final = "SELECT count(*) FROM howdah.message WHERE segment_id = ?"
_CONFIRM: Final = "SELECT howdah.mark_archived(?::int, ?)"


@dataclass(frozen=True, slots=True)
class Segment:
    id: int
    messages: int
    bytes: int

    def __str__(self) -> str:
        return f"segment {self.id}: {self.messages} messages, {self.bytes} bytes"


def waiting_segments(spark: SparkSession, url: str) -> list[Segment]:
    """Lists the segments that are sealed, marked for archive and not archived yet; oldest first."""
    with connected(spark, url) as database:
        return [Segment(**row) for row in database.fetch(_WAITING)]


def archive(
    spark: SparkSession,
    url: str,
    directory: Path,
    *,
    checkpoint_url: str | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> list[Segment]:
    """Archives all segments that wait, and returns those that it confirmed on the primary."""
    root = directory.absolute()
    with connected(spark, checkpoint_url or url) as primary, only_archive(primary):
        refuse_standby(primary, checkpoint_url or url)
        _prepare(root, primary.value(_SYSTEM))
        # A standby may not have heard yet of what was confirmed, nor of what was sealed last.
        here = {segment.id for segment in waiting_segments(spark, url)}
        waiting = [Segment(**row) for row in primary.fetch(_WAITING)]
        found = [segment for segment in waiting if segment.id in here]
        progress = Progress("archive", sum(segment.messages for segment in found))
        failed: dict[str, EtlError] = {}
        for segment in found:
            try:
                with progress.batch(str(segment), segment.messages, finished_share(spark)):
                    _archive(spark, url, root, segment, on_step)
            except EtlError as error:
                if len(found) == 1:
                    raise
                primary.value("SELECT 1")  # without it, none of the others can be confirmed
                failed[f"segment {segment.id}"] = error
                continue
            location = root / f"segment={segment.id}"
            primary.execute(_CONFIRM, segment.id, location.as_uri())
            on_step("confirmed")
    if failed:
        raise SomeFailedError("segments", failed, len(found), "the others are archived")
    return found


def read_archive(spark: SparkSession, directory: Path) -> DataFrame:
    """Reads all archived messages, in SCHEMA; a message that was carried forward is there once."""
    root = directory.absolute()
    paths = [
        str(root / manifest["folder"])
        for path in sorted((root / _MANIFESTS).glob("*.json"))
        if (manifest := load(path))["messages"]
    ]
    if not paths:
        return spark.createDataFrame([], f"{SCHEMA}, day date")
    schema = f"{SCHEMA}, segment string, run string, day date"
    frame = spark.read.schema(schema).option("basePath", str(root)).parquet(*paths)
    return frame.drop("segment", "run").dropDuplicates(["queue_id", "offset"])


def _archive(
    spark: SparkSession, url: str, root: Path, segment: Segment, on_step: Callable[[str], None]
) -> None:
    manifest = root / _MANIFESTS / f"{segment.id:010d}.json"
    if manifest.exists():
        return  # a run was killed before it could confirm
    folder = root / f"segment={segment.id}"
    shutil.rmtree(folder, ignore_errors=True)
    target = folder / f"run={secrets.token_hex(6)}"
    with held_snapshot(spark, url) as snapshot:
        expected = snapshot.database.value(_COUNT, segment.id)
        with explained(place(url)):
            frame = read_segment(spark, url, snapshot, segment)
            write_messages(frame, target)
    on_step("written")
    files = sorted(target.rglob("*.parquet"))
    _check(target, files, expected)
    on_step("counted")
    for path in (*files, *target.glob("day=*"), target, folder, root):
        sync(path)
    on_step("synced")
    manifest.parent.mkdir(exist_ok=True)
    sync(root)
    content: dict[str, Any] = {
        "segment": segment.id,
        "messages": expected,
        "folder": str(target.relative_to(root)),
        "files": [
            {"path": str(path.relative_to(root)), "bytes": path.stat().st_size} for path in files
        ],
    }
    write_new(manifest, content)
    on_step("published")


def _check(target: Path, files: list[Path], expected: int) -> None:
    from pyarrow import parquet

    found = sum(parquet.read_metadata(path).num_rows for path in files)
    if found != expected:
        raise EtlError(
            f"{target} has {found} messages, and the segment {expected}: not confirmed; run the "
            "archive again"
        )


def read_segment(spark: SparkSession, url: str, snapshot: Snapshot, segment: Segment) -> DataFrame:
    """Reads one segment, whole: every queue in it, by one connection."""
    chosen = ", ".join(f'{sql} AS "{name}"' for name, sql, _ in COLUMNS)
    query = (
        f"SELECT q.vhost, q.name AS queue, m.queue_id, {chosen}, {IS_FINITE} AS is_plain "
        "FROM howdah.message m "
        f"LEFT JOIN howdah.queue q ON q.id = m.queue_id WHERE m.segment_id = {segment.id}"
    )
    options = jdbc_options(url)
    options["sessionInitStatement"] = join_statement(snapshot)
    options["fetchsize"] = str(fetch_rows(segment.bytes // max(1, segment.messages)))
    frame = spark.read.format("jdbc").options(**options).load(query=query)
    refusal = (
        f"segment {segment.id} holds a message with an infinite timestamp, which no file can say"
    )
    return frame.where(plain_or_raise(refusal)).drop("is_plain")


def _prepare(root: Path, system: str) -> None:
    marker = root / MARKER
    if marker.exists():
        if load(marker)["system"] != system:
            raise EtlError(f"{root} is the archive of another database cluster: name another one")
        return
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise EtlError(f"{root} is not empty and no archive of ours: name another directory")
    root.mkdir(parents=True, exist_ok=True)
    write_new(marker, {"format": 1, "system": system})
