"""The data types of the wire (section 1.5 of the standard), read and written.

Every read past the end and every value that the standard forbids is a malformed packet. Knows no
packet.
"""

from __future__ import annotations

from typing import Final

from protocols.mqtt.wire.reasons import malformed

MAX_VARINT: Final = 268_435_455
MAX_FIELD_BYTES: Final = 65_535


class TooLong(ValueError):
    """A value has more bytes than its field can hold."""


class Reader:
    """Reads one packet's body; nothing below it ever sees an incomplete one."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.position

    def take(self, count: int) -> bytes:
        start = self.position
        stop = start + count
        if stop > self.end:
            raise malformed(f"{count} bytes are announced, {self.end - start} are left")
        self.position = stop
        return self.data[start:stop]

    def rest(self) -> bytes:
        return self.take(self.left)

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def long(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        value, position = read_varint(self.data, self.position, self.end)
        self.position = position
        return value

    def binary(self) -> bytes:
        return self.take(self.short())

    def text(self) -> str:
        return read_text(self.binary())

    def done(self) -> None:
        if self.position != self.end:
            raise malformed(f"{self.left} bytes too many")


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Returns the number at `position`, and where it ends. It takes the fewest bytes that hold it
    [MQTT-1.5.5-1]."""
    value = shift = 0
    start = position
    while True:
        if position >= end:
            raise malformed("a variable length number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise malformed("a variable length number has more than four bytes")
    if byte == 0 and position - start > 1:
        raise malformed("a variable length number is longer than it needs to be")
    return value, position


def read_text(raw: bytes) -> str:
    """Reads well-formed UTF-8 [MQTT-1.5.4-1] without NUL [MQTT-1.5.4-2]. A zero width no-break
    space stays where it is [MQTT-1.5.4-3]."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("a string is not UTF-8") from None
    if "\0" in text:
        raise malformed("a string has a NUL character in it")
    return text


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARINT:
        raise ValueError(f"{value} is more than a variable length number can say")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(value: bytes) -> bytes:
    if len(value) > MAX_FIELD_BYTES:
        raise TooLong(f"{len(value)} bytes do not fit in a field of {MAX_FIELD_BYTES}")
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    return binary(value.encode())
