"""Each kind of exchange: what it lets through, and which arguments it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import InvalidArgument, InvalidTopic, NotEquivalent, UnsupportedArgument
from queue_core.message.value_identity import identity_of
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.routing.exchange_kinds import make_exchange
from queue_core.routing.exchanges import Exchange, ExchangeKind, ExchangeSpec
from queue_core.routing.topics import MAX_LEVELS

NO_HEADERS: Mapping[str, object] = {}
KEYS = st.lists(st.sampled_from(["a", "b", "", "$s", "+", "x/y"]), max_size=4).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "$s", "+", "x/y", "*", "#"]), max_size=4).map(
    ".".join
)
VALUES = st.sampled_from([None, 0, 1, 1.0, True, False, "1", b"1", [1], [True], {"k": 1}])
TABLES = st.dictionaries(st.sampled_from(["a", "b", "x-c"]), VALUES)
RULES = st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])


NEEDED: dict[str, dict[str, object]] = {  # arguments that a kind must have
    ExchangeKind.DELAYED: {"x-delayed-type": "direct"},
    ExchangeKind.DEDUPLICATION: {"x-cache-size": 10},
}


def exchange(kind: str, **bindings: str) -> Exchange[str]:
    made: Exchange[str] = make_exchange(ExchangeSpec.parse("x", kind, NEEDED.get(kind)))
    for queue, key in bindings.items():
        made.add(Binding("x", queue, key))
    return made


def queues(made: Exchange[str], key: str = "", headers: Mapping[str, object] = NO_HEADERS) -> str:
    return " ".join(sorted(str(binding.destination) for binding in made.match(key, headers)))


def words_fit(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return words_fit(pattern[1:], words) or (bool(words) and words_fit(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and words_fit(pattern[1:], words[1:])


def words(key: str) -> list[str]:
    return key.split(".") if key else []


def test_a_direct_exchange_goes_by_the_equal_key() -> None:
    made = exchange("direct", q1="a", q2="a", q3="b", q4="a.*")
    assert queues(made, "a") == "q1 q2"
    assert queues(made, "a.x") == ""
    made.remove(Binding("x", "q1", "a"))
    assert queues(made, "a") == "q2"


def test_a_fanout_exchange_takes_everything() -> None:
    made = exchange("fanout", q1="a", q2="")
    assert queues(made, "whatever") == "q1 q2"
    made.remove(Binding("x", "q2", ""))
    assert queues(made, "whatever") == "q1"


def test_a_topic_exchange_of_ones_own_treats_dollar_as_any_character() -> None:
    assert queues(exchange("topic", q1="#", q2="*.b", q3="$a.b"), "$a.b") == "q1 q2 q3"
    space: Exchange[str] = make_exchange(ExchangeSpec.parse("x", "topic"), hides_dollar=True)
    for queue, key in {"q1": "#", "q2": "*.b", "q3": "$a.b"}.items():
        space.add(Binding("x", queue, key))
    assert queues(space, "$a.b") == "q3"


def test_a_topic_exchange_tells_patterns_from_slash_filters() -> None:
    made = exchange("topic", pattern="a.*")
    made.add(Binding("x", "filter", "a/*", is_filter=True))
    made.add(Binding("x", "plus", "a/+", is_filter=True))
    assert queues(made, "a.b") == "pattern plus"
    assert queues(made, "a.*") == "filter pattern plus"


@given(st.dictionaries(st.integers(), PATTERNS, max_size=8), KEYS)
def test_a_topic_exchange_finds_what_the_words_say(bound: dict[int, str], key: str) -> None:
    made: Exchange[int] = make_exchange(ExchangeSpec.parse("x", "topic"))
    for queue, pattern in bound.items():
        made.add(Binding("x", queue, pattern))
    assert {binding.destination for binding in made.match(key, {})} == {
        queue for queue, pattern in bound.items() if words_fit(words(pattern), words(key))
    }


def test_a_topic_exchange_refuses_more_levels_than_it_may_have() -> None:
    made: Exchange[str] = make_exchange(ExchangeSpec.parse("x", "topic"))
    too_many = ".".join(["a"] * (MAX_LEVELS + 1))
    with pytest.raises(InvalidTopic):
        made.add(Binding("x", "q", too_many))
    assert made.is_unused
    with pytest.raises(InvalidTopic):
        made.match(too_many, {})


HEADERS = [
    pytest.param({}, {}, True, id="all of nothing"),
    pytest.param({"x-match": "any"}, {"a": 1}, False, id="any of nothing"),
    pytest.param({"a": 1}, {"a": 1, "b": 2}, True, id="all is the default"),
    pytest.param({"a": 1, "b": 2}, {"a": 1}, False, id="all needs each"),
    pytest.param({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True, id="any needs one"),
    pytest.param({"x-match": "any", "a": 1}, {"a": 2}, False, id="any needs an equal one"),
    pytest.param({"a": None}, {"a": "whatever"}, True, id="no value asks for presence"),
    pytest.param({"a": None}, {"a": None}, True, id="present without a value"),
    pytest.param({"a": None}, {}, False, id="not present"),
    pytest.param({"x-match": "any", "a": None}, {"a": 3}, True, id="any by presence"),
    pytest.param({"a": 1}, {"a": None}, False, id="a value asks for that value"),
    pytest.param({"a": 1}, {"a": True}, False, id="true is not one"),
    pytest.param({"a": 1}, {"a": 1.0}, True, id="numbers by their value"),
    pytest.param({"a": "1"}, {"a": 1}, False, id="text is not a number"),
    pytest.param({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, True, id="nested"),
    pytest.param({"a": [1]}, {"a": [True]}, False, id="nested, true is not one"),
    pytest.param({"x-a": 1}, {}, True, id="x- asks for nothing"),
    pytest.param({"x-match": "any", "x-a": 1}, {"x-a": 1}, False, id="any, x- asks for nothing"),
    pytest.param({"x-match": "all-with-x", "x-a": 1}, {}, False, id="all-with-x"),
    pytest.param({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True, id="all-with-x, there"),
    pytest.param({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True, id="any-with-x"),
    pytest.param({"x-match": "all-with-x"}, {}, True, id="x-match itself asks for nothing"),
]


@pytest.mark.parametrize(("arguments", "headers", "is_match"), HEADERS)
def test_a_headers_exchange_compares(
    arguments: Mapping[str, object], headers: Mapping[str, object], is_match: bool
) -> None:
    made = exchange("headers")
    made.add(Binding("x", "q", "", arguments))
    assert bool(queues(made, "", headers)) is is_match


@given(st.lists(st.tuples(RULES, TABLES), max_size=5), TABLES)
def test_a_headers_exchange_finds_what_the_tables_say(
    bound: list[tuple[str | None, dict[str, object]]], headers: dict[str, object]
) -> None:
    made: Exchange[int] = make_exchange(ExchangeSpec.parse("x", "headers"))
    expected = set()
    for queue, (rule, table) in enumerate(bound):
        made.add(Binding("x", queue, "", table if rule is None else {**table, "x-match": rule}))
        agreed = [
            name in headers and (value is None or same(value, headers[name]))
            for name, value in table.items()
            if rule in ("all-with-x", "any-with-x") or not name.startswith("x-")
        ]
        if any(agreed) if rule in ("any", "any-with-x") else all(agreed):
            expected.add(queue)
    assert {binding.destination for binding in made.match("", headers)} == expected


def same(one: object, other: object) -> bool:
    """Erlang's idea of equality, which is what users of headers exchanges know."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(one, bool) is isinstance(other, bool)


@pytest.mark.parametrize("rule", ["", "ALL", "none", 1, None, ["all"]])
def test_an_x_match_that_is_unknown_is_refused(rule: object) -> None:
    made = exchange("headers")
    with pytest.raises(InvalidArgument, match="all-with-x"):
        made.add(Binding("x", "q", "", {"x-match": rule}))
    assert made.is_unused


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_arguments_only_tell_bindings_apart_where_no_headers_are_read(kind: str) -> None:
    made = exchange(kind)
    given: list[dict[str, object]] = [{"x-match": "odd"}, {"x-owner": "svc"}, {"label": "plain"}]
    for arguments in given:
        made.add(Binding("x", "q", "", arguments))
    assert len(made.bindings) == 3
    assert [made.inert(each) for each in given] == [("x-match",), ("x-owner",), ()]
    assert exchange("headers").inert({"x-match": "all"}) == ()


@pytest.mark.parametrize("kind", list(ExchangeKind))
def test_an_exchange_is_unused_again_when_its_last_binding_is_gone(kind: ExchangeKind) -> None:
    made = exchange(kind, q1="1", q2="2")
    seen = []
    for queue, key in (("q1", "1"), ("q2", "2")):
        made.remove(Binding("x", queue, key))
        seen.append(made.is_unused)
    assert seen == [False, True]
    assert queues(made, "2") == ""


def test_bindings_are_one_when_all_but_their_options_are_equal() -> None:
    binding = Binding("x", "q", "k", {"a": 1}, options="one")
    assert binding == Binding("x", "q", "k", {"a": 1.0}, options="other")
    assert hash(binding) == hash(Binding("x", "q", "k", {"a": 1}))
    others = [
        Binding("y", "q", "k", {"a": 1}),
        Binding("x", "p", "k", {"a": 1}),
        Binding("x", ExchangeRef("q"), "k", {"a": 1}),
        Binding("x", "q", "l", {"a": 1}),
        Binding("x", "q", "k", {"a": True}),
        Binding("x", "q", "k"),
        Binding("x", "q", "k", {"a": 1}, is_filter=True),
        "q",
    ]
    assert binding not in others


def test_values_of_every_type_have_an_identity() -> None:
    now = datetime.now(UTC)
    values = [None, True, 1, "1", b"1", [1], {"a": 1}, Decimal(1), now]
    assert len({identity_of(value) for value in values}) == len(values)
    assert identity_of(bytearray(b"1")) == identity_of(b"1")


def test_a_kind_that_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="direct, fanout, topic, headers"):
        ExchangeSpec.parse("x", "x-delayed-message")


def test_the_alternate_exchange_is_the_only_argument_with_an_effect() -> None:
    spec = ExchangeSpec.parse("x", "topic", {"alternate-exchange": "y"})
    assert spec.alternate == "y"
    assert ExchangeSpec.parse("x", "topic").alternate is None
    kept = ExchangeSpec.parse("x", "topic", {"x-my": 1})
    assert (kept.arguments, kept.inert) == ({"x-my": 1}, ("x-my",))
    with pytest.raises(UnsupportedArgument, match="'x-my' has no effect here"):
        kept.require_effect()
    kept.check_equivalent(ExchangeSpec.parse("x", "topic", {"x-my": 2}))
    with pytest.raises(NotEquivalent, match="alternate-exchange"):
        kept.check_equivalent(spec)
    with pytest.raises(InvalidArgument, match="name of an exchange"):
        ExchangeSpec.parse("x", "topic", {"alternate-exchange": 1})


def test_a_name_has_at_most_255_bytes() -> None:
    ExchangeSpec.parse("x" * 255, "direct")
    with pytest.raises(InvalidArgument, match="255"):
        ExchangeSpec.parse("ä" * 128, "direct")


@pytest.mark.parametrize(
    "other",
    [
        ExchangeSpec.parse("x", "fanout"),
        ExchangeSpec.parse("x", "direct", durable=False),
        ExchangeSpec.parse("x", "direct", auto_delete=True),
        ExchangeSpec.parse("x", "direct", internal=True),
        ExchangeSpec.parse("x", "direct", {"alternate-exchange": "y"}),
    ],
)
def test_exchanges_are_equivalent_only_with_the_same_words(other: ExchangeSpec) -> None:
    spec = ExchangeSpec.parse("x", "direct")
    spec.check_equivalent(ExchangeSpec.parse("x", "direct", {}))
    with pytest.raises(NotEquivalent, match="declared again"):
        spec.check_equivalent(other)
