"""Compiles conditions to SQL over the columns of `howdah.browse`.

A value reaches PostgreSQL as a parameter, never as a part of the statement. The text that people
are shown has literals in the same places: both come from the one compiler here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from queue_core.message.condition import (
    HEADER,
    And,
    Comparison,
    Condition,
    Field,
    In,
    IsNull,
    Kind,
    Like,
    Not,
    Or,
    Value,
)

COLUMNS: Final[dict[str, str]] = {
    "offset": '"offset"',
    "age": "extract(epoch FROM now() - enqueued_at)",
    "body": "howdah.body_text(body)",
}
JSON_TYPES: Final = {"numeric": "number", "boolean": "boolean"}


class Values(Protocol):
    """Writes values into a statement."""

    def write(self, value: object, kind: str) -> str: ...


class Parameters:
    """Writes values as parameters, and keeps them in order."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def write(self, value: object, kind: str) -> str:
        # Numbers and times go as text: asyncpg would want to know the exact type of each.
        goes_as_it_is = value is None or kind in ("boolean", "text[]")
        self.values.append(value if goes_as_it_is else as_text(value))
        source = "" if kind in ("boolean", "text", "text[]") else "text::"
        return f"${len(self.values)}::{source}{kind}"


class Literals:
    """Writes values as literals, for people to copy."""

    def write(self, value: object, kind: str) -> str:
        if value is None:
            return "NULL"
        if kind == "boolean":
            return "true" if value else "false"
        if kind == "text[]" and isinstance(value, Sequence):
            return f"ARRAY[{', '.join(quoted(str(each)) for each in value)}]"
        if kind == "text":
            return quoted(as_text(value))
        is_number = kind in ("numeric", "bigint", "integer")
        return as_text(value) if is_number else f"{kind} {quoted(as_text(value))}"


def quoted(text: str) -> str:
    """Writes a text as a literal, as PostgreSQL's own quote_literal does."""
    doubled = text.replace("'", "''")
    return f"E'{doubled}'".replace("\\", "\\\\") if "\\" in text else f"'{doubled}'"


def as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def compiled(condition: Condition, values: Values) -> str:
    """Makes the SQL of a condition."""
    match condition:
        case And(parts):
            return _joined(parts, " AND ", values) or "true"
        case Or(parts):
            return f"({_joined(parts, ' OR ', values)})"
        case Not(part):
            return f"NOT ({compiled(part, values)})"
        case IsNull(field):
            return f"{_text_of(field, values)} IS NULL"
        case Comparison(field, operator, value):
            kind = _kind(value)
            left = _operand(field, kind, values)
            return f"{left} {operator} {values.write(value, kind)}{_collation(kind)}"
        case In(field, items):
            kind = _kind(items[0])
            left = _operand(field, kind, values)
            return f"{left} IN ({', '.join(values.write(item, kind) for item in items)})"
        case Like(field, pattern):
            return f"{_operand(field, 'text', values)} LIKE {values.write(pattern, 'text')}"


def _joined(parts: tuple[Condition, ...], word: str, values: Values) -> str:
    return word.join(compiled(part, values) for part in parts)


def _kind(value: Value) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "numeric"
        case datetime():
            return "timestamptz"
        case _:
            return "text"


def _collation(kind: str) -> str:
    """By code points, as in memory, and not by the database's language."""
    return ' COLLATE "C"' if kind == "text" else ""


def _operand(field: Field, kind: str, values: Values) -> str:
    """A field as SQL; a header or a JSON member is null unless it has the type compared with."""
    if field.kind is not Kind.ANY:
        return COLUMNS.get(field.name, field.name)
    if kind == "text":
        return _text_of(field, values)
    member, text = _member(field, values), _text_of(field, values)
    wanted = JSON_TYPES[kind]
    return f"CASE jsonb_typeof({member}) WHEN '{wanted}' THEN ({text})::{kind} END"


def _text_of(field: Field, values: Values) -> str:
    if field.kind is not Kind.ANY:
        return COLUMNS.get(field.name, field.name)
    if field.name == HEADER:
        return f"(headers ->> {values.write(field.path[0], 'text')})"
    return f"(howdah.body_json(body) #>> {values.write(list(field.path), 'text[]')})"


def _member(field: Field, values: Values) -> str:
    if field.name == HEADER:
        return f"headers -> {values.write(field.path[0], 'text')}"
    return f"howdah.body_json(body) #> {values.write(list(field.path), 'text[]')}"
