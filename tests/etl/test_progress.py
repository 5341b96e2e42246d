"""Progress for people: a bar that is painted over on a terminal, a line per batch in a log."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_etl.__main__ import make_parser
from spark_etl.export import ExportSettings, export
from spark_etl.progress import Progress
from tests.support.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def test_on_a_terminal_a_bar_shows_rows_a_second_and_what_is_left(
    spark: SparkSession, house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(40)])
    seen = await asyncio.to_thread(_on_terminal, spark, house.url, tmp_path, monkeypatch)
    paintings = seen.split("\r\x1b[K")
    assert paintings[0] == ""
    assert all(line.startswith("export s [") for line in paintings[1:])
    assert any("]  50%" in line and "rows/s" in line and " s left" in line for line in paintings)
    last = paintings[-1]
    assert last.startswith(f"export s [{'#' * 24}] 100% ")
    assert last.endswith("\r\n")
    assert seen.count("\n") == 1


def _on_terminal(
    spark: SparkSession, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(_all_of, ours)
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            export(spark, url, ["s"], ExportSettings(folder / "out", 20, 1))
        return reading.result().decode()


def _all_of(terminal: int) -> bytes:
    """Reads all that is shown there, until nobody writes any more."""
    seen = b""
    while True:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # EIO: the other side is closed
            os.close(terminal)
            return seen


def test_the_bar_shows_the_share_that_is_done() -> None:
    progress = Progress("export s", 100, io.StringIO())
    assert progress.line(25).startswith("export s [######..................]  25% ")
    assert progress.line(0).endswith("waiting")


async def test_in_a_log_each_batch_is_one_line(
    spark: SparkSession, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(30)])
    settings = ExportSettings(tmp_path / "out", 20, 1)
    await asyncio.to_thread(export, spark, house.url, ["s"], settings)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("export s: offsets 0 to 19: 20 messages in ")
    assert second.startswith("export s: offsets 20 to 29: 10 messages in ")
    assert second.endswith(" rows/s, 0 to go")


async def test_a_dry_run_of_any_job_says_what_would_be_done_and_does_nothing(
    spark: SparkSession, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.stream("s")
    await house.queue("q")
    await house.store("s", *[b"%d" % i for i in range(7)])
    out = str(tmp_path / "out")

    async def said(*words: str) -> str:
        options = make_parser().parse_args([*words, "--url", house.url, "--dry-run"])
        await asyncio.to_thread(options.run, spark, options)
        return capsys.readouterr().out

    folder = tmp_path / "out" / "log=s-1"
    assert await said("export", "s", "--to", out) == f"s (stream): offsets 0 to 6 -> {folder}\n"
    assert await said("replay", "--stream", "s", "--into", "q", "--rate", "7") == (
        "7 messages from stream s into q, at most 7 a second: 1 s or more\n"
    )
    assert await said("stats", "--to", out) == (
        f"figures of 2 queues -> {out}/minutes and {out}/report.html\n"
    )
    assert await said("archive", "--to", out) == "no segment waits for archive\n"
    assert os.listdir(tmp_path) == []
    assert await house.drain("q") == []
