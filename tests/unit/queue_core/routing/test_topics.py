"""The two forms of a topic, what wildcards mean in each, and what docs/semantics/topics.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import InvalidTopic
from queue_core.message.topic_forms import dotted, slashed
from queue_core.routing.topics import (
    MANY,
    MAX_BYTES,
    MAX_LEVELS,
    ONE,
    filter_tokens,
    levels_of,
    pattern_tokens,
)
from queue_core.routing.trie import Trie

# Pieces that the mapping treats specially, so that hypothesis puts them side by side.
PIECES = st.sampled_from([".", "/", "+", "#", "*", "\0", "%", "25", "2B", "23", "00", "$", "empty"])
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=8).map("".join)
NAMES = TEXTS.filter(lambda text: text != "" and not re.search(r"[+#\0]", text))

FORMS = [
    pytest.param("a/b/c", "a.b.c", id="levels are words"),
    pytest.param("sensor/v1.2/temp", "sensor.v1/2.temp", id="a dot inside a level"),
    pytest.param("/a//b/", ".a..b.", id="empty levels"),
    pytest.param("*", "*", id="a star is no wildcard in a topic"),
    pytest.param("a%2Bb", "a+b", id="a plus"),
    pytest.param("a/%23", "a.#", id="a hash"),
    pytest.param("%00", "\0", id="a NUL"),
    pytest.param("a%252Bb", "a%2Bb", id="what looks escaped"),
    pytest.param("a%25252Bb", "a%252Bb", id="what looks escaped twice"),
    pytest.param("100%", "100%", id="a percent sign alone"),
    pytest.param("%2b", "%2b", id="small letters are no escape"),
    pytest.param("%25", "%25", id="an escaped percent sign alone is no escape"),
    pytest.param("$empty", "", id="no level at all"),
    pytest.param("$$empty", "$empty", id="what looks like no level"),
    pytest.param("$SYS/x", "$SYS.x", id="dollar"),
]


@pytest.mark.parametrize(("topic", "key"), FORMS)
def test_each_form_is_written_from_the_other(topic: str, key: str) -> None:
    assert dotted(topic) == key
    assert slashed(key) == topic


@given(TEXTS)
def test_every_key_survives_the_way_to_the_slash_form_and_back(key: str) -> None:
    assert dotted(slashed(key)) == key


@given(NAMES)
def test_every_slash_name_survives_the_way_to_the_dot_form_and_back(topic: str) -> None:
    assert slashed(dotted(topic)) == topic


@given(TEXTS)
def test_the_slash_form_of_any_key_is_a_valid_name(key: str) -> None:
    levels_of(slashed(key), max_levels=1000)


@given(TEXTS)
def test_words_and_levels_are_as_many(key: str) -> None:
    assert len(levels_of(slashed(key))) == (len(key.split(".")) if key else 0)


@given(TEXTS)
def test_names_that_need_no_escape_only_trade_dots_for_slashes(key: str) -> None:
    if not re.search(r"^$|^\$+empty$|[+#\0]|%(25)*(2B|23|00)", key):
        assert slashed(key) == key.translate({ord("."): "/", ord("/"): "."})


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param("", id="empty"),
        pytest.param("a/+", id="one-level wildcard"),
        pytest.param("a/b#", id="hash"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("a" * (MAX_BYTES + 1), id="too long"),
        pytest.param("ä" * (MAX_BYTES // 2 + 1), id="too long in bytes"),
        pytest.param("/" * MAX_LEVELS, id="too many levels"),
    ],
)
def test_a_name_that_breaks_the_rules_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopic):
        levels_of(topic)


def test_a_name_may_be_as_long_and_as_deep_as_the_limits_say() -> None:
    assert levels_of("a" * MAX_BYTES) == ["a" * MAX_BYTES]
    assert len(levels_of("/" * (MAX_LEVELS - 1))) == MAX_LEVELS
    assert levels_of("a/b/c", max_levels=3) == ["a", "b", "c"]
    with pytest.raises(InvalidTopic, match="3 levels; 2 is the most"):
        levels_of("a/b/c", max_levels=2)


@pytest.mark.parametrize(
    ("topic_filter", "tokens"),
    [
        pytest.param("a/b", ("a", "b"), id="literal"),
        pytest.param("+/b/#", (ONE, "b", MANY), id="wildcards"),
        pytest.param("#", (MANY,), id="everything"),
        pytest.param("a/*", ("a", "*"), id="a star is a level"),
        pytest.param("/", ("", ""), id="empty levels"),
        pytest.param("$empty", (), id="no level"),
    ],
)
def test_a_slash_filter_means(topic_filter: str, tokens: tuple[str, ...]) -> None:
    assert filter_tokens(topic_filter) == tokens


@pytest.mark.parametrize(
    "topic_filter", ["", "a+", "+a/b", "a/#/b", "#/#", "a/b#", "##", "a\0", "/" * MAX_LEVELS]
)
def test_a_slash_filter_that_breaks_the_rules_is_refused(topic_filter: str) -> None:
    with pytest.raises(InvalidTopic):
        filter_tokens(topic_filter)


@pytest.mark.parametrize(
    ("pattern", "tokens"),
    [
        pytest.param("a.b", ("a", "b"), id="literal"),
        pytest.param("*.b.#", (ONE, "b", MANY), id="wildcards"),
        pytest.param("a.#.b", ("a", MANY, "b"), id="many in the middle"),
        pytest.param("#.#.#", (MANY,), id="many times many is many"),
        pytest.param("a.+", ("a", "%2B"), id="a plus is a word"),
        pytest.param("*.+", (ONE, "%2B"), id="a plus is a word beside a wildcard"),
        pytest.param("a#.*b", ("a%23", "*b"), id="wildcards stand alone"),
        pytest.param("x/y.*", ("x.y", ONE), id="a slash inside a word"),
        pytest.param("", (), id="no word"),
        pytest.param("$empty", ("$$empty",), id="what looks like no word"),
    ],
)
def test_a_dot_pattern_means(pattern: str, tokens: tuple[str, ...]) -> None:
    assert pattern_tokens(pattern) == tokens


@pytest.mark.parametrize("pattern", ["." * MAX_LEVELS, ".*" * MAX_LEVELS])
def test_a_dot_pattern_has_a_limit_of_levels_too(pattern: str) -> None:
    with pytest.raises(InvalidTopic, match="levels"):
        pattern_tokens(pattern)


@given(TEXTS)
def test_a_pattern_without_wildcards_means_the_key_itself(key: str) -> None:
    if not {"*", "#"} & set(key.split(".")):
        assert list(pattern_tokens(key)) == levels_of(slashed(key))


def test_an_error_shows_the_topic_in_short_and_in_print() -> None:
    with pytest.raises(InvalidTopic) as error:
        levels_of("line\n" * 1000 + "\0")
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


DOCUMENT = Path(__file__).parents[4] / "docs" / "semantics" / "topics.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below that heading, row by row."""
    section = DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(lines) > 5, f"no examples below {heading}"
    return [[plain(cell) for cell in line.strip("|").split("|")] for line in lines[2:]]


def plain(cell: str) -> str:
    return cell.strip(" `").replace("(empty)", "").replace("\\0", "\0")


@pytest.mark.parametrize("heading", ["Two forms of one topic", "What a slash name cannot hold"])
def test_the_document_tells_the_forms_as_they_are(heading: str) -> None:
    for topic, key in rows(heading):
        assert (dotted(topic), slashed(key)) == (key, topic)


def test_the_document_tells_the_wildcards_as_they_are() -> None:
    for side, written, matched, other in rows("Wildcards by example"):
        trie: Trie[str] = Trie(hides_dollar=True)
        if side == "AMQP":
            trie.add(pattern_tokens(written), written)
            matched, other = slashed(matched), slashed(other)
        else:
            trie.add(filter_tokens(written), written)
        assert trie.match(levels_of(matched)) == [written], (written, matched)
        assert trie.match(levels_of(other)) == [], (written, other)
