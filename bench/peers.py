"""Finds the other brokers, and installs those that are missing.

Debian's packages come by apt-get when we are root. Python's go into an environment of their own
under .cache, so that the gateway's stays as it is locked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = Path(__file__).resolve().parent.parent / ".cache" / "bench-peers"
PYTHON_PEERS: Final = {"amqtt": "amqtt==0.12.1", "pgqueuer": "pgqueuer[asyncpg]==1.6.0"}
INSTALL_SECONDS: Final = 600


class Missing(Exception):
    """The peer is not installed here; says what would install it."""


def debian_program(name: str, package: str, *more: Path) -> str:
    """Returns the path of a program, its package installed if need be. Raises Missing."""
    found = _find(name, *more)
    if found is None:
        _apt_install(package)
        found = _find(name, *more)
    if found is None:
        raise Missing(f"{package} has no {name}")
    return found


def _find(name: str, *more: Path) -> str | None:
    for path in more:
        if path.exists():
            return str(path)
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/lib/rabbitmq/bin")


def _apt_install(package: str) -> None:
    command = f"apt-get install -y {package}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"not installed here: as root, {command}")
    print(f"installing {package} ...", file=sys.stderr, flush=True)
    # RUNLEVEL keeps the package from starting a service of its own beside ours.
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    done = subprocess.run(
        command.split(), env=environ, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    if done.returncode:
        raise Missing(f"{command} failed: {done.stderr.strip()[-300:]}")


def debian_version(package: str) -> str:
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout or "unknown"


def python_peer(name: str) -> Path:
    """Returns the interpreter of the environment that has the package. Raises Missing."""
    interpreter = ENVIRONMENT / "bin" / "python"
    if not interpreter.exists():
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)], name)
    if not _has(interpreter, name):
        print(f"installing {PYTHON_PEERS[name]} ...", file=sys.stderr, flush=True)
        pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, PYTHON_PEERS[name]], name)
    return interpreter


def _has(interpreter: Path, name: str) -> bool:
    command = [str(interpreter), "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        raise Missing(f"{name} could not be installed: {done.stderr.strip()[-300:]}")
