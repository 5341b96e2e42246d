"""The map of the core in docs/architecture.md has every module, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "queue_core"


def test_the_map_of_the_core_has_every_module_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page.partition("## Who knows what")[2], re.MULTILINE)
    mapped = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    modules = {
        str(path.relative_to(CORE).with_suffix(""))
        for path in CORE.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert mapped == modules
