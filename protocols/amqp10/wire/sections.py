"""A message's sections: cut apart on the way in, put together again on the way out.

`native`, which the core keeps beside the body, is the message annotations, the properties and the
application properties as the sender wrote them. Before them stands how the body was written, when
that was not as one short data section:

    (nothing)            one data section, in its shortest encoding
    0x01 n opening       one data section or one amqp-value string, opened with those n bytes
    0x02                 the body is all its sections, encoded as they were
    0x03 n (m opening size)*n   n data sections, and the body is what was in them
    0x80 | any of them   followed by the footer's size and the footer, then as above

The header is not kept: it is written anew for each delivery. Delivery annotations were for us.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from protocols.amqp10.errors import RESOURCE_LIMIT, Amqp10Error
from protocols.amqp10.wire.types import (
    MOST_VALUES,
    Described,
    Malformed,
    decode_all,
    is_crowded,
    skip,
)

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

OPENED: Final = 0x01
ENCODED: Final = 0x02
MANY_SECTIONS: Final = 0x03
FOOTED: Final = 0x80
SHORT_DATA: Final = b"\x00\x53\x75\xa0"
LONG_DATA: Final = b"\x00\x53\x75\xb0"
SHORT_TEXT: Final = b"\x00\x53\x77\xa1"
LONG_TEXT: Final = b"\x00\x53\x77\xb1"
_SIZE: Final = Struct(">I")
_COUNT: Final = Struct(">H")
ALLOWED: Final = {DATA: (0xA0, 0xB0), SEQUENCE: (0x45, 0xC0, 0xD0)}
SHORT: Final = b"\xc0\xc1"  # lists and maps of less than 256 bytes
OPENED_LONG: Final = bytes((OPENED, 8))  # followed by the opening of a long data section
MAX_DATA_SECTIONS: Final = 65_535
MOST_BODY_VALUES: Final = 32_768  # of another protocol's body that is read as encoded values
# A message is read in one piece, however many wait for their turn: these take some 30 ms.
LARGEST_SECTIONS: Final = 131_072  # bytes before the body, as much as a frame of 0.9.1 holds
MOST_BODY_SECTIONS: Final = 16_384


class Parts(NamedTuple):
    """A message as it came in."""

    header: bytes  # the section, or nothing
    native: bytes
    annotations: bytes
    properties: bytes
    body: bytes


def section_at(data: bytes, position: int) -> tuple[int, int]:
    """The code of the section that begins there, and where its value begins."""
    try:
        if data[position] != 0:
            raise Malformed("a section that is not a described value")
        kind = data[position + 1]
        if kind == 0x53:
            return data[position + 2], position + 3
        if kind == 0x80:
            return int.from_bytes(data[position + 2 : position + 10]), position + 10
        end = skip(data, position + 1)
        return NAMES[str(decode_all(data[position + 1 : end]))], end
    except (IndexError, KeyError):
        raise Malformed("a section that AMQP 1.0 does not have") from None


def split(data: bytes) -> Parts:
    """Cuts a message apart. Raises Malformed, Amqp10Error. One pass, and no value is read."""
    try:
        return _split(data)
    except IndexError:
        raise Malformed("a section that ends too early") from None


def _split(data: bytes) -> Parts:
    size, position, last = len(data), 0, HEADER - 1
    header = annotations = properties = b""
    kept = -1
    while position < size:
        # As nearly everybody writes them, in place: a third of the time of the two calls.
        if data[position + 1] == 0x53 and not data[position]:
            code, value = data[position + 2], position + 3
        else:
            code, value = section_at(data, position)
        if code >= DATA:
            break
        if code <= last:
            raise Malformed(f"section 0x{code:02x} is out of order, or comes twice")
        is_short = data[value] in SHORT
        last, end = code, value + 2 + data[value + 1] if is_short else skip(data, value)
        if end > size:
            raise Malformed("a section that ends too early")
        if code == HEADER:
            header = data[position:end]
        elif code != DELIVERY_ANNOTATIONS:
            if kept < 0:
                kept = position
            if code == ANNOTATIONS:
                annotations = data[position:end]
            elif code == PROPERTIES:
                properties = data[position:end]
        position = end
    if position > LARGEST_SECTIONS:
        raise Amqp10Error(
            RESOURCE_LIMIT,
            f"annotations and properties of {position} bytes; {LARGEST_SECTIONS} are the most, put "
            "the rest into the body",
        )
    if position > MOST_VALUES and is_crowded(data[:position]):
        raise _too_many()
    native = data[kept:position] if kept >= 0 else b""
    # The short way: one data section in its shortest encoding, to the end. It takes 0.3 us where
    # `_body` takes 2.
    start = data[position : position + 4]
    if start == SHORT_DATA and position + 4 < size == position + 5 + data[position + 4]:
        return Parts(header, native, annotations, properties, data[position + 5 :])
    if start == LONG_DATA and size == position + 8 + int.from_bytes(
        data[position + 4 : position + 8]
    ):
        # The same for bodies of more than 255 bytes, and for senders that never write it short.
        opening = b"" if size - position > 263 else OPENED_LONG + data[position : position + 8]
        return Parts(header, opening + native, annotations, properties, data[position + 8 :])
    prefix, body = _body(data, position)
    return Parts(header, prefix + native, annotations, properties, body)


def _too_many() -> Amqp10Error:
    return Amqp10Error(
        RESOURCE_LIMIT,
        f"more than {MOST_VALUES} values beside the body; put them into the body",
    )


def _body(data: bytes, position: int) -> tuple[bytes, bytes]:
    size = len(data)
    spans: list[tuple[int, int, int, int]] = []
    footer = b""
    start = position
    while position < size:
        code, value = section_at(data, position)
        end = skip(data, value)
        if end > size:
            raise Malformed("a section that ends too early")
        if code == FOOTER:
            if end != size:
                raise Malformed("a section after the footer")
            footer = data[position:end]
            if len(footer) > LARGEST_SECTIONS or is_crowded(footer):
                raise _too_many()
            break
        if not DATA <= code <= VALUE:
            raise Malformed(f"section 0x{code:02x} is out of order")
        if spans and (code != spans[0][0] or code == VALUE):
            raise Malformed("a body of more than one kind")
        if code != VALUE and data[value] not in ALLOWED[code]:
            raise Malformed(f"section 0x{code:02x} holds a value of another type")
        if len(spans) == MOST_BODY_SECTIONS:
            raise Amqp10Error(
                RESOURCE_LIMIT, f"a body of more than {MOST_BODY_SECTIONS} sections; use fewer"
            )
        spans.append((code, position, value, end))
        position = end
    stop = size - len(footer)
    lead, body = _described(data, start, stop, spans)
    return _footed(lead, footer), body


def _described(
    data: bytes, start: int, stop: int, spans: list[tuple[int, int, int, int]]
) -> tuple[bytes, bytes]:
    """Splits a body into how it is written, and its content."""
    if len(spans) == 1:
        code, first, value, end = spans[0]
        inside = _inside(data, value)
        if inside and (code == DATA or data[value] in (0xA1, 0xB1)):
            opening = data[first:inside]
            if opening == data_opening(end - inside):
                return b"", data[inside:end]
            return bytes((OPENED, len(opening))) + opening, data[inside:end]
    if len(spans) > 1 and spans[0][0] == DATA and len(spans) <= MAX_DATA_SECTIONS:
        lead, bodies = [bytes((MANY_SECTIONS,)) + _COUNT.pack(len(spans))], []
        for _, first, value, end in spans:
            inside = _inside(data, value)
            opening = data[first:inside]
            lead.append(bytes((len(opening),)) + opening + _SIZE.pack(end - inside))
            bodies.append(data[inside:end])
        return b"".join(lead), b"".join(bodies)
    return bytes((ENCODED,)), data[start:stop]


def _inside(data: bytes, value: int) -> int:
    """Finds where the content of a binary or a string begins; 0 for any other value."""
    code = data[value]
    if code in (0xA0, 0xA1):
        return value + 2
    return value + 5 if code in (0xB0, 0xB1) else 0


def data_opening(size: int) -> bytes:
    if size < 256:
        return SHORT_DATA + bytes((size,))
    return LONG_DATA + _SIZE.pack(size)


def text_opening(size: int) -> bytes:
    if size < 256:
        return SHORT_TEXT + bytes((size,))
    return LONG_TEXT + _SIZE.pack(size)


class Shape(NamedTuple):
    """The form of a body, as `native` tells how it is written."""

    kind: int  # 0: one data section, shortest
    opening: bytes
    many: tuple[tuple[bytes, int], ...]
    footer: bytes
    sections: bytes

    @classmethod
    def plain(cls, footer: bytes = b"") -> Shape:
        return cls(0, b"", (), footer, b"")

    @classmethod
    def encoded(cls, footer: bytes) -> Shape:
        return cls(ENCODED, b"", (), footer, b"")

    @classmethod
    def opened(cls, opening: bytes, footer: bytes) -> Shape:
        return cls(OPENED, opening, (), footer, b"")

    @classmethod
    def cut(cls, sizes: list[int], footer: bytes) -> Shape:
        return cls(
            MANY_SECTIONS, b"", tuple((data_opening(size), size) for size in sizes), footer, b""
        )

    @property
    def is_text(self) -> bool:
        return self.kind == OPENED and section_at(self.opening, 0)[0] == VALUE


def prefix_of(shape: Shape) -> bytes:
    """Encodes what stands before the sections in `native`."""
    if shape.kind == OPENED:
        lead = bytes((OPENED, len(shape.opening))) + shape.opening
    elif shape.kind == MANY_SECTIONS:
        lead = bytes((MANY_SECTIONS,)) + _COUNT.pack(len(shape.many))
        lead += b"".join(bytes((len(o),)) + o + _SIZE.pack(size) for o, size in shape.many)
    else:
        lead = bytes((shape.kind,)) if shape.kind else b""
    return _footed(lead, shape.footer)


def _footed(lead: bytes, footer: bytes) -> bytes:
    if not footer:
        return lead
    return bytes((FOOTED | (lead[0] if lead else 0),)) + _SIZE.pack(len(footer)) + footer + lead


def shape_of(native: bytes) -> Shape:
    if not native or native[0] == 0:
        return Shape(0, b"", (), b"", native)
    try:
        return _shape(native)
    except (IndexError, StructError):
        raise Malformed("stored properties that end too early") from None


def _shape(native: bytes) -> Shape:
    position, footer = 0, b""
    if native[0] & FOOTED:
        size = _SIZE.unpack_from(native, 1)[0]
        footer, position = native[5 : 5 + size], 5 + size
        if native[0] == FOOTED:
            return Shape(0, b"", (), footer, native[position:])
    kind = native[position]
    position += 1
    if kind == OPENED:
        end = position + 1 + native[position]
        return Shape(kind, native[position + 1 : end], (), footer, native[end:])
    many: list[tuple[bytes, int]] = []
    if kind == MANY_SECTIONS:
        count = _COUNT.unpack_from(native, position)[0]
        position += 2
        for _ in range(count):
            end = position + 1 + native[position]
            many.append((native[position + 1 : end], _SIZE.unpack_from(native, end)[0]))
            position = end + 4
    return Shape(kind, b"", tuple(many), footer, native[position:])


def written_body(shape: Shape, body: bytes) -> bytes:
    """The body's sections and the footer, byte for byte as they came."""
    if shape.kind == 0:
        written = data_opening(len(body)) + body
    elif shape.kind == OPENED:
        written = shape.opening + body
    elif shape.kind == ENCODED:
        written = body
    else:
        parts: list[bytes] = []
        position = 0
        for opening, size in shape.many:
            parts += (opening, body[position : position + size])
            position += size
        written = b"".join(parts)
    return written + shape.footer


def is_encoded_body(body: bytes) -> bool:
    """Whether the bytes are body sections: one amqp-value, or amqp-sequences, or none at all."""
    try:
        position = 0
        codes: list[int] = []
        while position < len(body):
            code, _ = section_at(body, position)
            end = skip(body, position)
            section = body[position:end]
            if len(codes) == MOST_BODY_SECTIONS or is_crowded(section, MOST_BODY_VALUES):
                return False
            value = decode_all(section)
            assert isinstance(value, Described)
            codes.append(code)
            position = end
    except Malformed:
        return False
    return codes == [VALUE] or set(codes) <= {SEQUENCE}


def value_of(section: bytes) -> object:
    """Decodes the value of a section. Raises Malformed."""
    value = decode_all(section)
    assert isinstance(value, Described)
    return value.value
