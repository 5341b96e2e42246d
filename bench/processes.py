"""The cost of processes as the kernel counts it: CPU time and resident memory, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """Returns user and system time of a process; with `children` of all below it, ended ones
    too."""
    fields = _stat(pid)
    ticks = int(fields[11]) + int(fields[12])
    if children:
        ticks += int(fields[13]) + int(fields[14])
    total = ticks / _TICK
    if children:
        total += sum(_cpu_if_alive(child) for child in children_of(pid))
    return total


def _cpu_if_alive(pid: int) -> float:
    try:
        return cpu_seconds(pid, children=True)
    except (FileNotFoundError, ProcessLookupError):  # ended meanwhile: its parent counts it
        return 0.0


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def tree_of(pid: int) -> Iterator[int]:
    """Yields a process and all below it."""
    yield pid
    try:
        children = children_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from tree_of(child)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def resident_bytes(pid: int | None = None) -> int:
    pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(pid: int) -> int:
    """Returns the resident memory in which shared pages count once, not once for each process that
    has them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except PermissionError:
        return resident_bytes(pid)
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
