"""The page of the standards' statements names tests that exist, and leaves no statement open in
silence."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "conformance" / "mqtt.md"
EXCUSES = ("binds the client", "does not apply: ", "as [MQTT-")


def test_every_test_on_the_page_exists() -> None:
    sources = [
        *ROOT.glob("tests/unit/protocols/mqtt/**/*.py"),
        *ROOT.glob("tests/protocol/mqtt/*.py"),
    ]
    known = {name for path in sources for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert named - known == set()


def test_every_statement_is_held_or_excused() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| [MQTT-")]
    assert len(rows) > 300
    for row in rows:
        holder = row.rstrip(" |").rpartition("| ")[2]
        assert holder.startswith(("`test_", *EXCUSES)), row


def test_what_3_1_1_shares_with_5_is_on_the_page() -> None:
    text = PAGE.read_text()
    newer, _, older = text.partition("## MQTT 3.1.1")
    for number in re.findall(r"as \[MQTT-([\d.-]+)\] of 5.0", older):
        assert f"| [MQTT-{number}] |" in newer, number
