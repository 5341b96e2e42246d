"""JMS selectors: what matches, what is unknown, what is no selector at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.addressing.selector import (
    LONGEST_SEARCHED,
    LONGEST_TEXT,
    MAX_DEPTH,
    MAX_SEARCHES,
    SelectorError,
    compile_selector,
)
from queue_core.message.message import Message, Properties, Value

FACTS: dict[str, Any] = {
    "colour": "red",
    "size": 5,
    "weight": 2.5,
    "is_new": True,
    "name": "it's",
    "path": "100%_done",
    "négé": 1,
    "$id": 7,
}
TRUE = [
    "colour = 'red'",
    "colour <> 'blue'",
    "size > 4 AND size < 6",
    "size >= 5 and size <= 5",
    "weight * 2 = size",
    "size / 2 = 2",
    "-size < 0",
    "+size = 5",
    "- - size = 5",
    "size BETWEEN 5 AND 6",
    "size NOT BETWEEN 6 AND 9",
    "colour IN ('red', 'green')",
    "colour NOT IN ('blue')",
    "colour LIKE 'r%'",
    "colour LIKE '_e_'",
    "colour NOT LIKE 'b%'",
    "path LIKE '100\\%\\_%' ESCAPE '\\'",
    "missing IS NULL",
    "colour IS NOT NULL",
    "NOT missing = 1 OR colour = 'red'",
    "is_new",
    "is_new = TRUE",
    "NOT (is_new = FALSE)",
    "name = 'it''s'",
    "size = 0x5",
    "size = 05",
    "size = 5L",
    "size = 5.0",
    "weight = 25E-1",
    "weight = 2.5f",
    "colour = 'blue' OR (size = 5 AND weight > 1)",
    "négé = 1",
    "$id = 7",
    "\"colour\" = 'red'",
    "size + 1 * 2 = 7",
    "",
    "  ",
]
NOT_TRUE = [
    "colour = 'blue'",
    "missing = 1",
    "missing <> 1",
    "NOT missing = 1",
    "missing = 1 AND colour = 'red'",
    "missing LIKE '%'",
    "missing IN ('a')",
    "missing BETWEEN 1 AND 2",
    "colour > 'a'",
    "colour = 5",
    "colour <> 5",
    "size = '5'",
    "is_new = 1",
    "size + colour = 5",
    "size / 0 = 1",
    "size",
    "colour",
    "is_new > FALSE",
    "9E999 * 0 = 1",
]
BROKEN = [
    "colour = ",
    "= 'red'",
    "colour 'red'",
    "(colour = 'red'",
    "colour = 'red')",
    "colour IN ()",
    "colour IN (1)",
    "colour LIKE red",
    "colour LIKE 'a' ESCAPE 'ab'",
    "colour LIKE 'a!' ESCAPE '!'",
    "size BETWEEN 1",
    "size NOT 5",
    "colour IS 5",
    "colour = 'unclosed",
    "colour ; size",
    "AND",
    "size = 5 OR",
    "(" * (MAX_DEPTH + 5) + "size = 1" + ")" * (MAX_DEPTH + 5),
    "x" * 20_000,
]


@pytest.mark.parametrize("text", TRUE)
def test_it_matches(text: str) -> None:
    assert compile_selector(text).evaluate(FACTS.get) is True


@pytest.mark.parametrize("text", NOT_TRUE)
def test_what_is_false_or_unknown_does_not_match(text: str) -> None:
    assert compile_selector(text).evaluate(FACTS.get) is not True


LONG = [
    " OR ".join(["size = 6"] * 600 + ["size = 5"]),
    " AND ".join(["size = 5"] * 600),
    "+".join(["1"] * 2000) + " = 2000",
    "*".join(["1"] * 2000) + " = 1",
    "(" * (MAX_DEPTH - 1) + "NOT -size BETWEEN 1 AND 2" + ")" * (MAX_DEPTH - 1),
]


@pytest.mark.parametrize("text", LONG)
def test_as_many_terms_as_fit_are_evaluated(text: str) -> None:
    assert compile_selector(text).evaluate(FACTS.get) is True


def test_each_part_of_a_nest_is_evaluated_once() -> None:
    depth, asked = 24, 0

    def lookup(name: str) -> object:
        nonlocal asked
        asked += 1
        return None

    nest = "(" * depth + "missing BETWEEN 1 AND 2" + ") BETWEEN 1 AND 2" * depth
    assert compile_selector(nest).evaluate(lookup) is not True
    assert asked == 1


def test_like_does_not_look_through_texts_without_end() -> None:
    searched = compile_selector("a LIKE '%x_z%'")
    assert searched.evaluate({"a": "-" * 1000 + "xyz"}.get) is True
    assert searched.evaluate({"a": "-" * LONGEST_SEARCHED + "xyz"}.get) is not True
    plain = compile_selector("a LIKE '%xyz'")
    assert plain.evaluate({"a": "-" * LONGEST_SEARCHED + "xyz"}.get) is True
    assert plain.evaluate({"a": "-" * LONGEST_TEXT + "xyz"}.get) is not True
    with pytest.raises(SelectorError, match="LIKE"):
        compile_selector(" OR ".join(["a LIKE '%x_z%'"] * 17))


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        compile_selector(text)


def test_names_of_jms_and_amqp_mean_the_messages_own_fields() -> None:
    message = Message(
        b"",
        durable=True,
        priority=7,
        properties=Properties(
            message_id="m",
            correlation_id="c",
            subject="kind",
            created_at=datetime.fromtimestamp(5, UTC),
            headers=(("a", 1), ("a", 2)),
        ),
    )
    text = (
        "JMSMessageID = 'm' AND JMSCorrelationID = 'c' AND JMSType = 'kind' AND JMSPriority = 7 "
        "AND JMSTimestamp = 5000 AND JMSDeliveryMode = 'PERSISTENT' AND a = 1 "
        "AND amqp.subject = 'kind' AND amqp.durable"
    )
    assert compile_selector(text).matches(message)


# --- against models

names = st.sampled_from([*FACTS, "missing"])
numbers = st.one_of(
    st.integers(0, 99).map(str), st.sampled_from(["size", "weight", "missing", "colour"])
)
strings = st.text("ab%_'", max_size=4).map(lambda text: "'" + text.replace("'", "''") + "'")
sums = st.recursive(
    numbers,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda three: f"({three[0]} {three[1]} {three[2]})"
    ),
    max_leaves=4,
)
predicates = st.one_of(
    st.tuples(sums, st.sampled_from(["=", "<>", "<", ">", "<=", ">="]), sums).map(" ".join),
    st.tuples(names, strings).map(lambda two: f"{two[0]} = {two[1]}"),
    st.tuples(names, strings).map(lambda two: f"{two[0]} LIKE {two[1]}"),
    st.tuples(names, strings).map(lambda two: f"{two[0]} IN ({two[1]})"),
    names.map(lambda name: f"{name} IS NULL"),
    names,
)
expressions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=8,
)


def truth(text: str) -> bool | None:
    """Three values, told apart by asking for the opposite too."""
    if compile_selector(text).evaluate(FACTS.get) is True:
        return True
    opposite = compile_selector(f"NOT ({text})").evaluate(FACTS.get)
    return False if opposite is True else None


@given(expressions)
def test_every_expression_of_the_grammar_compiles_and_evaluates(text: str) -> None:
    truth(text)


@given(expressions, expressions)
def test_and_or_and_not_follow_the_tables_of_three_values(one: str, two: str) -> None:
    a, b = truth(one), truth(two)
    both = False if a is False or b is False else None if a is None or b is None else True
    either = True if a is True or b is True else None if a is None or b is None else False
    assert truth(f"({one}) AND ({two})") is both
    assert truth(f"({one}) OR ({two})") is either
    assert truth(f"NOT ({one})") is (None if a is None else not a)


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        selector = compile_selector(text)
    except SelectorError:
        return
    selector.evaluate(FACTS.get)


def test_searches_in_a_text_have_a_limit() -> None:
    search = "colour LIKE '%ab%'"
    compile_selector(" OR ".join([search] * MAX_SEARCHES))
    with pytest.raises(SelectorError, match="several %"):
        compile_selector(" OR ".join([search] * (MAX_SEARCHES + 1)))
    ends = "colour LIKE 'a%b'"  # looks at both ends, and nowhere else
    compile_selector(" OR ".join([ends] * (MAX_SEARCHES + 1)))


def test_headers_are_read_once_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Properties] = []
    read = Properties.header_map

    def counted(properties: Properties) -> dict[str, Value]:
        reads.append(properties)
        return read(properties)

    monkeypatch.setattr(Properties, "header_map", counted)
    message = Message(b"", "", "")
    assert not compile_selector(
        "amqp.to = 'a' OR amqp.to = 'b' OR amqp.group_sequence = 1 OR other = 2"
    ).matches(message)
    assert len(reads) <= 1
