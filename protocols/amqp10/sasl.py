"""SASL before AMQP: the frames of the security layer, coded and answered here.

The engine's own server side knows neither PLAIN nor our users, so it never sees these bytes. Pure:
bytes in, bytes and a wish to authenticate out; who may enter is decided by whoever carries that
wish to the shared seam. Every mechanism of one step fits; one with challenges would add a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protocols.amqp10.errors import DECODE_ERROR, FRAMING_ERROR, NOT_ALLOWED, Amqp10Error
from protocols.amqp10.types import Array, Described, Malformed, UByte, ULong, decode, encode
from queue_core.auth import ANONYMOUS, PLAIN, Credentials, Peer
from queue_core.errors import AccessRefused

HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
EXTERNAL: Final = "EXTERNAL"
ONE_STEP: Final = (PLAIN, EXTERNAL, ANONYMOUS)  # mechanisms that need no challenge
FRAME_TYPE: Final = 1
MAX_FRAME: Final = 4096  # [5.3.1]: no SASL frame is larger than 512; some clients' tokens are

MECHANISMS: Final = 0x40
INIT: Final = 0x41
OUTCOME: Final = 0x44
OK, REFUSED, TEMPORARY = 0, 1, 4


class State(Enum):
    AWAITING_HEADER = auto()
    AWAITING_INIT = auto()
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Find out who it is, then call `accept` or `refuse`."""

    credentials: Credentials


class Sasl:
    """From the SASL header to the outcome."""

    def __init__(self, mechanisms: Sequence[str], peer: Peer) -> None:
        self.state = State.AWAITING_HEADER
        self.output = b""
        self._offered = tuple(name for name in mechanisms if name in ONE_STEP)
        self._peer = peer
        self._input = b""

    def receive(self, data: bytes) -> Authenticate | None:
        """Raises Amqp10Error for what is no SASL, AccessRefused for what is no proof."""
        self._input += data
        if self.state is State.AWAITING_HEADER:
            if len(self._input) < len(HEADER):
                return None
            self._input = self._input[len(HEADER) :]
            self.output += HEADER + frame(MECHANISMS, [Array(self._offered)])
            self.state = State.AWAITING_INIT
        if self.state is State.AWAITING_INIT:
            fields = self._frame()
            if fields is not None:
                self.state = State.AUTHENTICATING
                return Authenticate(self._credentials(fields))
        elif len(self._input) > MAX_FRAME:
            raise Amqp10Error(FRAMING_ERROR, "more than one SASL frame before the outcome")
        return None

    def _frame(self) -> list[object] | None:
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
        if isinstance(body, Described) and body.descriptor == INIT and isinstance(body.value, list):
            return body.value
        raise Amqp10Error(NOT_ALLOWED, "only sasl-init may follow the mechanisms")

    def _credentials(self, fields: list[object]) -> Credentials:
        mechanism = str(fields[0]) if fields else ""
        response = fields[1] if len(fields) > 1 else None
        proof = response if isinstance(response, bytes) else b""
        if mechanism not in self._offered:
            raise AccessRefused(
                f"mechanism '{mechanism}' is not offered; use one of {', '.join(self._offered)}"
            )
        if mechanism == PLAIN:
            return Credentials.from_plain(proof)
        if mechanism == EXTERNAL:
            return Credentials(EXTERNAL, self._peer.tls_subject or "", proof)
        return Credentials(mechanism)

    def accept(self) -> None:
        self.state = State.AUTHENTICATED
        self.output += frame(OUTCOME, [UByte(OK)])

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


def frame(code: int, fields: list[object]) -> bytes:
    body = encode(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4) + bytes((2, FRAME_TYPE, 0, 0)) + body
