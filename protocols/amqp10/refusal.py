"""The refusal of an AMQP 1.0 client by a node that does not serve: the outcome "temporary error" of
SASL, or without SASL an open and a close with amqp:connection:forced."""

from __future__ import annotations

from typing import Final

from protocols.amqp10.wire.sasl import (
    AMQP_HEADER,
    HEADER,
    MECHANISMS,
    OUTCOME,
    TEMPORARY,
    frame,
)
from protocols.amqp10.wire.types import Array, Described, Symbol, UByte, ULong, encode

OPEN: Final = 0x10
CLOSE: Final = 0x18
ERROR: Final = 0x1D
FORCED: Final = "amqp:connection:forced"
FRAME_HEAD_BYTES: Final = 8


def refusal(received: bytes, reason: str) -> tuple[bytes, bool]:
    """Says what a client hears after these bytes, and whether it is the last word."""
    if len(received) < len(HEADER):
        return b"", False
    if received.startswith(HEADER):
        words = HEADER + frame(MECHANISMS, [Array((Symbol("ANONYMOUS"), Symbol("PLAIN")))])
        if not _has_frame(received[len(HEADER) :]):
            return words, False
        return words + frame(OUTCOME, [UByte(TEMPORARY)]), True
    error = Described(ULong(ERROR), [Symbol(FORCED), reason])
    words = AMQP_HEADER + _performative(OPEN, ["howdah"])
    return words + _performative(CLOSE, [error]), True


def _has_frame(data: bytes) -> bool:
    return len(data) >= FRAME_HEAD_BYTES and len(data) >= int.from_bytes(data[:4])


def _performative(code: int, fields: list[object]) -> bytes:
    body = encode(Described(ULong(code), fields))
    return (FRAME_HEAD_BYTES + len(body)).to_bytes(4) + b"\x02\x00\x00\x00" + body
