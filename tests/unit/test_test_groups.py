"""`make test` runs folders in groups: none may be forgotten."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_of_tests_is_in_one_group_of_the_whole_run() -> None:
    words = (ROOT / "tools" / "test.sh").read_text().split()
    folders = {path.parts[0] for path in _test_files()}
    assert {folder: words.count(f"tests/{folder}") for folder in folders} == dict.fromkeys(
        folders, 1
    )


def _test_files() -> list[Path]:
    return [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
