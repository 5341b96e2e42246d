"""Field tables: names with typed values, as arguments and headers carry them.

Every type that RabbitMQ writes is read, and those of the standard that it does not. What Python
cannot tell apart (a long string that is no UTF-8, a byte array) is bytes. Knows no method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

from protocols.amqp091.errors import Amqp091Error, ReplyCode

MAX_TABLE_DEPTH: Final = 32
MOST_VALUES: Final = 2048  # of one table that comes, nested ones among them
MAX_NAME_BYTES: Final = 255
MAX_SCALE: Final = 255
MAX_WHOLE_DIGITS: Final = 10  # of a decimal that 32 bits may hold

Reader = Callable[[bytes, int, int], tuple[object, int]]


class LongInt(int):
    """A number that is written with 64 bits, however small: clients tell the types apart."""

    __slots__ = ()


_LONG: Final = Struct(">I")
_FIRST_SECOND: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_LAST_SECOND: Final = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())


def decode_table(data: bytes, start: int = 0) -> tuple[dict[str, object], int]:
    """The table at `start`, and where it ends. Raises 502 for what is none."""
    try:
        return _table(data, start, 0)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from None


def encode_table(table: Mapping[str, object]) -> bytes:
    """Encodes a field table, with its length in front."""
    fields = encode_fields(table)
    return _LONG.pack(len(fields)) + fields


def encode_fields(table: Mapping[str, object]) -> bytes:
    """The table's content alone."""
    parts: list[bytes] = []
    for name, value in table.items():
        parts.append(encode_name(name))
        parts.append(_value(value))
    return b"".join(parts)


def split_fields(fields: bytes) -> dict[str, bytes]:
    """The fields of a table's content by name, each as it was written: with name and type."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(fields):
        start = position
        position += 1 + fields[start]
        name = fields[start + 1 : position].decode()
        position = _read(fields, position, 0)[1]
        found[name] = fields[start:position]
    return found


def encode_name(name: str) -> bytes:
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) > MAX_NAME_BYTES:
        encoded = encoded[:MAX_NAME_BYTES].decode(errors="ignore").encode()
    return bytes((len(encoded),)) + encoded


def time_of(seconds: int) -> datetime | int:
    """A timestamp; one that no calendar holds (milliseconds by mistake) stays a number."""
    if _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return datetime.fromtimestamp(seconds, UTC)
    return seconds


def require_few(data: bytes, start: int, code: ReplyCode) -> None:
    """Refuses a table of more values than one turn should read, nested ones among them; `code` says
    how. A malformed table is left to its reader."""
    try:
        size = int(_LONG.unpack_from(data, start)[0])
        if size > MOST_VALUES and _is_crowded(data, start + 4, start + 4 + size):
            raise Amqp091Error(code, f"a table has {MOST_VALUES} values at most; send fewer")
    except (IndexError, StructError):
        return


def _is_crowded(data: bytes, position: int, end: int) -> bool:
    inside = [(end, True)]  # where each table or array ends that is being walked, and which it is
    left = MOST_VALUES
    while inside:
        end, is_table = inside[-1]
        if position >= end:
            inside.pop()
            continue
        left -= 1
        if left < 0:
            return True
        if is_table:
            position += 1 + data[position]
        kind = data[position]
        position += 1
        if kind in _SIZED:
            size = int(_LONG.unpack_from(data, position)[0])
            position += 4
            if kind in _NESTED:
                inside.append((position + size, kind == _NESTED[0]))
            else:
                position += size
        else:
            position += _WIDTHS.get(kind, 0)
    return False


# --- reading


def _table(data: bytes, start: int, depth: int) -> tuple[dict[str, object], int]:
    position, end = _bounds(data, start, depth)
    table: dict[str, object] = {}
    while position < end:
        name_end = position + 1 + data[position]
        name = data[position + 1 : name_end].decode()
        if name_end >= end:
            raise _malformed("a field table ends inside a field")
        table[name], position = _read(data, name_end, depth)
    if position != end:
        raise _malformed("a field goes beyond the end of its table")
    return table, end


def _array(data: bytes, start: int, depth: int) -> tuple[list[object], int]:
    position, end = _bounds(data, start, depth)
    values: list[object] = []
    while position < end:
        value, position = _read(data, position, depth)
        values.append(value)
    if position != end:
        raise _malformed("a value goes beyond the end of its array")
    return values, end


def _bounds(data: bytes, start: int, depth: int) -> tuple[int, int]:
    if depth > MAX_TABLE_DEPTH:
        raise _malformed(f"tables are nested more than {MAX_TABLE_DEPTH} deep")
    end = start + 4 + int(_LONG.unpack_from(data, start)[0])
    if end > len(data):
        raise _malformed("a field table is longer than its frame")
    return start + 4, end


def _read(data: bytes, start: int, depth: int) -> tuple[object, int]:
    kind = data[start]
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, start + 1)[0], start + 1 + number.size
    match chr(kind):
        case "S" | "x" as type_:
            return _bytes(data, start + 1, is_text=type_ == "S")
        case "t":
            return data[start + 1] != 0, start + 2
        case "F":
            return _table(data, start + 1, depth + 1)
        case "A":
            return _array(data, start + 1, depth + 1)
        case "T":
            return time_of(_TIME.unpack_from(data, start + 1)[0]), start + 9
        case "D":
            scale, unscaled = _DECIMAL.unpack_from(data, start + 1)
            return Decimal(unscaled).scaleb(-scale), start + 6
        case "V":
            return None, start + 1
    raise _malformed(f"a field has the unknown type 0x{kind:02x}")


def _bytes(data: bytes, start: int, *, is_text: bool) -> tuple[str | bytes, int]:
    end = start + 4 + int(_LONG.unpack_from(data, start)[0])
    if end > len(data):
        raise _malformed("a long string is longer than its frame")
    value = data[start + 4 : end]
    if is_text:
        try:
            return value.decode(), end
        except UnicodeDecodeError:
            return value, end
    return value, end


def _malformed(why: str) -> Amqp091Error:
    return Amqp091Error(ReplyCode.SYNTAX_ERROR, f"malformed field table: {why}")


_NUMBERS: Final = {
    ord(letter): Struct(form)
    for letter, form in {
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "U": ">h",  # the standard's letter for what RabbitMQ calls s
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
        "f": ">f",
        "d": ">d",
    }.items()
}
_TIME: Final = Struct(">q")
_DECIMAL: Final = Struct(">Bi")
_NESTED: Final = b"FA"
_SIZED: Final = b"FASx"
_WIDTHS: Final = {letter: form.size for letter, form in _NUMBERS.items()} | {
    ord("t"): 1,
    ord("T"): _TIME.size,
    ord("D"): _DECIMAL.size,
}

# --- writing

_INT: Final = Struct(">ci")
_LONG_LONG: Final = Struct(">cq")
_DOUBLE: Final = Struct(">cd")
_WRITE_TIME: Final = Struct(">cq")
_WRITE_DECIMAL: Final = Struct(">cBi")


def _value(value: object) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    for kind, other in _WRITERS.items():
        if isinstance(value, kind):
            return other(value)
    if isinstance(value, Mapping):
        return b"F" + encode_table(value)
    if isinstance(value, Sequence):
        return _write_array(value)
    return _write_text(str(value))


def _write_text(value: object) -> bytes:
    encoded = str(value).encode(errors="surrogatepass")
    return b"S" + _LONG.pack(len(encoded)) + encoded


def _write_bytes(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    data = bytes(value)
    return b"x" + _LONG.pack(len(data)) + data


def _write_int(value: object) -> bytes:
    number = int(value)  # type: ignore[call-overload]
    if -(1 << 31) <= number < 1 << 31:
        return _INT.pack(b"I", number)
    if -(1 << 63) <= number < 1 << 63:
        return _LONG_LONG.pack(b"l", number)
    return _write_text(number)  # no type holds it: as text it is at least whole


def _write_time(value: object) -> bytes:
    assert isinstance(value, datetime)
    return _WRITE_TIME.pack(b"T", int(value.timestamp()))


def _write_decimal(value: object) -> bytes:
    assert isinstance(value, Decimal)
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):  # not a number, infinity
        return _write_text(value)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if 0 < exponent <= MAX_WHOLE_DIGITS:
        unscaled, exponent = unscaled * 10**exponent, 0
    if exponent <= 0 and -exponent <= MAX_SCALE and -(1 << 31) <= unscaled < 1 << 31:
        return bytes(_WRITE_DECIMAL.pack(b"D", -exponent, unscaled))
    return _write_text(value)


def _write_array(values: object) -> bytes:
    assert isinstance(values, Sequence)
    parts = b"".join(map(_value, values))
    return b"A" + _LONG.pack(len(parts)) + parts


_WRITERS: Final[dict[type, Callable[[object], bytes]]] = {
    str: _write_text,
    bool: lambda value: b"t\1" if value else b"t\0",
    int: _write_int,
    LongInt: lambda value: _LONG_LONG.pack(b"l", value),
    float: lambda value: _DOUBLE.pack(b"d", value),
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: _write_bytes,
    datetime: _write_time,
    Decimal: _write_decimal,
    UUID: lambda value: _write_text(f"urn:uuid:{value}"),
    type(None): lambda _: b"V",
    list: _write_array,
    tuple: _write_array,
    dict: lambda value: b"F" + encode_table(value),  # type: ignore[arg-type]
}
