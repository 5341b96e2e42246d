"""Conditions: what can be written, what is refused and why, and what holds in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.message.condition import (
    EVERYTHING,
    Field,
    InvalidCondition,
    all_of,
    field_named,
    parse,
)
from queue_core.message.condition_evaluation import holds, is_like
from queue_core.store.operator.condition_sql import Literals, Parameters, compiled

MESSAGE: dict[str, Any] = {
    "offset": 7,
    "routing_key": "orders.eu",
    "durable": True,
    "enqueued_at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "header": {"region": "eu", "size": 3, "urgent": False},
    "priority": None,
}


def _look(field: Field) -> object:
    if field.name == "header":
        return MESSAGE["header"].get(field.path[0])
    return MESSAGE.get(field.name)


HOLDING = [
    "offset = 7",
    "offset in (1, 7)",
    "offset > 6.5",
    "routing_key like 'orders.%' and durable = true",
    "ROUTING_KEY LIKE 'orders.__'",
    "enqueued_at < '2026-02-01' and enqueued_at >= '2026-01-31T12:00:00Z'",
    "header.region = 'eu' or header.nothing = 1",
    "header.size >= 3",
    "header.size = '3'",
    "header.urgent = false",
    "priority is null",
    "not offset = 8",
    "not (offset = 8 or header.region <> 'eu')",
    "header.region is not null",
    "header.region not in ('us', 'jp')",
    "routing_key not like '%us'",
]
NOT_HOLDING = [
    "priority = 1",
    "priority <> 1",
    "not priority = 1",
    "header.region = 3",
    "header.urgent = 1",
    "header.none like '%'",
    "offset = 7 and priority > 1",
    "header.none not in ('a')",
]


@pytest.mark.parametrize("text", HOLDING)
def test_a_condition_holds(text: str) -> None:
    assert holds(parse(text), _look)


@pytest.mark.parametrize("text", NOT_HOLDING)
def test_a_condition_that_is_not_known_to_hold_does_not(text: str) -> None:
    assert not holds(parse(text), _look)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ends where the name of a field is expected"),
        ("offset", "=, <>, <, >, 'like', 'in' or 'is' is expected"),
        ("offset =", "a text in 'quotes', a number"),
        ("offset = 'x'", "offset is a number, and 'x' is none"),
        ("offset = true", "offset is a number"),
        ("routing_key = 3", "write it in 'quotes'"),
        ("enqueued_at > 'yesterday'", "write it as '2026-01-31T12:00:00Z'"),
        ("enqueued_at > '9999-12-31T23:59:59-23:00'", "write it as '2026-01-31T12:00:00Z'"),
        ("enqueued_at > 3", "enqueued_at is a time"),
        ("durable > true", "compare it with = or <>"),
        ("durable = 'yes'", "durable is a true or false"),
        ("nonsense = 1", "there is no field 'nonsense', at 1"),
        ("header = 1", "write header.NAME"),
        ("header.a.b = 1", "write header.NAME"),
        ("json = 1", "write json.PATH"),
        ("offset like '1%'", "'like' compares texts"),
        ("body like 'a\\'", "single backslash"),
        ("offset = 1 offset = 2", "'and', 'or' or the end"),
        ("(offset = 1", "')' is expected"),
        ("offset not = 1", "'like' or 'in' is expected"),
        ("offset in ()", "a text in 'quotes', a number"),
        ("header.a in (1, 'a')", "of one type"),
        ("offset = 1; drop table x", "'; drop table x' cannot be read, at 11"),
        ("offset = 1 -- comment", "cannot be read"),
        ("pg_sleep(10) = 1", "there is no field 'pg_sleep'"),
        ("body = 'a\0'", "zero characters"),
        ("offset = 1e999", "too large a number"),
        ("not " * 40 + "offset = 1", "32 levels deep"),
        (" and ".join(["offset = 1"] * 129), "128 comparisons"),
        (f"offset in ({', '.join(['1'] * 101)})", "100 values"),
        ("body = '" + "x" * 5000 + "'", "4096 characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidCondition) as caught:
        parse(text)
    assert said in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_refused_by_our_own_error(text: str) -> None:
    try:
        condition = parse(text)
    except InvalidCondition:
        return
    compiled(condition, Parameters())
    compiled(condition, Literals())
    holds(condition, lambda field: None)


@given(st.text(alphabet="ab%_\\", max_size=8), st.text(alphabet="ab%_", max_size=10))
def test_like_is_what_it_is_in_sql(pattern: str, text: str) -> None:
    """Compared with the plain definition, by recursion."""
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        return  # refused by the parser

    def plain(rest: str, left: str) -> bool:
        if not rest:
            return not left
        if rest[0] == "%":
            return any(plain(rest[1:], left[cut:]) for cut in range(len(left) + 1))
        if not left:
            return False
        if rest[0] == "\\":
            return left[0] == rest[1] and plain(rest[2:], left[1:])
        return rest[0] in ("_", left[0]) and plain(rest[1:], left[1:])

    assert is_like(text, pattern) is plain(pattern, text)


def test_values_are_parameters_and_never_text_of_the_statement() -> None:
    parameters = Parameters()
    statement = compiled(parse("body = 'x''; --' and header.\"a'b\" = 3"), parameters)
    assert "x'" not in statement
    assert "a'b" not in statement
    assert "x'; --" in parameters.values


def test_literals_are_quoted_as_postgresql_does() -> None:
    assert compiled(parse("body = 'it''s'"), Literals()).startswith(
        "howdah.body_text(body) = 'it''s'"
    )
    assert "E'a\\\\b'" in compiled(parse("body = 'a\\b'"), Literals())


def test_conditions_are_joined_without_those_that_always_hold() -> None:
    one = parse("offset = 1")
    assert all_of(EVERYTHING, one) == one
    assert all_of() == EVERYTHING
    assert holds(EVERYTHING, _look)
    assert field_named("header", "a") == Field("header", field_named("json", "a").kind, ("a",))
