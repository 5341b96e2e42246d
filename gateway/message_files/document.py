"""A message as a JSON document: reads it strictly, with the types that JSON lacks.

A value is what JSON has, or an object with one key that begins with `$`: `{"$binary": "AP8="}`
(base64), `{"$uuid": "..."}`, `{"$timestamp": "2026-01-31T12:00:00Z"}`, `{"$decimal": "1.5"}`,
`{"$double": "nan"}`. Knows no protocol.
"""

from __future__ import annotations

import binascii
import difflib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from queue_core.message.values_as_text import text_of, time_of

Document = dict[str, Any]


class MessageFileError(ValueError):
    """The file is no message of that protocol; says where and what was expected."""


def _binary(text: str) -> bytes:
    return b64decode(text, validate=True)


TAGS: Final[dict[str, Callable[[str], object]]] = {
    "$binary": _binary,
    "$uuid": UUID,
    "$timestamp": time_of,
    "$decimal": Decimal,
    "$double": float,
}
MOST_LEVELS: Final = 64
MOST_SHOWN_CHARACTERS: Final = 200  # of a place in errors
LEAST, MOST = -(1 << 63), (1 << 64) - 1  # of the whole numbers that some protocol has a type for


def parse(text: str | bytes) -> Document:
    """Parses a message's JSON. Raises MessageFileError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageFileError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise MessageFileError("a message is a JSON object, in braces")
    return {name: untagged(value, name) for name, value in found.items()}


def untagged(value: object, where: str, level: int = 1) -> Any:
    """Reads a value of a document; `where` is its place, for errors. Raises MessageFileError."""
    if not isinstance(value, dict | list):
        return _sayable(value, where)
    if level > MOST_LEVELS:
        raise MessageFileError(f"{where}: values are nested {MOST_LEVELS} levels deep at most")
    where = where[:MOST_SHOWN_CHARACTERS]  # it is written again for each value inside
    if isinstance(value, list):
        return [untagged(item, f"{where}[{place}]", level + 1) for place, item in enumerate(value)]
    for name in value:
        _sayable(name, where)
    tags = [name for name in value if name.startswith("$")]
    if len(value) != 1 or not tags:
        return {n: untagged(item, f"{where}.{n}", level + 1) for n, item in value.items()}
    tag, text = tags[0], value[tags[0]]
    if tag not in TAGS:
        raise MessageFileError(f"{where}: {tag} is no type; there are {', '.join(TAGS)}")
    try:
        if not isinstance(text, str):
            raise ValueError
        return TAGS[tag](text)
    except (ValueError, InvalidOperation, binascii.Error):
        raise MessageFileError(f"{where}: {json.dumps(text)} is no {tag}") from None


def _sayable(value: object, where: str) -> object:
    """Refuses numbers that JSON can write and no protocol can send."""
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise MessageFileError(f"{where}: {value} has more than 64 bits; write it as text")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MessageFileError(f"{where}: {json.dumps(value)} is half a character") from None
    return value


def tagged(value: object) -> object:
    """Converts a value to JSON, with a `$` tag for a type that JSON lacks."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"$binary": b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case datetime():
            return {"$timestamp": text_of(value)}
        case Decimal():
            return {"$decimal": str(value)}
        case float() if value - value != 0:
            return {"$double": str(value)}
        case int() if not isinstance(value, bool):
            return int(value)  # without what else its type says
        case Mapping():
            return {str(name): tagged(item) for name, item in value.items()}
        case list() | tuple():
            return [tagged(item) for item in value]
        case _:
            return value


# --- strict reading


def check_keys(found: Document, known: Collection[str], where: str = "") -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
            raise MessageFileError(f"{where}{name}: there is no such key here; {hint}")


def text(found: Document, name: str, where: str = "", default: str | None = None) -> Any:
    return _typed(found, name, str, "text", where, default)


def number(found: Document, name: str, where: str, most: int) -> int | None:
    value = _typed(found, name, int, "a whole number", where, None)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise MessageFileError(f"{where}{name}: expected a number from 0 to {most}")
    return value


def flag(found: Document, name: str, where: str, default: bool) -> bool:
    return bool(_typed(found, name, bool, "true or false", where, default))


def section(found: Document, name: str) -> Document:
    value = _typed(found, name, dict, "an object", "", {})
    assert isinstance(value, dict)
    return value


def octets(found: Document, name: str, where: str = "", default: bytes | None = None) -> Any:
    value = _typed(found, name, str | bytes, "text or {'$binary': ...}", where, default)
    return value.encode() if isinstance(value, str) else value


def _typed(found: Document, name: str, kind: Any, noun: str, where: str, default: object) -> object:
    value = found.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise MessageFileError(f"{where}{name}: expected {noun}, got {json.dumps(tagged(value))}")
    return value
