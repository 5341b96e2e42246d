"""The map in docs/architecture.md has every folder of the gateway's code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_map_has_every_folder_of_core_adapters_and_gateway_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## The map\n")[2].partition("\n## ")[0]
    mapped = re.findall(r"^\| `([\w/]+)` \|", section, re.MULTILINE)
    folders = [
        str(path.parent.relative_to(ROOT))
        for top in ("queue_core", "protocols", "gateway")
        for path in (ROOT / top).rglob("__init__.py")
    ]
    assert sorted(mapped) == sorted(folders)
