"""AMQP 1.0's type system: values to bytes and back, by one table of constructors.

Python's own types stand for AMQP's where one fits; the rest have a small class here. What an
integer was on the wire is not kept: whoever needs the bytes again keeps the bytes. Any input
decodes or raises `Malformed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

MAX_DEPTH: Final = 32
MOST_VALUES: Final = 2048  # beside a message's body, or in a field of a frame
MAX_WIDTHLESS: Final = 64  # items of an array that take no bytes: ten bytes must not become a crowd
MAX_DESCRIPTORS: Final = 2  # of an array: each of its items has them all
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Malformed(ValueError):
    """Bytes that are no AMQP value."""


class Symbol(str):
    """A name from a constrained set, in ASCII."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class UInt(int):
    """An unsigned integer of 32 bits."""


class ULong(int):
    """An unsigned integer of 64 bits."""


class UByte(int):
    """An unsigned integer of 8 bits."""


class Float(float):
    """A number of single precision."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A decimal as the wire has it: IEEE 754 in its own encoding, which nothing here counts in."""

    code: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Described:
    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """An array of symbols, the only arrays that the gateway itself writes."""

    symbols: tuple[str, ...]


_U2: Final = Struct(">H")
_U4: Final = Struct(">I")
_U8: Final = Struct(">Q")
_I1: Final = Struct(">b")
_I2: Final = Struct(">h")
_I4: Final = Struct(">i")
_I8: Final = Struct(">q")
_F4: Final = Struct(">f")
_F8: Final = Struct(">d")


def milliseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


def _time(data: bytes) -> object:
    value = _I8.unpack(data)[0]
    try:
        return EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return int(value)  # a time that no calendar holds


def _text(data: bytes) -> str:
    return data.decode()


def _char(data: bytes) -> Char:
    number = _U4.unpack(data)[0]
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise Malformed("a char that is no Unicode scalar value")
    return Char(chr(number))


_SYMBOLS: dict[bytes, Symbol] = {}


def _symbol(data: bytes) -> Symbol:
    known = _SYMBOLS.get(data)
    if known is None:
        known = Symbol(data.decode("ascii"))
        if len(_SYMBOLS) < 1024:
            _SYMBOLS[data] = known
    return known


def _bool(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise Malformed("a boolean that is neither 0 nor 1")
    return data == b"\1"


FIXED: Final[dict[int, tuple[int, Callable[[bytes], object]]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: UInt(0)),
    0x44: (0, lambda _: ULong(0)),
    0x50: (1, lambda data: UByte(data[0])),
    0x51: (1, lambda data: _I1.unpack(data)[0]),
    0x52: (1, lambda data: UInt(data[0])),
    0x53: (1, lambda data: ULong(data[0])),
    0x54: (1, lambda data: _I1.unpack(data)[0]),
    0x55: (1, lambda data: _I1.unpack(data)[0]),
    0x56: (1, _bool),
    0x60: (2, lambda data: _U2.unpack(data)[0]),
    0x61: (2, lambda data: _I2.unpack(data)[0]),
    0x70: (4, lambda data: UInt(_U4.unpack(data)[0])),
    0x71: (4, lambda data: _I4.unpack(data)[0]),
    0x72: (4, lambda data: Float(_F4.unpack(data)[0])),
    0x73: (4, _char),
    0x74: (4, lambda data: Opaque(0x74, data)),
    0x80: (8, lambda data: ULong(_U8.unpack(data)[0])),
    0x81: (8, lambda data: _I8.unpack(data)[0]),
    0x82: (8, lambda data: _F8.unpack(data)[0]),
    0x83: (8, _time),
    0x84: (8, lambda data: Opaque(0x84, data)),
    0x94: (16, lambda data: Opaque(0x94, data)),
    0x98: (16, lambda data: UUID(bytes=data)),
}
VARIABLE: Final[dict[int, tuple[int, Callable[[bytes], object]]]] = {
    0xA0: (1, bytes),
    0xA1: (1, _text),
    0xA3: (1, _symbol),
    0xB0: (4, bytes),
    0xB1: (4, _text),
    0xB3: (4, _symbol),
}
COMPOUND: Final = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}  # list8, map8, list32, map32
MAPS: Final = (0xC1, 0xD1)
ARRAYS: Final = {0xE0: 1, 0xF0: 4}
EMPTY_LIST: Final = 0x45
DESCRIBED: Final = 0x00


def skip(data: bytes, position: int) -> int:
    """Finds where the value ends that begins here. Looks at no more than it must."""
    try:
        code = data[position]
        position += 1
        while code == DESCRIBED:
            position = skip(data, position)
            code = data[position]
            position += 1
        width = _WIDTHS[code >> 4]
        if width >= 0:
            return position + width
        if width == -1:
            return position + 1 + data[position]
        if width == -4:
            return position + 4 + int(_U4.unpack_from(data, position)[0])
    except (IndexError, StructError, RecursionError):
        raise Malformed("a value that ends too early") from None
    raise Malformed(f"constructor 0x{code:02x} is unknown")


def is_crowded(data: bytes, most: int = MOST_VALUES) -> bool:
    """Whether there are more values, nested ones among them, than one turn should read.
    Malformed values are left to their reader."""
    if len(data) <= most:
        return False
    position, left = 0, most
    try:
        while position < len(data) and left >= 0:
            left -= 1
            code = data[position]
            if code == DESCRIBED:
                position += 1
            elif code in COMPOUND:  # what is inside comes next
                position += 1 + 2 * COMPOUND[code]
            else:
                if code in ARRAYS:
                    left -= _frame(ARRAYS[code], data, position + 1)[0]
                position = skip(data, position)
    except Malformed:
        return False
    return left < 0


_WIDTHS: Final = (-9, -9, -9, -9, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4)


def decode(data: bytes, position: int = 0, depth: int = 0) -> tuple[object, int]:
    """The value that begins there, and where it ends."""
    try:
        return _decode(data, position, depth)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise Malformed(f"malformed value: {error}") from None


def decode_all(data: bytes) -> object:
    """The one value that the bytes are."""
    value, end = decode(data)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes too many")
    return value


def _decode(data: bytes, position: int, depth: int) -> tuple[object, int]:
    code = data[position]
    position += 1
    if code == DESCRIBED:
        if depth >= MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH}")
        descriptor, position = _decode(data, position, depth + 1)
        value, position = _decode(data, position, depth + 1)
        return Described(descriptor, value), position
    return _decode_as(code, data, position, depth)


def _decode_as(code: int, data: bytes, position: int, depth: int) -> tuple[object, int]:
    fixed = FIXED.get(code)
    if fixed is not None:
        width, read = fixed
        return read(_cut(data, position, width)), position + width
    variable = VARIABLE.get(code)
    if variable is not None:
        width, read = variable
        size = int.from_bytes(_cut(data, position, width))
        position += width
        return read(_cut(data, position, size)), position + size
    if code == EMPTY_LIST:
        return [], position
    if depth >= MAX_DEPTH:
        raise Malformed(f"nested deeper than {MAX_DEPTH}")
    if code in COMPOUND:
        return _decode_compound(code, data, position, depth)
    if code in ARRAYS:
        return _decode_array(ARRAYS[code], data, position, depth)
    raise Malformed(f"constructor 0x{code:02x} is unknown")


def _cut(data: bytes, position: int, size: int) -> bytes:
    part = data[position : position + size]
    if len(part) != size:
        raise Malformed("a value that ends too early")
    return part


def _frame(width: int, data: bytes, position: int) -> tuple[int, int, int]:
    """Reads how many items there are, where they begin, and where they must end."""
    size = int.from_bytes(_cut(data, position, width))
    end = position + width + size
    if end > len(data) or size < width:
        raise Malformed("a value that ends too early")
    count = int.from_bytes(_cut(data, position + width, width))
    return count, position + 2 * width, end


def _decode_compound(code: int, data: bytes, position: int, depth: int) -> tuple[object, int]:
    count, position, end = _frame(COMPOUND[code], data, position)
    if count > end - position:
        raise Malformed("more items than bytes")
    items: list[object] = []
    for _ in range(count):
        item, position = _decode(data, position, depth + 1)
        items.append(item)
    if position != end:
        raise Malformed("items that do not fill their list")
    if code not in MAPS:
        return items, end
    if count % 2:
        raise Malformed("a map with a key and no value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True)), end
    except TypeError:
        raise Malformed("a map with a key that cannot be one") from None


def _decode_array(width: int, data: bytes, position: int, depth: int) -> tuple[object, int]:
    count, position, end = _frame(width, data, position)
    descriptors: list[object] = []
    code = data[position]
    position += 1
    while code == DESCRIBED:
        if len(descriptors) >= MAX_DESCRIPTORS:
            raise Malformed(f"an array whose items are described {MAX_DESCRIPTORS} times over")
        descriptor, position = _decode(data, position, depth + 1)
        descriptors.append(descriptor)
        code = data[position]
        position += 1
    if count > max(end - position, MAX_WIDTHLESS):
        raise Malformed("more items than bytes")
    items: list[object] = []
    for _ in range(count):
        item, position = _decode_as(code, data, position, depth + 1)
        for descriptor in reversed(descriptors):
            item = Described(descriptor, item)
        items.append(item)
    if position != end:
        raise Malformed("items that do not fill their array")
    return items, end


# --- to bytes


def encode(value: object) -> bytes:
    """The shortest encoding of a value."""
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    for kind, write in _WRITERS.items():  # subclasses
        if isinstance(value, kind):
            return write(value)
    if isinstance(value, Mapping):
        return _encode_map(value)
    raise Malformed(f"a {type(value).__name__} has no place in AMQP")


def _sized(code8: int, code32: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((code8, len(data))) + data
    return bytes((code32,)) + _U4.pack(len(data)) + data


def _encode_int(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x55" + _I1.pack(value)
    if -(1 << 63) <= value < 1 << 63:
        return b"\x81" + _I8.pack(value)
    if 0 <= value < 1 << 64:
        return b"\x80" + _U8.pack(value)
    return encode(str(value))


def _encode_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else b"\x70" + _U4.pack(value)


def _encode_ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else b"\x80" + _U8.pack(value)


def _encode_items(code8: int, code32: int, items: list[bytes]) -> bytes:
    content = b"".join(items)
    if len(content) < 255 and len(items) < 256:
        return bytes((code8, len(content) + 1, len(items))) + content
    return bytes((code32,)) + _U4.pack(len(content) + 4) + _U4.pack(len(items)) + content


def _encode_list(value: list[object] | tuple[object, ...]) -> bytes:
    if not value:
        return bytes((EMPTY_LIST,))
    return _encode_items(0xC0, 0xD0, [encode(item) for item in value])


def _encode_map(value: Mapping[object, object]) -> bytes:
    return _encode_items(0xC1, 0xD1, [encode(part) for pair in value.items() for part in pair])


def _encode_array(value: Array) -> bytes:
    items = [_U4.pack(len(each)) + each.encode("ascii") for each in value.symbols]
    content = b"\xb3" + b"".join(items)
    return b"\xf0" + _U4.pack(len(content) + 4) + _U4.pack(len(items)) + content


def _encode_text(value: str) -> bytes:
    return _sized(0xA1, 0xB1, value.encode(errors="replace"))


def _encode_decimal(value: Decimal) -> bytes:
    """Encodes a decimal from its text: a number without an exact binary form is not rounded."""
    return _encode_text(str(value))


_WRITERS: Final[dict[type, Callable[..., bytes]]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    Symbol: lambda value: _sized(0xA3, 0xB3, value.encode("ascii", "replace")),
    Char: lambda value: b"\x73" + _U4.pack(ord(value)),
    str: _encode_text,
    bytes: lambda value: _sized(0xA0, 0xB0, value),
    UByte: lambda value: bytes((0x50, value)),
    UInt: _encode_uint,
    ULong: _encode_ulong,
    int: _encode_int,
    Float: lambda value: b"\x72" + _F4.pack(value),
    float: lambda value: b"\x82" + _F8.pack(value),
    datetime: lambda value: b"\x83" + _I8.pack(milliseconds(value)),
    UUID: lambda value: b"\x98" + value.bytes,
    Decimal: _encode_decimal,
    Opaque: lambda value: bytes((value.code,)) + value.data,
    Described: lambda value: b"\0" + encode(value.descriptor) + encode(value.value),
    Array: _encode_array,
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_map,
}
