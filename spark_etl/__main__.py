"""The command line of the Spark jobs: `python -m spark_etl`, which is also `howdah etl` and what
spark-submit runs.

Answers for arguments and exit codes; each job is a function elsewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_etl.archive import archive, waiting_segments
from spark_etl.database import connected, explained, place
from spark_etl.errors import EtlError
from spark_etl.export import (
    BATCH_MESSAGES,
    FREE_MESSAGES,
    GENTLE_RATE,
    ExportSettings,
    export,
    plan_export,
)
from spark_etl.messages import CONNECTIONS
from spark_etl.preflight import Needs, check_beforehand
from spark_etl.queues import all_queues
from spark_etl.replay import MESSAGES_PER_SECOND, ReplaySettings, plan_replay, replay
from spark_etl.report import Minute, page
from spark_etl.snapshot import held_snapshot
from spark_etl.sources import Bounds, ParquetSource, Source, StreamSource
from spark_etl.spark_session import session
from spark_etl.stats import read_stats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL_VARIABLE: Final = "HOWDAH_ETL_URL"
PRIMARY_VARIABLE: Final = "HOWDAH_ETL_CHECKPOINT_URL"
FAILED: Final = 1
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one job; 1 says that it failed, 2 that it was asked for in a wrong way."""
    options = make_parser().parse_args(arguments)
    try:
        if not options.url:
            raise EtlError(f"no database: give --url, or set {URL_VARIABLE}")
        for url, needs in _NEEDS[options.job](options):
            check_beforehand(url, needs)
        spark = session(
            f"howdah etl {options.job}",
            options.master,
            jdbc_jar=options.jdbc_jar,
            settings=_settings(options),
        )
        try:
            options.run(spark, options)
        finally:
            spark.stop()
    except (EtlError, ValueError) as error:
        print(f"howdah: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="howdah etl", description="Spark jobs on the queue tables, through JDBC."
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="job")
    for name, summary, add, run in _JOBS:
        job = jobs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        _add_common(job)
        add(job)
        job.set_defaults(run=run)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get(URL_VARIABLE),
        help=f"postgresql://user:password@host:port/database (default: {URL_VARIABLE})",
    )
    parser.add_argument("--vhost", default="/", metavar="NAME", help="virtual host (default: /)")
    parser.add_argument(
        "--master", metavar="URL", help="Spark master: spark://, yarn, k8s:// (default: local[*])"
    )
    parser.add_argument("--jdbc-jar", type=Path, metavar="FILE", help="PostgreSQL's JDBC driver")
    parser.add_argument("--packages", metavar="LIST", help="spark.jars.packages")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be read and written"
    )


def _settings(options: argparse.Namespace) -> dict[str, str]:
    chosen = {}
    for setting in options.conf:
        key, separator, value = setting.partition("=")
        if not separator:
            raise EtlError(f"--conf {setting}: expected KEY=VALUE")
        chosen[key] = value
    if options.packages:
        chosen["spark.jars.packages"] = options.packages
    return chosen


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got '{text}'")
    return number


# --- export


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queues", nargs="*", metavar="queue", help="queues (default: all)")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="export directory")
    parser.add_argument(
        "--batch-messages", type=_positive, default=BATCH_MESSAGES, metavar="N",
        help=f"most messages of one batch and one snapshot (default: {BATCH_MESSAGES})",
    )  # fmt: skip
    parser.add_argument(
        "--connections", type=_positive, default=CONNECTIONS, metavar="N",
        help=f"most JDBC connections at once (default: {CONNECTIONS})",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=float, metavar="N",
        help=f"most messages a second, to spare a busy database; inf: as fast as it goes (default: "
        f"that for the first {FREE_MESSAGES:,} of a run, then {GENTLE_RATE:,.0f})",
    )  # fmt: skip
    _add_primary(parser)


def _add_primary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-url", metavar="URL", default=os.environ.get(PRIMARY_VARIABLE),
        help="the primary, where it is noted what was done, when --url is a standby "
        f"(default: {PRIMARY_VARIABLE})",
    )  # fmt: skip


def _export(spark: SparkSession, options: argparse.Namespace) -> None:
    settings = ExportSettings(
        options.to,
        options.batch_messages,
        options.connections,
        options.checkpoint_url,
        options.rate,
    )
    queues = options.queues or None
    if options.dry_run:
        for plan in plan_export(spark, options.url, queues, settings, options.vhost):
            print(plan)
        return
    batches = export(spark, options.url, queues, settings, options.vhost)
    print(f"{sum(b.messages for b in batches)} messages in {len(batches)} batches -> {options.to}")


# --- replay


def _add_replay(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--parquet", type=Path, metavar="DIR", help="an export, or Parquet files")
    source.add_argument("--stream", metavar="NAME", help="a stream in the same database")
    parser.add_argument("--queue", metavar="NAME", help="with --parquet: which queue of the export")
    parser.add_argument("--after", type=int, metavar="OFFSET", help="only above this offset")
    parser.add_argument("--upto", type=int, metavar="OFFSET", help="only up to this offset")
    parser.add_argument("--since", metavar="TIME", help="with --stream: from this RFC 3339 time on")
    parser.add_argument("--until", metavar="TIME", help="with --stream: before this time")
    parser.add_argument("--into", required=True, metavar="QUEUE", help="queue to publish to")
    parser.add_argument(
        "--rate",
        type=float,
        default=MESSAGES_PER_SECOND,
        help=f"most messages a second (default: {MESSAGES_PER_SECOND:g})",
    )
    parser.add_argument(
        "--name", help="name of this replay; one of the same name goes on where it stopped"
    )
    _add_primary(parser)


def _replay(spark: SparkSession, options: argparse.Namespace) -> None:
    bounds = Bounds(options.after, options.upto, options.since, options.until)
    source: Source
    if options.stream is not None:
        source = StreamSource(options.url, options.stream, bounds, options.vhost)
    else:
        source = ParquetSource(options.parquet, options.queue, bounds, options.vhost)
    settings = ReplaySettings(options.into, options.vhost, options.rate, options.name)
    primary = options.checkpoint_url or options.url
    if options.dry_run:
        print(plan_replay(spark, primary, source, settings))
        return
    count = replay(spark, primary, source, settings)
    print(f"{count} messages published into {options.into}")


# --- stats


def _add_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new directory")


def _stats(spark: SparkSession, options: argparse.Namespace) -> None:
    target = options.to.absolute()
    if target.exists():
        raise EtlError(f"{target} exists: name a new directory")
    if options.dry_run:
        with connected(spark, options.url) as database:
            queues = all_queues(database)
        print(f"figures of {len(queues)} queues -> {target}/minutes and {target}/report.html")
        return
    with held_snapshot(spark, options.url) as snapshot, explained(place(options.url)):
        queues = all_queues(snapshot.database)
        read_stats(spark, options.url, snapshot).coalesce(1).write.parquet(str(target / "minutes"))
    rows = [
        Minute(**{field: row[field] for field in Minute.__slots__})
        for row in spark.read.parquet(str(target / "minutes")).collect()
    ]
    (target / "report.html").write_text(page(rows, datetime.now(UTC), queues))
    print(f"{len(rows)} minutes -> {target}/minutes and {target}/report.html")


# --- archive


def _add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="archive directory")
    _add_primary(parser)


def _archive(spark: SparkSession, options: argparse.Namespace) -> None:
    if options.dry_run:
        found = waiting_segments(spark, options.url)
        for segment in found:
            print(f"{segment} -> {options.to}")
        if not found:
            print("no segment waits for archive")
        return
    done = archive(spark, options.url, options.to, checkpoint_url=options.checkpoint_url)
    print(f"{len(done)} segments, {sum(s.messages for s in done)} messages -> {options.to}")


# --- what each job needs, asked for before Spark starts


def _export_needs(options: argparse.Namespace) -> list[tuple[str, Needs]]:
    return [
        (options.url, Needs(tuple(options.queues), options.vhost)),
        (options.checkpoint_url or options.url, Needs(function="note_checkpoint")),
    ]


def _replay_needs(options: argparse.Namespace) -> list[tuple[str, Needs]]:
    primary = options.checkpoint_url or options.url
    needs = [
        (primary, Needs((options.into,), options.vhost, "publish", "howdah_publisher")),
        (primary, Needs(function="note_checkpoint")),
    ]
    if options.stream is not None:
        needs.append((options.url, Needs((options.stream,), options.vhost)))
    return needs


def _archive_needs(options: argparse.Namespace) -> list[tuple[str, Needs]]:
    primary = options.checkpoint_url or options.url
    return [(options.url, Needs()), (primary, Needs((), "/", "mark_archived", "howdah_operator"))]


def _stats_needs(options: argparse.Namespace) -> list[tuple[str, Needs]]:
    return [(options.url, Needs())]


_NEEDS: Final = {
    "export": _export_needs,
    "replay": _replay_needs,
    "stats": _stats_needs,
    "archive": _archive_needs,
}
_JOBS: Final = (
    ("export", "a queue or stream to Parquet, incrementally, exactly once", _add_export, _export),
    ("replay", "messages from Parquet or a stream back into a queue", _add_replay, _replay),
    ("stats", "figures per queue and minute, and a page with plots", _add_stats, _stats),
    ("archive", "segments that wait for it to Parquet", _add_archive, _archive),
)

if __name__ == "__main__":
    sys.exit(main())
