"""Evaluates conditions on messages that lie in memory, with SQL's logic: a comparison with what a
message does not have is unknown, and only what is known to hold counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from queue_core.message.condition import (
    And,
    Comparison,
    Condition,
    Field,
    In,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Value,
)

Look = Callable[[Field], object]

_COMPARE: Final[dict[Operator, Callable[[int], bool]]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def holds(condition: Condition, look: Look) -> bool:
    """Tells whether the condition is known to hold; `look` gives a field's value, or None."""
    return _judge(condition, look) is True


def _judge(condition: Condition, look: Look) -> bool | None:
    match condition:
        case And(parts):
            return _all([_judge(part, look) for part in parts])
        case Or(parts):
            return _negated(_all([_negated(_judge(part, look)) for part in parts]))
        case Not(part):
            return _negated(_judge(part, look))
        case IsNull(field):
            return look(field) is None
        case Comparison(field, operator, value):
            order = _order(look(field), value)
            return None if order is None else _COMPARE[operator](order)
        case In(field, values):
            found = look(field)
            orders = [_order(found, value) for value in values]
            return None if None in orders else 0 in orders
        case Like(field, pattern):
            text = look(field)
            return is_like(text, pattern) if isinstance(text, str) else None


def _all(judged: list[bool | None]) -> bool | None:
    if False in judged:
        return False
    return None if None in judged else True


def _negated(judged: bool | None) -> bool | None:
    return None if judged is None else not judged


def _order(found: object, value: Value) -> int | None:
    """Compares two values of one type: -1, 0 or 1; None where they cannot be compared."""
    if isinstance(found, bool) or isinstance(value, bool):
        if isinstance(found, bool) and isinstance(value, bool):
            return found - value
        return None
    if isinstance(found, str) and isinstance(value, str):
        return (found > value) - (found < value)
    if isinstance(found, int | float) and isinstance(value, int | float):
        return (found > value) - (found < value)
    if isinstance(found, datetime) and isinstance(value, datetime):
        return (found > value) - (found < value)
    if isinstance(found, int | float) and isinstance(value, str):
        text = str(found)  # a header that is a number, compared with a text, is its text
        return (text > value) - (text < value)
    return None


def is_like(text: str, pattern: str) -> bool:
    """Tells whether a text matches a LIKE pattern. One look back at most to the last `%`, so a
    pattern with many of them takes no more than its length times the text's."""
    parts = _pattern_parts(pattern)
    at = place = 0
    anchor, resume = -1, 0
    while at < len(text):
        part = parts[place] if place < len(parts) else None
        if part == (True, "%"):
            anchor, resume = place, at
            place += 1
        elif part is not None and part in ((True, "_"), (False, text[at])):
            at, place = at + 1, place + 1
        elif anchor >= 0:
            resume += 1
            at, place = resume, anchor + 1
        else:
            return False
    return all(part == (True, "%") for part in parts[place:])


def _pattern_parts(pattern: str) -> list[tuple[bool, str]]:
    """Splits a pattern into characters; True: a wildcard."""
    parts: list[tuple[bool, str]] = []
    is_escaped = False
    for character in pattern:
        if is_escaped or character not in "\\%_":
            parts.append((False, character))
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        else:
            parts.append((True, character))
    return parts
