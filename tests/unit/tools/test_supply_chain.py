"""The bill of materials, and the audit of what the locks pin."""

from __future__ import annotations

import re

import pytest

from tools.audit import FINE, UNKNOWN, VULNERABLE, judge
from tools.sbom import LOCK, bill

DOCUMENT = bill(LOCK.read_text(), "1.2.3")


def test_every_pin_of_the_lock_is_a_component_with_its_hashes() -> None:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", LOCK.read_text(), re.MULTILINE)
    components = DOCUMENT["components"]
    assert {(each["name"], each["version"]) for each in components} == {
        (name.lower(), version) for name, version in pins
    }
    count = LOCK.read_text().count("--hash=sha256:")
    assert sum(len(each["hashes"]) for each in components) == count


def test_every_component_is_needed_by_somebody() -> None:
    needed = {ref for each in DOCUMENT["dependencies"] for ref in each["dependsOn"]}
    assert needed == {each["bom-ref"] for each in DOCUMENT["components"]}
    assert DOCUMENT["dependencies"][0]["ref"] == "howdah"


def test_the_same_lock_gives_the_same_document() -> None:
    assert bill(LOCK.read_text(), "1.2.3") == DOCUMENT


HOLE = {"id": "PYSEC-1", "fix_versions": ["2"]}


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], FINE, "1 of 1 packages were looked up"),
        ([{"name": "a", "version": "1", "vulns": [HOLE]}], VULNERABLE, "a 1: PYSEC-1, mended in 2"),
        ([{"name": "a", "skip_reason": "not found"}], UNKNOWN, "NOT AUDITED"),
        ([], UNKNOWN, "NOT AUDITED"),
    ],
)
def test_what_could_not_be_looked_up_is_not_called_fine(
    report: list[dict[str, object]], code: int, words: str
) -> None:
    verdict = judge({"dependencies": report})
    assert verdict.code == code
    assert any(words in line for line in verdict.lines)
