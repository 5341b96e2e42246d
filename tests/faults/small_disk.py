"""A disk of a few megabytes that a test can fill, and empty again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STEP = 256 * 1024


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (STEP, 4096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A tmpfs mounted there, for as long as the block takes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # lazily: a PostgreSQL whose gateway was killed may still be on its way out
        subprocess.run(["umount", "--lazy", str(path)], check=True)
