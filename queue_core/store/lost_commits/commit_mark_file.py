"""The record of commits beside the database: a small file that says how far they had come, for the
next gateway of this machine, which remembers nothing.

It is written in place after each commit and before anybody is told of it: one write of a few
hundred bytes into the page cache, so a gateway that is killed leaves its last word. It reaches the
disk every few seconds: a machine that loses its power may leave an older one, which is known by the
machine's start. Without a folder to write to, the gateway does without, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from queue_core.store.lost_commits.commit_marks import Marks
from queue_core.store.lost_commits.ownership_history import Past, Place, Record

log = logging.getLogger(__name__)

SYNC_SECONDS: Final = 5.0
MARK_FILE_BYTES: Final = 2048  # within a page, and room for dozens of numbers
CHECKSUM_DIGITS: Final = 8
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def boot_id() -> str:
    """Names the machine's start; empty where the system does not."""
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


def find_record(folder: Path | None, past: Past) -> Record | None:
    """Finds what an earlier gateway wrote down of this database; if it did not, of the copy of it
    that was used last, so that a dump that was restored elsewhere is measured against its source.
    None: nobody wrote down anything."""
    if folder is None:
        return None
    own = _read(folder / _name(past.lineage, past.place))
    if own is not None:
        return own
    others = _records(folder, past.lineage)
    return max(others, key=lambda record: record.at, default=None)


def _records(folder: Path, lineage: str) -> Iterator[Record]:
    for path in folder.glob(f"commits-{lineage}-*.mark"):
        record = _read(path)
        if record is not None:
            yield record


def _name(lineage: str, place: Place) -> str:
    return f"commits-{lineage}-{place.server or 'unknown'}-{place.database}.mark"


def _read(path: Path) -> Record | None:
    """Reads one record. None: there is none, or nobody can read it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s, the record of commits, cannot be read: %s", path, error)
        return None
    text = data[CHECKSUM_DIGITS:].rstrip()
    try:
        if int(data[:CHECKSUM_DIGITS], 16) != zlib.crc32(text):
            raise ValueError("its checksum is wrong")
        return _decoder.decode(text)
    except (ValueError, msgspec.MsgspecError) as error:
        log.warning("%s, the record of commits, is damaged, and not used: %s", path, error)
        return None


class MarkFile:
    """The file of one ownership. `note` is called after each commit, and never fails."""

    def __init__(self, folder: Path | None, past: Past, epoch: int, started_at: datetime) -> None:
        place = past.place
        self._about = (past.lineage, place.server, place.database, place.timeline)
        self._ownership = (epoch, started_at.isoformat())
        self._boot = boot_id()
        self._path = None if folder is None else folder / _name(past.lineage, place)
        self._descriptor = -1
        self._is_synced = True
        self._next_sync = 0.0

    def open(self, marks: Marks) -> None:
        """Begins the record of this ownership, in place of what was there."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            self._give_up(error)
            return
        self.note(marks)
        self._sync()
        marks.on_commit = self.note

    def note(self, marks: Marks) -> None:
        """Writes down how far commits have come by now."""
        self._write(marks, is_over=False, is_told=False)

    def close(self, marks: Marks, *, is_told: bool = False) -> None:
        """Ends the record: the gateway stops in order, or (`is_told`) goes on without what was
        lost, and has said so."""
        marks.on_commit = None
        self._write(marks, is_over=True, is_told=is_told)
        self._sync()
        self.abandon()

    def abandon(self) -> None:
        """Closes the file and leaves the record in it as it is."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def keep_up(self) -> None:
        """Syncs the newest record to the disk every few seconds; in a thread, since it takes the
        disk's time."""
        if self._descriptor < 0 or self._is_synced or time.monotonic() < self._next_sync:
            return
        self._is_synced, self._next_sync = True, time.monotonic() + SYNC_SECONDS
        try:
            await asyncio.to_thread(os.fdatasync, self._descriptor)
        except OSError as error:
            self._give_up(error)

    def _sync(self) -> None:
        try:
            if self._descriptor >= 0:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._give_up(error)

    def _write(self, marks: Marks, *, is_over: bool, is_told: bool) -> None:
        if self._descriptor < 0:
            return
        record = Record(
            *self._about,
            *self._ownership,
            marks.number,
            marks.numbers,
            marks.messages,
            marks.at,
            self._boot,
            is_over,
            is_told,
        )
        text = _encoder.encode(record)
        data = b"%08x%b" % (zlib.crc32(text), text)
        self._is_synced = False
        try:
            os.pwrite(self._descriptor, data.ljust(MARK_FILE_BYTES), 0)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Removes the record after a failed write: an old one would look like the last word."""
        log.warning(
            "%s, the record of commits, cannot be kept: %s; should this gateway end together with "
            "its database, nobody can tell what a standby lacks. Way out: make data_dir writable, "
            "and start again",
            self._path,
            error,
        )
        self.abandon()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
