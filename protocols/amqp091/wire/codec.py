"""Methods to bytes and back, by their field tables; one generic way for all of them.

The few methods that come by the hundred thousand have a second, measured way beside this one: see
`deliveries` and `machine`, and the tests that hold both ways to the same bytes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.frames import METHOD, frame
from protocols.amqp091.wire.methods import METHODS, Domain, Method
from protocols.amqp091.wire.tables import decode_table, encode_table, require_few

LARGEST_ARGUMENTS_BYTES: Final = 32_768  # of a method with a table in it
MAX_SHORT_STRING_BYTES: Final = 255

_INDEX: Final = Struct(">I")
_NUMBERS: Final = {
    Domain.OCTET: Struct(">B"),
    Domain.SHORT: Struct(">H"),
    Domain.LONG: Struct(">I"),
    Domain.LONG_LONG: Struct(">Q"),
}


def encode_method(method: Method) -> bytes:
    """The payload of a method frame. Raises ValueError for a short string that is too long."""
    parts = [_INDEX.pack(method.index)]
    bits, count = 0, 0
    for name, domain in METHODS[method.index].fields:
        value = getattr(method, name)
        if domain is Domain.BIT:
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(bytes((bits,)))
            bits, count = 0, 0
        parts.append(_encode_field(domain, value))
    if count:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def method_frame(channel: int, method: Method) -> bytes:
    return frame(METHOD, channel, encode_method(method))


def decode_method(payload: bytes) -> Method:
    """The method that a whole payload holds. Raises 501 where it holds none, as RabbitMQ does, 540
    where we know none by that number, and 530 where it says more than we keep."""
    if len(payload) < _INDEX.size:
        raise Amqp091Error(ReplyCode.FRAME_ERROR, "a method frame without a method")
    index = _INDEX.unpack_from(payload)[0]
    layout = METHODS.get(index)
    if layout is None:
        raise Amqp091Error(
            ReplyCode.NOT_IMPLEMENTED,
            f"no method {index & 0xFFFF} of class {index >> 16} in AMQP 0.9.1 as RabbitMQ has it",
        )
    try:
        values, end = _decode_fields(payload, layout.fields)
    except Amqp091Error as error:
        is_too_much = error.code is ReplyCode.NOT_ALLOWED  # and well formed
        code = error.code if is_too_much else ReplyCode.FRAME_ERROR
        raise Amqp091Error(code, f"{layout.kind.__name__}: {error.text}") from None
    except (IndexError, StructError, UnicodeDecodeError):
        raise Amqp091Error(
            ReplyCode.FRAME_ERROR, f"{layout.kind.__name__} has malformed fields"
        ) from None
    if end != len(payload):
        raise Amqp091Error(
            ReplyCode.FRAME_ERROR,
            f"{layout.kind.__name__} has {len(payload) - end} bytes too many",
        )
    return layout.kind(*values)


def _decode_fields(
    payload: bytes, fields: tuple[tuple[str, Domain], ...]
) -> tuple[list[object], int]:
    values: list[object] = []
    position = _INDEX.size
    bit = 0  # which bit of the octet at `position` comes next; 0: a new octet
    for _, domain in fields:
        if domain is Domain.BIT:
            if bit == 8:
                position, bit = position + 1, 0
            values.append(bool(payload[position] >> bit & 1))
            bit += 1
            continue
        if bit:
            position, bit = position + 1, 0
        value, position = _decode_field(domain, payload, position)
        values.append(value)
    return values, position + 1 if bit else position


def _encode_field(domain: Domain, value: object) -> bytes:
    number = _NUMBERS.get(domain)
    if number is not None:
        return number.pack(value)
    if domain is Domain.SHORT_STR:
        return short_string(str(value))
    if domain is Domain.LONG_STR:
        assert isinstance(value, bytes)
        return _INDEX.pack(len(value)) + value
    return encode_table(value)  # type: ignore[arg-type]


def _decode_field(domain: Domain, payload: bytes, position: int) -> tuple[object, int]:
    number = _NUMBERS.get(domain)
    if number is not None:
        return number.unpack_from(payload, position)[0], position + number.size
    if domain is Domain.SHORT_STR:
        return decode_short_string(payload, position)
    if domain is Domain.TABLE:
        require_few(payload, position, ReplyCode.NOT_ALLOWED)
        if len(payload) > LARGEST_ARGUMENTS_BYTES:  # a table is kept with what it declares
            raise Amqp091Error(
                ReplyCode.NOT_ALLOWED,
                f"a method has {LARGEST_ARGUMENTS_BYTES} bytes of arguments at most",
            )
        return decode_table(payload, position)
    end = position + 4 + int(_INDEX.unpack_from(payload, position)[0])
    if end > len(payload):
        raise IndexError
    return payload[position + 4 : end], end


def short_string(text: str) -> bytes:
    encoded = text.encode(errors="surrogatepass")
    if len(encoded) > MAX_SHORT_STRING_BYTES:
        raise ValueError(f"a short string of {len(encoded)} bytes")
    return bytes((len(encoded),)) + encoded


def decode_short_string(payload: bytes, position: int) -> tuple[str, int]:
    """Raises IndexError or UnicodeDecodeError."""
    end = position + 1 + payload[position]
    if end > len(payload):
        raise IndexError
    return payload[position + 1 : end].decode(), end
