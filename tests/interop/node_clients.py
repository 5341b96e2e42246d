"""JavaScript clients for the interop tests: installed once, as their lock file pins them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCES: Final = Path(__file__).with_name("node")
HOME: Final = Path(__file__).parents[2] / ".cache" / "node-clients"
INSTALL_SECONDS: Final = 180
RUN_SECONDS: Final = 60


def installed() -> Path:
    """The folder with the scripts and the packages that they need."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed (apt-get install npm)")
    HOME.mkdir(parents=True, exist_ok=True)
    lock, stamp = SOURCES / "package-lock.json", HOME / "installed"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, HOME)
        done = subprocess.run(
            [npm, "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=HOME,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm cannot install the JavaScript clients: {done.stderr[-300:]}")
        stamp.write_bytes(lock.read_bytes())
    return HOME


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one of the scripts, beside the packages."""
    home = installed()
    shutil.copy(SOURCES / name, home)
    return subprocess.run(
        ["node", name, *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
