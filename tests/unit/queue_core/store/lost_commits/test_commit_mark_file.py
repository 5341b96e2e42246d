"""The record of commits beside the database: a killed gateway's last word, and nothing invented."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queue_core.store.lost_commits.commit_mark_file import MarkFile, boot_id, find_record
from queue_core.store.lost_commits.commit_marks import Extent, Marks
from queue_core.store.lost_commits.ownership_history import Past, Place

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAST = Past("a1", Place("7001", 16384, 1), (), Extent())

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.queue_core.store.lost_commits.test_commit_mark_file import committed
committed(Path(sys.argv[1]), 5)
os.kill(os.getpid(), signal.SIGKILL)
"""


def committed(folder: Path, count: int) -> tuple[MarkFile, Marks]:
    file, marks = MarkFile(folder, PAST, 3, NOON), Marks()
    file.open(marks)
    for _ in range(count):
        marks.committed(marks.begin(messages=10))
    return file, marks


def test_a_gateway_that_is_killed_leaves_its_last_commit(tmp_path: Path) -> None:
    root = Path(__file__).parents[5]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    record = find_record(tmp_path, PAST)
    assert record is not None
    assert (record.number, record.numbers, record.messages) == (5, [5], 50)
    assert (record.epoch, record.started_at) == (3, NOON.isoformat())
    assert record.boot == boot_id()
    assert not record.is_over


def test_a_gateway_that_stops_in_order_says_so(tmp_path: Path) -> None:
    file, marks = committed(tmp_path, 2)
    file.close(marks)
    record = find_record(tmp_path, PAST)
    assert record is not None
    assert (record.number, record.is_over, record.is_told) == (2, True, False)


def test_the_record_of_a_copy_is_used_where_there_is_none_of_the_database_itself(
    tmp_path: Path,
) -> None:
    committed(tmp_path, 2)
    restored = Past("a1", Place("7001", 20000, 1), (), Extent())
    record = find_record(tmp_path, restored)
    assert record is not None
    assert record.number == 2
    assert find_record(tmp_path, Past("b2", PAST.place, (), Extent())) is None
    file, marks = MarkFile(tmp_path, restored, 4, NOON), Marks()
    file.open(marks)
    own, original = find_record(tmp_path, restored), find_record(tmp_path, PAST)
    assert own is not None
    assert original is not None
    assert (own.epoch, original.epoch) == (4, 3)


def test_a_damaged_record_is_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    committed(tmp_path, 2)
    (path,) = tmp_path.glob("*.mark")
    path.write_bytes(path.read_bytes().replace(b'"number":2', b'"number":9'))
    with caplog.at_level(logging.WARNING):
        assert find_record(tmp_path, PAST) is None
    assert "is damaged" in caplog.text


def test_a_folder_that_cannot_be_used_is_said_and_commits_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        _, marks = committed(tmp_path / "file", 2)
    assert marks.number == 2
    assert "cannot be kept" in caplog.text
    assert find_record(None, PAST) is None


def test_a_record_that_cannot_be_written_any_more_is_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stands still would look like the last word."""
    _, marks = committed(tmp_path, 2)

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with caplog.at_level(logging.WARNING):
        marks.committed(marks.begin())
        marks.committed(marks.begin())
    assert list(tmp_path.glob("*.mark")) == []
    assert caplog.text.count("cannot be kept") == 1
