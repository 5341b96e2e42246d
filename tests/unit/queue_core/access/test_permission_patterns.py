"""Patterns of permissions: what they match, and for how long they may look."""

from __future__ import annotations

import logging
import os
import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.permission_patterns import compiled, matches


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (r"^(\w+\.?)*$", "a" * 60 + "!"),
        (r"(a|a)*b", "a" * 60),
        (r"^(.*,)*x$", "," * 60),
    ],
)
def test_a_name_that_a_pattern_would_look_at_for_ever_is_refused_and_told(
    text: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert not matches(compiled(text), name)
    assert "takes too long" in caplog.text
    assert text in caplog.text
    assert matches(compiled(text), "a.b,x"[2:] if "," in text else "ab")


def test_the_time_of_a_match_that_is_over_ends_nothing_else() -> None:
    assert matches(compiled("^a"), "ab")
    os.kill(os.getpid(), signal.SIGVTALRM)
    assert not matches(compiled("^a"), "b")


@pytest.mark.parametrize("text", [".*", ".*a", ".*.*a", ".*?a", ".*|a", ".*a|b", ".*+a", ".*\\.a$"])
@given(st.text("ab.\n|", max_size=8))
def test_what_is_looked_for_anywhere_is_found_as_before(text: str, name: str) -> None:
    try:
        expected = re.compile(text).search(name) is not None
    except re.error:
        with pytest.raises(re.error):
            compiled(text)
        return
    assert matches(compiled(text), name) is expected


def test_a_long_name_is_not_looked_at_from_each_of_its_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not matches(compiled(r".*\.temperature$"), "a" * 65_535)
    assert caplog.text == ""
