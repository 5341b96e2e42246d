"""Which way `howdah migrate --to` goes."""

from __future__ import annotations

import pytest

from gateway.commands.command import CommandError
from gateway.commands.migrate import is_way_back


@pytest.mark.parametrize(
    ("before", "target", "expected"),
    [
        ("base", "3", False),
        ("1", "3", False),
        ("3", "3", False),
        ("3", "1", True),
        ("3", "base", True),
        ("1", "1", True),
    ],
)
def test_a_migration_to_an_older_revision_is_the_way_back(
    before: str, target: str, expected: bool
) -> None:
    assert is_way_back(("base", "1", "2", "3"), before, target) is expected


def test_no_migration_stops_on_the_way_up() -> None:
    with pytest.raises(CommandError, match="the way up leads to 3 only"):
        is_way_back(("base", "1", "2", "3"), "1", "2")
