"""The memory of the machine: how much this process may use, and how freed memory goes back.

Answers for what the kernel, a container's limits and the C library say. It must not know what
memory is used for.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

# The rest of the memory is for Python's objects, PostgreSQL and other programs.
MEMORY_SHARE: Final = 0.4
FALLBACK_BYTES: Final = 1 << 30  # where nobody says how much memory there is
CGROUPS: Final = ("sys/fs/cgroup", "memory.max")  # version 2
OLD_CGROUPS: Final = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
LARGE_BLOCK_BYTES: Final = 512 * 1024  # larger than what one read of a socket brings
_M_MMAP_THRESHOLD: Final = -3


def available_bytes(root: Path = Path("/")) -> int | None:
    """Returns the machine's memory, or less where a container's limit says so; None if nobody
    says."""
    found = [*_machine_bytes(root), *_cgroup_bytes(root)]
    return min(found) if found else None


def default_mark(root: Path = Path("/")) -> int:
    """Returns the high-water mark of memory for a configuration that sets none."""
    available = available_bytes(root)
    return int((available or FALLBACK_BYTES / MEMORY_SHARE) * MEMORY_SHARE)


def _machine_bytes(root: Path) -> Iterator[int]:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                yield int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return


def _cgroup_bytes(root: Path) -> Iterator[int]:
    """Yields the memory limits of every cgroup that this process is in: each holds for those below
    it."""
    for base, name in (CGROUPS, OLD_CGROUPS):
        for folder in _folders(root):
            for place in (folder, *folder.parents):
                try:
                    yield int((root / base / place / name).read_text())
                except (OSError, ValueError):  # no such file, or `max`
                    continue


def _folders(root: Path) -> list[Path]:
    """Returns the folders of this process's cgroups; a container often sees its own at the top,
    whatever it is called."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [Path()]
    return [Path(line.split(":", 2)[2].lstrip("/")) for line in lines if line.count(":") >= 2]


def keep_large_blocks_apart() -> None:
    """Makes each large block of memory a mapping of its own, which goes back to the system when it
    is freed. glibc does so at first, and raises the threshold to 32 MiB with the first such block
    freed: from then on large bodies leave holes between small ones, which stay."""
    libc = _libc()
    if libc is not None and not libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES):
        logger.debug("the C library does not take a threshold for large blocks")


def give_back() -> None:
    """Gives free memory back to the system."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


def _libc() -> ctypes.CDLL | None:
    """Loads glibc; None where the C library is another, which has its own ways."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
