"""Frames: where one ends and the next begins.

`split` is the only function that ever sees an incomplete frame. The declared size is checked
against the limit before anything of the payload is kept.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from protocols.amqp091.errors import Amqp091Error, ReplyCode

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8

FRAME_START: Final = Struct(">BHI")  # kind, channel, size of the payload
FRAME_END: Final = 0xCE
FRAME_OVERHEAD_BYTES: Final = 8  # that are not payload
FRAME_MIN_SIZE: Final = 4096  # what every peer must take, and all there is before tune-ok

HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class FrameError(Amqp091Error):
    """The bytes cannot become a frame: nothing that follows can be understood either."""

    def __init__(self, text: str) -> None:
        super().__init__(ReplyCode.FRAME_ERROR, text)


class Frame(NamedTuple):
    """The place of a frame's payload in the buffer that it was found in."""

    kind: int
    channel: int
    start: int
    end: int


def split(buffer: bytes, position: int, frame_max: int) -> Frame | None:
    """The frame that begins at `position`; None while it is incomplete. Its last byte, the frame
    end, is at `end`. Raises 501 as soon as the bytes cannot become a frame."""
    available = len(buffer) - position
    if available < FRAME_START.size:
        if available and buffer[position] not in KINDS:
            raise _unknown(buffer[position])
        return None
    kind, channel, size = FRAME_START.unpack_from(buffer, position)
    if kind not in KINDS:
        raise _unknown(kind)
    if size > frame_max:  # as RabbitMQ: some clients forget the 8 bytes around a payload
        raise FrameError(
            f"a frame of {size + FRAME_OVERHEAD_BYTES} bytes; {frame_max} is the negotiated "
            "maximum, which the headers of a message must fit into"
        )
    start = position + FRAME_START.size
    end = start + size
    if end >= len(buffer):
        return None
    if buffer[end] != FRAME_END:
        raise FrameError(f"a frame ends with 0x{buffer[end]:02x} instead of 0xce")
    return Frame(kind, channel, start, end)


KINDS: Final = frozenset((METHOD, HEADER, BODY, HEARTBEAT))


def _unknown(kind: int) -> FrameError:
    return FrameError(f"unknown frame type {kind}")


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME_START.pack(kind, channel, len(payload)) + payload + b"\xce"
