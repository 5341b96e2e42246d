"""docs/semantics/queues.md names every argument of a queue, and the kinds that it is for."""

from __future__ import annotations

import re
from pathlib import Path

from queue_core.queues.spec import INERT, RULES, QueueKind

PAGE = Path(__file__).parents[4] / "docs" / "semantics" / "queues.md"
ROW = re.compile(r"^\| (`x-.+?`) \| (.*?) \| ", re.MULTILINE)
INERT_ROW = re.compile(r"^\| (`x-[^|]+`) \| [^|]* \|$", re.MULTILINE)


def _kinds(cell: str) -> frozenset[QueueKind]:
    return frozenset(QueueKind) if cell == "all" else frozenset(map(QueueKind, cell.split(", ")))


def test_the_page_of_queues_has_every_argument_and_its_kinds() -> None:
    found = {
        argument: cell
        for names, cell in ROW.findall(PAGE.read_text(encoding="utf-8"))
        for argument in re.findall(r"`(.+?)`", names)
    }
    del found["x-queue-type"]  # which says the kind
    assert {name: _kinds(cell) for name, cell in found.items()} == {
        name: rule.kinds for name, rule in RULES.items()
    }


def test_the_page_of_queues_has_every_argument_that_does_nothing() -> None:
    rows = INERT_ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert {name for row in rows for name in re.findall(r"`(.+?)`", row)} == set(INERT)
