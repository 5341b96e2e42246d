"""Values as text with a type beside it, for protocols that cannot write them as they are.

`separated` takes a header's value apart into what a dialect can write and the type of what it
cannot; `restored` puts both together again. A type is the name of a scalar's type, or for a list or
a map the types of what is inside (`null` or missing: it is as it stands). A list or a map with such
a type that is written as text is JSON. Knows no protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple
from uuid import UUID

from queue_core.message.message import Scalar, Value, type_of_id

MAX_DEPTH: Final = 32  # of what is made from text: as deep as AMQP's own values may be
HEX: Final = "\\x"
URN: Final = "urn:uuid:"
ESCAPED: Final = "json"  # text with characters in it that the protocol cannot write
MAX_ID: Final = (1 << 64) - 1


class Dialect(NamedTuple):
    """Says which values a protocol can write so that they come back as they were."""

    keeps: Callable[[Scalar], bool]
    holds_name: Callable[[str], bool]
    nests: bool = True  # has lists and maps of its own


def _json_keeps(value: Scalar) -> bool:
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor "not a number"
    return value is None or isinstance(value, bool | int | str)


SCALARS: Final = frozenset((str, bool, int, float, bytes, type(None), datetime, Decimal, UUID))
JSON: Final = Dialect(_json_keeps, lambda _: True)


def separated(value: Value, dialect: Dialect) -> tuple[Value, object]:
    """Separates the text of a value from its type; None where the text is kept as it stands."""
    if type(value) in SCALARS:  # before anybody asks whether it is a map, which takes 0.3 us
        return _separated_scalar(value, dialect)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        if dialect.nests and all(map(dialect.holds_name, value)):
            return _separated_map(value, dialect)
        inner, types = _separated_map(value, JSON)
        return json_text(inner), types or {}
    if isinstance(value, list | tuple):
        if dialect.nests:
            return _separated_list(value, dialect)
        inner, types = _separated_list(value, JSON)
        return json_text(inner), types or []
    return _separated_scalar(value, dialect)  # type: ignore[arg-type]


def _separated_scalar(value: Scalar, dialect: Dialect) -> tuple[Value, object]:
    if dialect.keeps(value):
        return value, None
    name = type_name(value)
    return (json_text(value) if name == ESCAPED else text_of(value)), name


def _separated_map(value: Mapping[str, Value], dialect: Dialect) -> tuple[Value, object]:
    parts = {str(key): separated(item, dialect) for key, item in value.items()}
    types = {key: kind for key, (_, kind) in parts.items() if kind is not None}
    return {key: written for key, (written, _) in parts.items()}, types or None


def _separated_list(
    value: list[Value] | tuple[Value, ...], dialect: Dialect
) -> tuple[Value, object]:
    parts = [separated(item, dialect) for item in value]
    types = [kind for _, kind in parts]
    return [written for written, _ in parts], types if any(t is not None for t in types) else None


def restored(written: Value, kind: object, depth: int = 0) -> Value:
    """Raises ValueError where the two do not go together: somebody changed the one."""
    if kind is None:
        return written
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(kind, str):
        read = READERS.get(kind)
        if read is None or not isinstance(written, str):
            raise ValueError(f"{written!r} is no text of the type {kind}")
        return read(written)
    if isinstance(written, str):
        written = _from_json(written)
    if isinstance(kind, dict) and isinstance(written, Mapping):
        return {k: restored(v, kind.get(k), depth + 1) for k, v in written.items()}
    if isinstance(kind, list) and isinstance(written, list):
        kinds = kind + [None] * (len(written) - len(kind))
        return [restored(v, t, depth + 1) for v, t in zip(written, kinds, strict=True)]
    raise ValueError("a type of another shape than its value")


def _from_json(text: str) -> Value:
    try:
        found: Value = json.loads(text)
        depth = _depth(found)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    json_text(found).encode()  # half a surrogate pair, or infinity: nothing that can be written
    return found


def _depth(value: Value) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# --- scalars


def type_name(value: object) -> str:
    return next(name for kind, name in TYPE_NAMES.items() if isinstance(value, kind))


TYPE_NAMES: Final[dict[type, str]] = {  # bool is an int, and comes first
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "double",
    str: ESCAPED,
    bytes: "binary",
    datetime: "timestamp",
    Decimal: "decimal",
    UUID: "uuid",
}


def text_of(value: object) -> str:
    """A scalar as people read it."""
    match value:
        case str():
            return value
        case bytes():
            return _text_of_bytes(value)
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case UUID():
            return f"{URN}{value}"
        case float():
            return repr(float(value))
        case int():
            return str(int(value))
        case datetime():
            return value.astimezone(UTC).isoformat()
        case _:
            return str(value)


def _text_of_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return HEX + value.hex()
    return HEX + value.hex() if text.startswith(HEX) or "\0" in text else text


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text[len(HEX) :]) if text.startswith(HEX) else text.encode()


def time_of(text: str) -> datetime:
    """Reads a time; one without a zone is UTC. Raises ValueError."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text} is a time that no calendar holds") from None


def _one_of(words: Mapping[str, Scalar]) -> Callable[[str], Scalar]:
    def read(text: str) -> Scalar:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return words[text]

    return read


def _json_string(text: str) -> str:
    found = _from_json(text)
    if not isinstance(found, str):
        raise ValueError(f"{text!r} is no JSON string")
    return found


def _decimal(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no decimal") from None
    if not found.is_finite():
        raise ValueError(f"{text!r} is no number")
    return found


def _uuid(text: str) -> UUID:
    return UUID(text.removeprefix(URN))


READERS: Final[dict[str, Callable[[str], Scalar]]] = {
    "null": _one_of({"": None}),
    "boolean": _one_of({"true": True, "false": False}),
    "integer": int,
    "double": float,
    ESCAPED: _json_string,
    "binary": bytes_of,
    "timestamp": time_of,
    "decimal": _decimal,
    "uuid": _uuid,
}

# --- identifiers: text, unless it says that it is more


def identifier(text: str) -> str | UUID:
    """Reads an id in text form by what it says itself: a uuid is written as its URN."""
    if text.startswith(URN):
        try:
            found = UUID(text[len(URN) :])
        except ValueError:
            return text
        if f"{URN}{found}" == text:
            return found
    return text


def identifier_type(value: type_of_id) -> str | None:
    """The type that has to stand beside an id's text; None: the text says it."""
    if isinstance(value, str):
        return None if identifier(value) == value else "string"
    if isinstance(value, bytes):
        return "binary"
    return None if isinstance(value, UUID) else "integer"


def typed_identifier(text: str, kind: object) -> type_of_id:
    """An id whose type stands beside it. Raises ValueError."""
    if kind == "string":
        return text
    if kind == "binary":
        return bytes_of(text)
    if kind == "integer" and text.isascii() and text.isdecimal() and int(text) <= MAX_ID:
        return int(text)
    raise ValueError(f"{text!r} is no id of the type {kind}")
