"""Reads a cluster's postmaster.pid, and ends a server that an earlier gateway left behind.

Answers for the file and the process that it names. It must not start a server. Whoever calls
`clear_away` holds the lock of the data directory, so no living gateway owns what is found.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.postgres.errors import EmbeddedPostgresError

logger = logging.getLogger(__name__)

_PID_LINE: Final = 0
_STATUS_LINE: Final = 7
_POLL_SECONDS: Final = 0.05
_ENDING_SECONDS: Final = 10.0
_FAST_SHUTDOWN_SECONDS: Final = 60.0
_IMMEDIATE_SHUTDOWN_SECONDS: Final = 20.0
_REAPING_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The server that a cluster's pid file names."""

    pid: int
    is_ready: bool


def read_postmaster(cluster: Path) -> Postmaster | None:
    """Reads the pid file; None where there is none, or one that is not written in full."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[_PID_LINE].strip().isdecimal():
        return None
    status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
    return Postmaster(int(lines[_PID_LINE]), status == "ready")


def clear_away(cluster: Path) -> None:
    """Ends any earlier server that stands in the way of a new one."""
    left = read_postmaster(cluster)
    if left is None:
        return
    name, state = _process(left.pid)
    if name == "postgres" and state != "Z":
        _end_orphan(left.pid, cluster)
        name, state = _process(left.pid)
    if state == "Z":
        # PostgreSQL takes a zombie for a living server. Somebody reaps it as a rule; where nobody
        # does (a container whose first process does not), it is dead all the same.
        _wait(lambda: not _exists(left.pid), _REAPING_SECONDS)
        _remove_pid_file(cluster)
    elif name not in ("", "postgres"):
        # The id belongs to another program by now, which is common in containers.
        _remove_pid_file(cluster)


def _end_orphan(pid: int, cluster: Path) -> None:
    """Ends a server whose gateway was killed. It is usually on its way out already: then just
    waits."""
    steps = (
        (None, _ENDING_SECONDS),
        (signal.SIGINT, _FAST_SHUTDOWN_SECONDS),
        (signal.SIGQUIT, _IMMEDIATE_SHUTDOWN_SECONDS),
    )
    for number, seconds in steps:
        if number is not None:
            logger.warning("an earlier PostgreSQL (pid %d) still runs: %s", pid, number.name)
            _signal(pid, number, cluster)
        if _wait(lambda: _process(pid)[1] in ("", "Z"), seconds):
            return
    raise EmbeddedPostgresError(
        f"an earlier PostgreSQL (pid {pid}) still runs in {cluster} and does not end: "
        f"stop it (kill -INT {pid}) and start again"
    )


def _signal(pid: int, number: signal.Signals, cluster: Path) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise EmbeddedPostgresError(
            f"{cluster} is served by a PostgreSQL of another user (pid {pid}): "
            "stop it, or choose another data_dir"
        ) from None


def _process(pid: int) -> tuple[str, str]:
    """Returns the name and the state of a process; empty where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, text[text.rindex(")") + 2]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _remove_pid_file(cluster: Path) -> None:
    (cluster / "postmaster.pid").unlink(missing_ok=True)
