"""The data directory and its lock: one gateway at a time holds it.

Answers for the folder and its lock. It must not know what is kept inside.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gateway.postgres.errors import DataDirInUse, EmbeddedPostgresError

_LOCK_NAME = "gateway.lock"


class DataDirLock:
    """An flock on a file in the folder: the kernel lets go of it however the holder ends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._descriptor = -1

    def acquire(self) -> None:
        """Takes the folder, or says who has it."""
        path = self._data_dir / _LOCK_NAME
        # Not inherited by children: a server that outlives us must not hold the lock for us.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirInUse(
                f"data_dir {self._data_dir} is in use by another gateway (pid {holder}): "
                "stop it or choose another data_dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(data_dir: Path) -> bool:
    """Tells if somebody holds the folder now; asking takes nothing away, and makes no file."""
    try:
        descriptor = os.open(data_dir / _LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def create_data_dir(data_dir: Path) -> None:
    """Makes the folder if it is not there; one that exists keeps its permissions."""
    if data_dir.is_dir():
        return
    try:
        data_dir.mkdir(parents=True)
        # Root's server runs as somebody else, who must pass through; secrets inside are 0600.
        data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise unusable(data_dir, error) from error


def unusable(data_dir: Path, error: OSError) -> EmbeddedPostgresError:
    """Explains an error of the file system with the setting that leads out of it."""
    reason = error.strerror or str(error)
    way_out = "make room or give this user access to it, or choose another data_dir"
    if isinstance(error, FileExistsError | NotADirectoryError):
        way_out = "a folder is needed; choose another data_dir"
    return EmbeddedPostgresError(
        f"data_dir {data_dir} cannot be used: {reason} ({error.filename or data_dir}): {way_out}"
    )
