"""SASL before AMQP: the frames of the security layer, coded and answered here.

The engine's own server side knows neither PLAIN nor our users, so it never sees these bytes. Pure:
bytes in, bytes and a wish to authenticate out; who may enter is decided by whoever carries that
wish to the shared seam, in as many steps as the mechanism takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from protocols.amqp10.errors import DECODE_ERROR, FRAMING_ERROR, NOT_ALLOWED, Amqp10Error
from protocols.amqp10.wire.types import Array, Described, Malformed, UByte, ULong, decode, encode
from queue_core.access.login import Begin, Continue
from queue_core.errors import AccessRefused

HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
FRAME_TYPE: Final = 1
MAX_FRAME: Final = 4096  # [5.3.1]: no SASL frame is larger than 512; some clients' tokens are

MECHANISMS: Final = 0x40
INIT: Final = 0x41
CHALLENGE: Final = 0x42
RESPONSE: Final = 0x43
OUTCOME: Final = 0x44
OK, REFUSED, TEMPORARY = 0, 1, 4


class State(Enum):
    AWAITING_HEADER = auto()
    AWAITING_INIT = auto()
    AWAITING_RESPONSE = auto()
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()
    REFUSED = auto()


AWAITED: Final = {
    State.AWAITING_INIT: (INIT, "sasl-init"),
    State.AWAITING_RESPONSE: (RESPONSE, "sasl-response"),
}
"""Where a frame may come, and which one: nothing else is legal."""


Wish = Begin | Continue


class Sasl:
    """From the SASL header to the outcome."""

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self.state = State.AWAITING_HEADER
        self.output = b""
        self._offered = tuple(mechanisms)
        self._input = b""

    def receive(self, data: bytes) -> Wish | None:
        """Raises Amqp10Error for what is no SASL, AccessRefused for a mechanism that is not
        offered."""
        self._input += data
        if self.state is State.AWAITING_HEADER:
            if len(self._input) < len(HEADER):
                return None
            self._input = self._input[len(HEADER) :]
            self.output += HEADER + frame(MECHANISMS, [Array(self._offered)])
            self.state = State.AWAITING_INIT
        awaited = AWAITED.get(self.state)
        if awaited is not None:
            fields = self._frame(*awaited)
            if fields is not None:
                is_first = self.state is State.AWAITING_INIT
                self.state = State.AUTHENTICATING
                return self._begin(fields) if is_first else Continue(_bytes(fields, 0))
        elif len(self._input) > MAX_FRAME:
            raise Amqp10Error(FRAMING_ERROR, "more than one SASL frame before the answer")
        return None

    def _frame(self, code: int, name: str) -> list[object] | None:
        data = self._input
        if len(data) < 8:
            return None
        size = int.from_bytes(data[:4])
        if not 8 <= size <= MAX_FRAME or data[4] < 2 or data[5] != FRAME_TYPE:
            raise Amqp10Error(FRAMING_ERROR, f"a SASL frame has up to {MAX_FRAME} bytes and type 1")
        if len(data) < size:
            return None
        self._input = data[size:]
        try:
            body, _ = decode(data[:size], 4 * data[4])
        except Malformed as error:
            raise Amqp10Error(DECODE_ERROR, f"a SASL frame that is none: {error}") from None
        if isinstance(body, Described) and body.descriptor == code and isinstance(body.value, list):
            return body.value
        raise Amqp10Error(NOT_ALLOWED, f"only {name} may come here")

    def _begin(self, fields: list[object]) -> Begin:
        mechanism = str(fields[0]) if fields else ""
        if mechanism not in self._offered:
            raise AccessRefused(
                f"mechanism '{mechanism[:40]}' is not offered; use one of "
                f"{', '.join(self._offered)}"
            )
        return Begin(mechanism, _bytes(fields, 1))

    def challenge(self, data: bytes) -> None:
        self.state = State.AWAITING_RESPONSE
        self.output += frame(CHALLENGE, [data])

    def accept(self, data: bytes = b"") -> None:
        """With what the mechanism still has to say [5.3.3.6]."""
        self.state = State.AUTHENTICATED
        self.output += frame(OUTCOME, [UByte(OK), data] if data else [UByte(OK)])

    def refuse(self, *, is_temporary: bool = False) -> None:
        self.state = State.REFUSED
        self.output += frame(OUTCOME, [UByte(TEMPORARY if is_temporary else REFUSED)])

    def take_output(self) -> bytes:
        output, self.output = self.output, b""
        return output

    def rest(self) -> bytes:
        """What came after the last SASL frame, and belongs to AMQP."""
        rest, self._input = self._input, b""
        return rest


def _bytes(fields: list[object], place: int) -> bytes:
    value = fields[place] if len(fields) > place else None
    return value if isinstance(value, bytes) else b""


def frame(code: int, fields: list[object]) -> bytes:
    body = encode(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4) + bytes((2, FRAME_TYPE, 0, 0)) + body
