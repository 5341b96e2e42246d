"""The revisions of the schema are one line: with two heads no database could be migrated."""

from __future__ import annotations

from pathlib import Path

from alembic.script import ScriptDirectory

FOLDER = Path(__file__).parents[2] / "migrations"


def test_the_revisions_are_one_line() -> None:
    scripts = ScriptDirectory(str(FOLDER))
    assert len(scripts.get_heads()) == 1
    assert all(not script.is_branch_point for script in scripts.walk_revisions())


def test_each_revision_begins_with_a_number_of_its_own() -> None:
    names = [script.revision for script in ScriptDirectory(str(FOLDER)).walk_revisions()]
    numbers = [name.split("_")[0] for name in names]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == len(numbers)
