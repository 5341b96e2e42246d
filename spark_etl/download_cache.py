"""The cache of downloads: below the checkout, or where HOWDAH_CACHE_DIR says."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "HOWDAH_CACHE_DIR"


def cache_dir() -> Path:
    """Returns the folder, which may not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE, "")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[1] / ".cache"
