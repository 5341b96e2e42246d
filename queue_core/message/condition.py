"""Conditions that people write to pick messages, such as `reason = 'rejected' and priority > 3`.

`parse` checks names and types, so that whoever compiles or evaluates a condition meets none that
compares a time with a word. Knows neither SQL nor where the messages lie.

    field = 'text'   <>  <  <=  >  >=      numbers, times as ISO 8601 in quotes, true and false
    field like 'a%'   not like             % is any text, _ one character
    field in ('a', 'b')   not in
    field is null   is not null
    not, and, or, ( )
    header.NAME      a header; header."any name" where it is no plain word
    json.PATH        a member of a body that is JSON, such as json.order.id
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from queue_core.errors import InvalidArgument

MOST_CHARACTERS: Final = 4096
MOST_COMPARISONS: Final = 128
MOST_DEPTH: Final = 32
MOST_LISTED: Final = 100  # values of one `in`
MOST_PATTERN_CHARACTERS: Final = 256


class Kind(StrEnum):
    """The type of a field's values; ANY is of whatever type the message has there."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    FLAG = "true or false"
    ANY = "anything"


FIELDS: Final[dict[str, Kind]] = {
    "offset": Kind.NUMBER,
    "state": Kind.TEXT,
    "enqueued_at": Kind.TIME,
    "age": Kind.NUMBER,  # seconds since it entered the queue
    "not_before": Kind.TIME,
    "expires_at": Kind.TIME,
    "delivery_count": Kind.NUMBER,
    "failed_because": Kind.TEXT,
    "priority": Kind.NUMBER,
    "durable": Kind.FLAG,
    "exchange": Kind.TEXT,
    "routing_key": Kind.TEXT,
    "topic": Kind.TEXT,
    "content_type": Kind.TEXT,
    "content_encoding": Kind.TEXT,
    "message_id": Kind.TEXT,
    "correlation_id": Kind.TEXT,
    "reply_to": Kind.TEXT,
    "subject": Kind.TEXT,
    "app_id": Kind.TEXT,
    "user_id": Kind.TEXT,
    "group_id": Kind.TEXT,
    "created_at": Kind.TIME,
    "publisher": Kind.TEXT,
    "protocol": Kind.TEXT,
    "died_in": Kind.TEXT,
    "reason": Kind.TEXT,
    "failure": Kind.TEXT,  # what the consumer's exception said, by the headers of known libraries
    "died_at": Kind.TIME,
    "deaths_in_all": Kind.NUMBER,
    "body_bytes": Kind.NUMBER,
    "body": Kind.TEXT,
}
HEADER: Final = "header"
JSON: Final = "json"

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Value = str | int | float | bool | datetime


@dataclass(frozen=True, slots=True)
class Field:
    """What a comparison looks at: a property, a header by its name, or a member of the body."""

    name: str
    kind: Kind
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    field: Field
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    field: Field
    pattern: str


@dataclass(frozen=True, slots=True)
class In:
    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    field: Field


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]


Condition = Comparison | Like | In | IsNull | Not | And | Or
EVERYTHING: Final = And(())


class InvalidCondition(InvalidArgument):
    """The text is no condition; says where and what was expected."""


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


_TOKENS: Final = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<name>\"(?:[^\"]|\"\")+\")"
    r"|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z_$][\w$-]*)"
    r"|(?P<operator><>|!=|<=|>=|[=<>])|(?P<mark>[().,]))"
)
_OPERATORS: Final[dict[str, Operator]] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def parse(text: str) -> Condition:
    """Reads a condition. Raises InvalidCondition."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidCondition(f"a condition has {MOST_CHARACTERS} characters at most")
    if "\0" in text:
        raise InvalidCondition("a condition has no zero characters: PostgreSQL's texts have none")
    return _Parser(text).whole()


def all_of(*parts: Condition) -> Condition:
    """Joins conditions that must all hold; those that hold for everything are left out."""
    telling = tuple(part for part in parts if part != EVERYTHING)
    return telling[0] if len(telling) == 1 else And(telling)


def field_named(name: str, *path: str) -> Field:
    """Makes a field by its name, such as `routing_key`, or `header` and the header's name."""
    if name in (HEADER, JSON):
        return Field(name, Kind.ANY, path)
    return Field(name, FIELDS[name])


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    stripped = text.rstrip()
    while place < len(stripped):
        match = _TOKENS.match(text, place)
        if match is None or match.lastgroup is None:
            where = len(text) - len(text[place:].lstrip())
            raise InvalidCondition(f"'{text[where : where + 20]}' cannot be read, at {where + 1}")
        yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        place = match.end()


class _Parser:
    """Reads one condition by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _Token("end", "the end", len(text))]
        self._at = 0
        self._comparisons = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._next.kind != "end":
            raise self._unexpected("'and', 'or' or the end")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _took(self, text: str) -> bool:
        """Takes the next token if it is that word or mark."""
        token = self._next
        if token.kind not in ("word", "mark", "operator") or token.text.lower() != text:
            return False
        self._at += 1
        return True

    def _require(self, text: str) -> None:
        if not self._took(text):
            raise self._unexpected(f"'{text}'")

    def _unexpected(self, wanted: str) -> InvalidCondition:
        token = self._next
        found = "the condition ends" if token.kind == "end" else f"'{token.text}' stands"
        return InvalidCondition(f"{found} where {wanted} is expected, at {token.place + 1}")

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._single()]
        while self._took("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _single(self) -> Condition:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise InvalidCondition(f"a condition is {MOST_DEPTH} levels deep at most")
        try:
            if self._took("not"):
                return Not(self._single())
            if self._took("("):
                found = self._either()
                self._require(")")
                return found
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        self._comparisons += 1
        if self._comparisons > MOST_COMPARISONS:
            raise InvalidCondition(f"a condition has {MOST_COMPARISONS} comparisons at most")
        field = self._field()
        if self._took("is"):
            is_not = self._took("not")
            self._require("null")
            return Not(IsNull(field)) if is_not else IsNull(field)
        is_not = self._took("not")
        found = self._listed(field)
        if found is not None:
            return Not(found) if is_not else found
        if is_not or self._next.kind != "operator":
            wanted = "'like' or 'in'" if is_not else "=, <>, <, >, 'like', 'in' or 'is'"
            raise self._unexpected(wanted)
        operator = _OPERATORS[self._take().text]
        if field.kind is Kind.FLAG and operator not in ("=", "<>"):
            raise InvalidCondition(f"{field.name} is true or false: compare it with = or <>")
        return Comparison(field, operator, self._value(field))

    def _listed(self, field: Field) -> Like | In | None:
        if self._took("like"):
            return Like(field, self._pattern(field))
        if self._took("in"):
            return In(field, self._values(field))
        return None

    def _field(self) -> Field:
        token = self._next
        if token.kind != "word":
            raise self._unexpected("the name of a field")
        name = token.text.lower()
        self._at += 1
        if name in (HEADER, JSON):
            return Field(name, Kind.ANY, self._path(name))
        if name not in FIELDS:
            raise InvalidCondition(
                f"there is no field '{token.text}', at {token.place + 1}; fields are "
                f"{', '.join(FIELDS)}, header.NAME and json.PATH"
            )
        return Field(name, FIELDS[name])

    def _path(self, name: str) -> tuple[str, ...]:
        path: list[str] = []
        while self._took("."):
            token = self._next
            if token.kind not in ("word", "name", "number"):
                raise self._unexpected("a name")
            self._at += 1
            is_quoted = token.kind == "name"
            path.append(token.text[1:-1].replace('""', '"') if is_quoted else token.text)
        if not path or (name == HEADER and len(path) > 1):
            raise InvalidCondition(
                'write header.NAME, or header."any.name" where the name has dots or spaces'
                if name == HEADER
                else "write json.PATH, such as json.order.id"
            )
        return tuple(path)

    def _values(self, field: Field) -> tuple[Value, ...]:
        self._require("(")
        values = [self._value(field)]
        while self._took(","):
            values.append(self._value(field))
            if len(values) > MOST_LISTED:
                raise InvalidCondition(f"'in' has {MOST_LISTED} values at most")
        self._require(")")
        if len({_class_of(value) for value in values}) > 1:
            raise InvalidCondition("the values of 'in' are of one type")
        return tuple(values)

    def _pattern(self, field: Field) -> str:
        if field.kind not in (Kind.TEXT, Kind.ANY):
            raise InvalidCondition(f"{field.name} is a {field.kind}: 'like' compares texts")
        pattern = self._value(field)
        if not isinstance(pattern, str) or len(pattern) > MOST_PATTERN_CHARACTERS:
            raise InvalidCondition(
                f"'like' takes a text in quotes of {MOST_PATTERN_CHARACTERS} characters at most"
            )
        if pattern.endswith("\\") and (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            raise InvalidCondition("a pattern does not end with a single backslash: double it")
        return pattern

    def _value(self, field: Field) -> Value:
        token = self._take()
        value: Value
        if token.kind == "string":
            value = token.text[1:-1].replace("''", "'")
            return _time(field, value) if field.kind is Kind.TIME else _fitting(field, value)
        if token.kind == "number":
            is_whole = token.text.lstrip("+-").isdigit()
            value = int(token.text) if is_whole else float(token.text)
            if isinstance(value, float) and value - value != 0:
                raise InvalidCondition(f"{token.text} is too large a number")
            return _fitting(field, value)
        if token.text.lower() in ("true", "false"):
            return _fitting(field, token.text.lower() == "true")
        self._at -= 1
        raise self._unexpected("a text in 'quotes', a number, true or false")


_FITTING: Final[dict[Kind, tuple[type, ...]]] = {
    Kind.TEXT: (str,),
    Kind.NUMBER: (int, float),
    Kind.FLAG: (bool,),
    Kind.TIME: (datetime,),
    Kind.ANY: (str, int, float, bool),
}
_HINTS: Final = {
    Kind.TEXT: "; write it in 'quotes'",
    Kind.TIME: "; write it as '2026-01-31T12:00:00Z'",
}


def _fitting(field: Field, value: Value) -> Value:
    if type(value) not in _FITTING[field.kind]:
        hint = _HINTS.get(field.kind, "")
        raise InvalidCondition(f"{field.name} is a {field.kind}, and {value!r} is none{hint}")
    return value


def _time(field: Field, text: str) -> datetime:
    try:
        return time_in(text)
    except ValueError:
        raise InvalidCondition(
            f"{field.name} is a time, and '{text}' is none; write it as '2026-01-31T12:00:00Z'"
        ) from None


def time_in(text: str) -> datetime:
    """Reads a time as UTC, which it is without an offset, too. Raises ValueError, also where UTC
    has no such year."""
    found = datetime.fromisoformat(text)
    try:
        return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("the year is not one of 1 to 9999 in UTC") from None


def _class_of(value: Value) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
