"""Writes files that are there whole or not at all, also after the power failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from spark_etl.errors import EtlError


def write_new(path: Path, content: dict[str, Any]) -> None:
    """Writes all of the file or nothing, and never over another one."""
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    sync(fresh)
    try:
        os.link(fresh, path)
    finally:
        fresh.unlink()
    sync(path.parent)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EtlError(f"{path} cannot be read: {error}") from error
    return content
