"""The trie against a matcher that is too simple to be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.routing.topics import MANY, ONE, filter_tokens, levels_of, pattern_tokens
from queue_core.routing.trie import MAX_IN_TUPLE, Trie

LEVELS = st.lists(st.sampled_from(["a", "b", "", "$s", "*"]), max_size=5)
TOKENS = st.lists(st.sampled_from(["a", "b", "", "$s", "*", ONE, MANY]), max_size=5).map(tuple)
PAIRS = st.tuples(TOKENS, st.integers(0, 3))


def fits(tokens: Sequence[str], levels: Sequence[str]) -> bool:
    if not tokens:
        return not levels
    if tokens[0] == MANY:
        return any(fits(tokens[1:], levels[start:]) for start in range(len(levels) + 1))
    return bool(levels) and tokens[0] in (ONE, levels[0]) and fits(tokens[1:], levels[1:])


def hidden(tokens: Sequence[str], levels: Sequence[str]) -> bool:
    return bool(levels) and levels[0].startswith("$") and tokens[:1] in ((ONE,), (MANY,))


@given(st.lists(PAIRS, max_size=30), st.lists(PAIRS, max_size=10), LEVELS, st.booleans())
def test_it_finds_what_the_simple_matcher_finds(
    added: list[tuple[tuple[str, ...], int]],
    removed: list[tuple[tuple[str, ...], int]],
    levels: list[str],
    hides_dollar: bool,
) -> None:
    trie: Trie[int] = Trie(hides_dollar=hides_dollar)
    model: set[tuple[tuple[str, ...], int]] = set()
    for pair in added:
        assert trie.add(*pair) is (pair not in model)
        model.add(pair)
    for pair in removed + added[::3]:
        assert trie.remove(*pair) is (pair in model)
        model.discard(pair)
    assert len(trie) == len(model)
    assert Counter(trie.match(levels)) == Counter(
        entry
        for tokens, entry in model
        if fits(tokens, levels) and not (hides_dollar and hidden(tokens, levels))
    )


@given(st.lists(PAIRS, max_size=30).flatmap(lambda pairs: st.permutations(pairs)))
def test_nothing_is_left_of_what_was_removed(pairs: list[tuple[tuple[str, ...], int]]) -> None:
    trie: Trie[int] = Trie()
    for pair in sorted(pairs):
        trie.add(*pair)
    for pair in pairs:
        trie.remove(*pair)
    assert len(trie) == 0
    root = trie._root  # not even the way to where something was is left
    assert not root.has_next()
    assert not root.entries


@pytest.mark.parametrize(
    ("topic_filter", "matched", "others"),
    [
        pytest.param("a/#", ["a", "a/", "a/b", "a/b/c"], ["", "ab", "b/a"], id="parent too"),
        pytest.param("a/+", ["a/", "a/b"], ["a", "a/b/c"], id="one level, also an empty one"),
        pytest.param("+/+", ["/", "a/b"], ["a", "$a/b"], id="[MQTT-4.7.2-1] one"),
        pytest.param("#", ["a", "/", "a/b"], ["$SYS", "$SYS/x"], id="[MQTT-4.7.2-1] many"),
        pytest.param("$SYS/#", ["$SYS", "$SYS/x/y"], ["SYS", "$SYSx"], id="dollar by its name"),
        pytest.param("$SYS/+/#", ["$SYS/x", "$SYS/x/y"], ["$SYS"], id="wildcards after dollar"),
    ],
)
def test_slash_filters(topic_filter: str, matched: list[str], others: list[str]) -> None:
    trie: Trie[str] = Trie(hides_dollar=True)
    trie.add(filter_tokens(topic_filter), topic_filter)
    assert all(trie.match(levels_of(topic)) == [topic_filter] for topic in matched)
    assert not any(trie.match(topic.split("/")) for topic in others)


def test_the_empty_key_is_matched_by_many_and_not_by_one() -> None:
    trie: Trie[str] = Trie(hides_dollar=True)
    for pattern in ("#", "*", "", "#.*", "*.#"):
        trie.add(pattern_tokens(pattern), pattern)
    trie.add((MANY, MANY), "many times many")
    assert sorted(trie.match([])) == ["", "#", "many times many"]


def test_an_entry_reached_in_many_ways_is_found_once() -> None:
    trie: Trie[str] = Trie()
    trie.add(pattern_tokens("#.a.#.a.#"), "x")
    assert trie.match(["a"] * 6) == ["x"]


def test_no_pattern_makes_matching_explode() -> None:
    trie: Trie[str] = Trie()
    trie.add(pattern_tokens("#.a." * 100 + "b"), "never")
    trie.add(pattern_tokens("#.a." * 100 + "#"), "once")
    assert trie.match(["a"] * 256) == ["once"]


def test_a_filter_that_thousands_share_keeps_them_in_order() -> None:
    trie: Trie[int] = Trie()
    for entry in range(5000):
        trie.add(("a",), entry)
    assert trie.match(["a"]) == list(range(5000))
    for entry in range(4998):
        trie.remove(("a",), entry)
    assert trie.match(["a"]) == [4998, 4999]
    assert not trie.add(("a",), 4998)
    for entry in range(MAX_IN_TUPLE):
        trie.add(("a",), entry)
    assert trie.match(["a"]) == [4998, 4999, *range(MAX_IN_TUPLE)]
