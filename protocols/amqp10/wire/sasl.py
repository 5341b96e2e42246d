"""The frames of SASL, coded and decoded: bytes in, bytes and steps of a login out.

Proton's own server side knows neither PLAIN nor the gateway's users, so it never sees these bytes.
Who may enter is decided elsewhere, in as many steps as the mechanism takes (`security_layer`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocols.amqp10.errors import DECODE_ERROR, FRAMING_ERROR, NOT_ALLOWED, Amqp10Error
from protocols.amqp10.states import SASL_RECEIVED, SaslState, step
from protocols.amqp10.wire.types import Array, Described, Malformed, UByte, ULong, decode, encode
from queue_core.access.login import Begin, Continue
from queue_core.errors import AccessRefused

HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
FRAME_TYPE: Final = 1
MAX_FRAME_BYTES: Final = 4096  # [5.3.1] says 512; some clients' tokens are larger

MECHANISMS: Final = 0x40
CHALLENGE: Final = 0x42
OUTCOME: Final = 0x44
OK, REFUSED, TEMPORARY = 0, 1, 4  # codes of an outcome [5.3.3.6]


class Sasl:
    """One client's SASL exchange, from the protocol header to the outcome."""

    def __init__(self, offered: Callable[[], Sequence[str]]) -> None:
        self.state = SaslState.AWAITING_HEADER
        self.output = b""
        self._offered = offered  # tells the mechanisms, once it is known who asks
        self._input = b""

    def receive(self, data: bytes) -> Begin | Continue | None:
        """Takes some input; a step of the login, when one is whole. Raises Amqp10Error for what is
        no SASL, AccessRefused for a mechanism that is not offered."""
        self._input += data
        if self.state is SaslState.AWAITING_HEADER:
            if len(self._input) < len(HEADER):
                return None
            self._input = self._input[len(HEADER) :]
            self.output += HEADER + frame(MECHANISMS, [Array(tuple(self._offered()))])
            self.state = SaslState.AWAITING_INIT
        if self.state is SaslState.AUTHENTICATING:
            if len(self._input) > MAX_FRAME_BYTES:
                raise Amqp10Error(FRAMING_ERROR, "more than one SASL frame before the answer")
            return None
        is_first = self.state is SaslState.AWAITING_INIT
        fields = self._frame()
        if fields is None:
            return None
        return self._begin(fields) if is_first else Continue(_bytes(fields, 0))

    def _frame(self) -> list[object] | None:
        """Decodes the next frame, if it is all here, and makes the move that it stands for."""
        data = self._input
        if len(data) < 8:
            return None
        size = int.from_bytes(data[:4])
        if not 8 <= size <= MAX_FRAME_BYTES or data[4] < 2 or data[5] != FRAME_TYPE:
            raise Amqp10Error(
                FRAMING_ERROR, f"a SASL frame has up to {MAX_FRAME_BYTES} bytes and type 1"
            )
        if len(data) < size:
            return None
        self._input = data[size:]
        try:
            body, _ = decode(data[:size], 4 * data[4])
        except Malformed as error:
            raise Amqp10Error(DECODE_ERROR, f"a SASL frame that is none: {error}") from None
        if not isinstance(body, Described) or not isinstance(body.value, list):
            raise Amqp10Error(NOT_ALLOWED, "a SASL frame has a performative of SASL, and no other")
        code = body.descriptor if isinstance(body.descriptor, int) else -1
        self.state = step(SASL_RECEIVED, self.state, code)
        return body.value

    def _begin(self, fields: list[object]) -> Begin:
        mechanism, offered = str(fields[0]) if fields else "", self._offered()
        if mechanism not in offered:
            raise AccessRefused(
                f"mechanism '{mechanism[:40]}' is not offered; use one of {', '.join(offered)}"
            )
        return Begin(mechanism, _bytes(fields, 1))

    def challenge(self, data: bytes) -> None:
        """Asks the client for another step of its login."""
        self.state = SaslState.AWAITING_RESPONSE
        self.output += frame(CHALLENGE, [data])

    def accept(self, data: bytes = b"") -> None:
        """Lets the client in, with what the mechanism still has to say [5.3.3.6]."""
        self.state = SaslState.AUTHENTICATED
        self.output += frame(OUTCOME, [UByte(OK), data] if data else [UByte(OK)])

    def refuse(self, *, is_temporary: bool = False) -> None:
        """Turns the client away; temporary, if it may try the same again later."""
        self.state = SaslState.REFUSED
        self.output += frame(OUTCOME, [UByte(TEMPORARY if is_temporary else REFUSED)])

    def take_output(self) -> bytes:
        """Takes everything to send since the last time."""
        output, self.output = self.output, b""
        return output

    def rest(self) -> bytes:
        """Takes what came after the last SASL frame, and belongs to AMQP."""
        rest, self._input = self._input, b""
        return rest


def _bytes(fields: list[object], place: int) -> bytes:
    value = fields[place] if len(fields) > place else None
    return value if isinstance(value, bytes) else b""


def frame(code: int, fields: list[object]) -> bytes:
    """Encodes one SASL frame."""
    body = encode(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4) + bytes((2, FRAME_TYPE, 0, 0)) + body
