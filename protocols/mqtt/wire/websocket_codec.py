"""The server's side of RFC 6455 as far as MQTT needs it: no socket, bytes in, bytes and facts out.

Payload is passed on as it arrives, whatever frames and fragments it came in: MQTT packets need not
be aligned with them [MQTT-6.0.0-2]. So nothing is buffered here but a frame's header.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from enum import IntEnum
from hashlib import sha1
from struct import Struct, iter_unpack
from typing import Final

HANDSHAKE_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # the second is what 3.1 clients say
MAX_REQUEST_BYTES: Final = 16 * 1024  # an upgrade request may have
MOST_FRAMES: Final = 256  # are taken before somebody looks at the time
LONG_LENGTHS: Final = {126: 2, 127: 8}  # bytes of a length that seven bits cannot say


# Tells whether a page may connect, by the headers Origin and Host; None: the header was not sent.
Admission = Callable[[str | None, str | None], bool]


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    POLICY_VIOLATION = 1008


class WebSocketError(Exception):
    """The peer broke RFC 6455: the connection ends with this code."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UpgradeRefused(Exception):
    """The request is no upgrade that we can answer; carries the HTTP answer."""

    def __init__(self, status: str, text: str, header: str = "") -> None:
        super().__init__(text)
        body = text.encode()
        self.answer = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\n"
            f"{header}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body


def answer_upgrade(request: bytes, path: str, admits: Admission) -> bytes:
    """Returns the answer to an upgrade request, whole and with its empty line. Raises
    UpgradeRefused."""
    try:
        first, *lines = request.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        headers = _headers(lines)
    except ValueError:
        raise UpgradeRefused("400 Bad Request", "this is no HTTP request\n") from None
    if method != "GET" or version != "HTTP/1.1":
        raise UpgradeRefused("405 Method Not Allowed", "upgrade with GET and HTTP/1.1\n")
    if target.partition("?")[0] not in (path, "/"):  # where clients ask that name no path
        raise UpgradeRefused("404 Not Found", f"MQTT over WebSocket is at {path}\n")
    if "websocket" not in headers.get("upgrade", "").lower() or (
        "upgrade" not in headers.get("connection", "").lower()
    ):
        raise UpgradeRefused(
            "426 Upgrade Required", "this is a WebSocket\n", "Upgrade: websocket\r\n"
        )
    if not admits(headers.get("origin"), headers.get("host")):
        raise UpgradeRefused(
            "403 Forbidden",
            "pages of this origin may not connect; list it in listeners.mqtt_ws.allowed_origins\n",
        )
    if headers.get("sec-websocket-version") != "13":
        raise UpgradeRefused(
            "426 Upgrade Required", "WebSocket version 13\n", "Sec-WebSocket-Version: 13\r\n"
        )
    key = headers.get("sec-websocket-key", "").encode("latin-1")
    if not _is_key(key):
        raise UpgradeRefused("400 Bad Request", "Sec-WebSocket-Key is no 16 bytes in base64\n")
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((name for name in SUBPROTOCOLS if name in offered), None)
    if chosen is None:  # [MQTT-6.0.0-3]
        raise UpgradeRefused("400 Bad Request", "offer the subprotocol mqtt\n")
    accept = b64encode(sha1(key + HANDSHAKE_GUID, usedforsecurity=False).digest()).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n"  # 6.0.0-4
    ).encode()


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        name = name.strip().lower()
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except Base64Error:
        return False


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """Returns one whole frame, unmasked, as a server sends it."""
    return frame_head(opcode, len(payload)) + payload


def frame_head(opcode: Opcode, size: int) -> bytes:
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 65_536:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")


# The heads of binary frames that say their size in seven bits, by that size; and in two bytes
SHORT_HEADS: Final = tuple(bytes((0x80 | Opcode.BINARY, size)) for size in range(126))
MOST_ROW_PACKETS: Final = 256  # packets of one length are looked for at a time
MIDDLE_HEAD: Final = Struct(">HH")
MIDDLE_KIND: Final = (0x80 | Opcode.BINARY) << 8 | 126


def packet_frames(data: bytes) -> bytes:
    """Puts a binary frame around each of the MQTT packets, which are whole and stand one behind the
    other. A frame may hold several [MQTT-6.0.0-2], but Paho C reads no further than the first, and
    waits. PUBLISHes of 100 bytes: 0.1 us each in a row of the same length, 0.25 us one by one."""
    parts: list[bytes] = []
    at, size = 0, len(data)
    while at < size:
        length = data[at + 1]
        end = at + 2 + length if length < 0x80 else _end_of_long(data, at)
        octets = end - at
        if octets < 126:
            head = SHORT_HEADS[octets]
        elif octets < 65_536:
            head = MIDDLE_HEAD.pack(MIDDLE_KIND, octets)
        else:
            head = frame_head(Opcode.BINARY, octets)
        if end < size and data[end + 1] == length:
            until = _end_of_row(data, at, octets)
            row = iter_unpack(f"{octets}s", data[at:until])  # a third of what slices take
            parts += (head, head.join([packet for (packet,) in row]))
            at = until
        else:
            parts += (head, data[at:end])
            at = end
    return b"".join(parts)


def _end_of_row(data: bytes, at: int, octets: int) -> int:
    """Returns where the row of packets ends that are as long as the first. Each begins where the
    one before it ends, so their lengths stand at equal distances."""
    until = min(len(data), at + MOST_ROW_PACKETS * octets)
    count = (until - at) // octets
    for place in range(at + 1, at + 5):
        lengths = data[place : at + count * octets : octets]
        count = len(lengths) - len(lengths.lstrip(lengths[:1]))
        if data[place] < 0x80:
            break
    return at + count * octets


def _end_of_long(data: bytes, at: int) -> int:
    """Returns where the packet that begins here ends; its remaining length has more than one
    byte."""
    if data[at + 2] < 0x80:
        return at + 3 + (data[at + 1] & 0x7F | data[at + 2] << 7)
    length = shift = 0
    position = at + 1
    while True:
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + length
        shift += 7


def masked(payload: bytes, mask: bytes, offset: int = 0) -> bytes:
    """Masks or unmasks bytes, as one large number: 60 times faster than byte by byte."""
    size = len(payload)
    if not size:
        return b""
    start = offset % 4
    key = (mask[start:] + mask[:start]) * (size // 4 + 1)
    number = int.from_bytes(payload, "little") ^ int.from_bytes(key[:size], "little")
    return number.to_bytes(size, "little")


class Receiver:
    """Takes what a client sends after the upgrade. `answers` are control frames to send back.

    Walks through a chunk in place: cut off frame by frame, one of 256 KiB with a byte in each held
    up everybody for 0.4 s, and for 0.1 s so."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.is_closed = False
        self.is_unfinished = False  # there is more to take, without more input
        self.idle_frames = 0  # control frames and empty ones so far
        self._buffer = b""
        self._at = 0  # bytes of it that were taken
        self._opcode: Opcode | None = None  # the kind of the frame whose payload comes now
        self._left = 0
        self._mask = b""
        self._offset = 0
        self._is_fragmented = False  # a message is open that more frames belong to

    def receive(self, data: bytes, most: int = MOST_FRAMES) -> bytes:
        """Returns the payload of binary messages in the data, of so many frames. Raises
        WebSocketError."""
        frames = 0
        self._buffer = self._buffer + data if self._buffer else data
        self._at = 0
        size = len(self._buffer)
        payload: list[bytes] = []
        while self._at < size and not self.is_closed and frames < most:
            if self._opcode is None:
                frames += 1
                if not self._begin_frame():
                    break
            elif self._opcode >= Opcode.CLOSE:
                if size - self._at < self._left:
                    break
                self._control(masked(self._take(self._left), self._mask))
                continue
            payload.append(self._some_payload())
        self._buffer = self._buffer[self._at :]
        self.is_unfinished = frames >= most and bool(self._buffer) and not self.is_closed
        return b"".join(payload)

    def keep(self, data: bytes) -> None:
        """Keeps data that is not to be looked at yet."""
        self._buffer += data
        self.is_unfinished = True

    def _take(self, count: int) -> bytes:
        start = self._at
        self._at = start + count
        return self._buffer[start : self._at]

    def _begin_frame(self) -> bool:
        """Reads a frame's header; False: it is not all here."""
        buffer, at = self._buffer, self._at
        here = len(buffer) - at
        if here < 2:
            return False
        first, second = buffer[at], buffer[at + 1]
        length = second & 0x7F
        extra = LONG_LENGTHS.get(length, 0)
        opcode = self._check(first, second, length)
        if here < 6 + extra:
            return False
        at += 2
        if extra:
            length = int.from_bytes(buffer[at : at + extra], "big")
            at += extra
        self._mask = buffer[at : at + 4]
        self._at = at + 4
        self._left, self._offset, self._opcode = length, 0, opcode
        if not length or opcode >= Opcode.CLOSE:
            self.idle_frames += 1
        if opcode < Opcode.CLOSE:
            self._is_fragmented = not first & 0x80
        elif length == 0:
            self._control(b"")
        return True

    def _check(self, first: int, second: int, length: int) -> Opcode:
        broken = CloseCode.PROTOCOL_ERROR
        if first & 0x70:
            raise WebSocketError(broken, "a frame with reserved bits")
        if not second & 0x80:
            raise WebSocketError(broken, "a client's frame without a mask")
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise WebSocketError(broken, "a frame with an unknown opcode") from None
        if opcode >= Opcode.CLOSE:
            if length > 125 or not first & 0x80:
                raise WebSocketError(broken, "a control frame that is long or fragmented")
        elif (opcode is Opcode.CONTINUATION) != self._is_fragmented:
            raise WebSocketError(broken, "fragments out of order")
        elif opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            raise WebSocketError(CloseCode.UNSUPPORTED_DATA, "MQTT is carried in binary frames")
        return opcode

    def _some_payload(self) -> bytes:
        if self._opcode is None or self._opcode >= Opcode.CLOSE:
            return b""
        part = self._take(min(self._left, len(self._buffer) - self._at))
        plain = masked(part, self._mask, self._offset)
        self._offset += len(part)
        self._left -= len(part)
        if not self._left:
            self._opcode = None
        return plain

    def _control(self, payload: bytes) -> None:
        opcode, self._opcode, self._left = self._opcode, None, 0
        if opcode is Opcode.PING:
            self.answers.append(frame(Opcode.PONG, payload))
        elif opcode is Opcode.CLOSE:
            self.is_closed = True
            self.answers.append(frame(Opcode.CLOSE, payload[:2]))
