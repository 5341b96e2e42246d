"""Describes the machine of a run: processor, memory, system, and how long its disk takes to be
sure."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

FSYNCS: Final = 200


def machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {
        "processor": f"{len(names)} x {names[0] if names else 'unknown'}",
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
    }


def fsync_seconds() -> float:
    """Measures the median of a write of 8 KiB with fdatasync, where the brokers keep their
    files."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(FSYNCS):
            file.write(bytes(8192))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)
