"""The limits of AMQP 0.9.1's small types: short strings of 255 bytes, values of field tables.

Decides what has to travel another way. Pure; knows no property by name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from queue_core.message.message import Scalar
from queue_core.message.values_as_text import HEX, text_of

MAX_TEXT_BYTES: Final = 255
_INT64: Final = 1 << 63
_INT32: Final = 1 << 31


def short_text(value: object) -> str | None:
    """Returns a text that a short string can hold; None where it cannot."""
    write = _WRITE.get(type(value))
    if write is None:
        return None
    try:
        text = write(value)
        return text if len(text.encode()) <= MAX_TEXT_BYTES else None
    except UnicodeError:
        return None


def _decoded(value: object) -> str:
    assert isinstance(value, bytes)
    if value.startswith(HEX.encode()):  # as text it would be read as what it only looks like
        raise UnicodeError
    return value.decode()


_WRITE: Final[dict[type, Callable[[object], str]]] = {
    str: str,
    bytes: _decoded,
    int: str,
    UUID: text_of,
}


def fits_property(text: str) -> bool:
    return fitting(text) == text


def fitting(name: str) -> str:
    """Cuts a name to as much as a short string holds."""
    if len(name) <= MAX_TEXT_BYTES // 4:
        return name
    return name.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")


def holds_name(name: str) -> bool:
    """Whether a field of a table may have that name."""
    return len(name) <= MAX_TEXT_BYTES // 4 or len(name.encode()) <= MAX_TEXT_BYTES


def table_keeps(value: Scalar) -> bool:
    """Whether a field table has a type that gives this value back as it was."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -_INT64 <= value < _INT64
    if isinstance(value, datetime):
        return value.microsecond == 0
    if isinstance(value, Decimal):
        return _fits_decimal(value)
    return not isinstance(value, UUID)


def _fits_decimal(value: Decimal) -> bool:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str) or not -255 <= exponent <= 0:
        return False
    unscaled = int("".join(map(str, digits)) or "0")
    if not unscaled:
        return not sign  # there is no negative zero
    return -_INT32 <= (-unscaled if sign else unscaled) < _INT32
