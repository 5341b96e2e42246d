"""LIKE: what matches, and how little a pattern can do against the gateway."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.addressing.selector_like import Like


def by_definition(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(by_definition(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and by_definition(text[1:], pattern[1:])


@given(st.text("ab", max_size=8), st.text("ab%_", max_size=7))
def test_like_agrees_with_its_definition(text: str, pattern: str) -> None:
    assert Like(pattern).matches(text) is by_definition(text, pattern)


@given(st.text("ab%_", max_size=8))
def test_what_is_escaped_stands_for_itself(text: str) -> None:
    escaped = "".join(f"!{character}" for character in text)
    assert Like(escaped, "!").matches(text)
    assert not Like(escaped, "!").matches(text + "a")


def test_an_escape_at_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="ends with its escape character"):
        Like("a!", "!")


class Counted(str):
    """Text that knows how often one of its characters was looked at."""

    looks = 0

    def __getitem__(self, place: object) -> str:
        Counted.looks += 1
        return super().__getitem__(place)  # type: ignore[index]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("%" + "a" * 500 + "b%", id="one long piece"),
        pytest.param("%" + "a_" * 250 + "b%", id="one long piece with any characters"),
        pytest.param("%a" * 500 + "b%", id="many pieces"),
        pytest.param("%a_" * 500 + "b%", id="many pieces with any characters"),
        pytest.param("%%%%_%%%_a_b%", id="nothing between"),
    ],
)
def test_no_character_is_looked_at_twice_however_the_pattern_is_made(pattern: str) -> None:
    text = Counted("a" * 5000)
    Counted.looks = 0
    assert not Like(pattern).matches(text)
    assert Counted.looks <= len(text)
