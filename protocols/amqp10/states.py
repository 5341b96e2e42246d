"""The states of an AMQP 1.0 connection, and which frame may come in which: the moves, as tables.

A connection goes through two layers, each with a table of its own: SASL logs the client in,
then AMQP begins. Flow, transfer and disposition have no rows: they belong to a link, and are legal
where their link is attached.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, TypeVar

from protocols.amqp10.errors import ILLEGAL_STATE, Amqp10Error


class SaslState(Enum):
    """The states of the security layer, in the order in which a login goes through them."""

    AWAITING_HEADER = "awaiting the protocol header"
    AWAITING_INIT = "awaiting sasl-init"
    AUTHENTICATING = "authenticating"  # the gateway looks at what the client said
    AWAITING_RESPONSE = "awaiting sasl-response"  # a challenge was sent
    AUTHENTICATED = "authenticated"  # the rest of the input belongs to AMQP
    REFUSED = "refused"


class State(Enum):
    """The states of a connection past its login, in the order in which it goes through them."""

    AWAITING_OPEN = "awaiting open"
    OPENING = "opening"  # the virtual host is looked for; nothing is handled meanwhile
    OPEN = "open"
    CLOSING = "closing"  # we have sent close
    CLOSED = "closed"


class Performative(IntEnum):
    """Frames that the tables know, by their descriptors."""

    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18
    SASL_INIT = 0x41
    SASL_RESPONSE = 0x43


StateT = TypeVar("StateT", SaslState, State)

SASL_RECEIVED: Final[Mapping[tuple[SaslState, int], SaslState]] = {
    (SaslState.AWAITING_INIT, Performative.SASL_INIT): SaslState.AUTHENTICATING,
    (SaslState.AWAITING_RESPONSE, Performative.SASL_RESPONSE): SaslState.AUTHENTICATING,
}
"""Frames that a client may send before its login is decided [5.3.2]."""

RECEIVED: Final[Mapping[tuple[State, int], State]] = {
    (State.AWAITING_OPEN, Performative.OPEN): State.OPENING,
    (State.AWAITING_OPEN, Performative.CLOSE): State.CLOSED,
    (State.OPEN, Performative.BEGIN): State.OPEN,
    (State.OPEN, Performative.ATTACH): State.OPEN,
    (State.OPEN, Performative.DETACH): State.OPEN,
    (State.OPEN, Performative.END): State.OPEN,
    (State.OPEN, Performative.CLOSE): State.CLOSED,
    # The client may have said all this before it heard our close [2.4.3].
    (State.CLOSING, Performative.OPEN): State.CLOSING,
    (State.CLOSING, Performative.BEGIN): State.CLOSING,
    (State.CLOSING, Performative.ATTACH): State.CLOSING,
    (State.CLOSING, Performative.DETACH): State.CLOSING,
    (State.CLOSING, Performative.END): State.CLOSING,
    (State.CLOSING, Performative.CLOSE): State.CLOSED,
}
"""Frames that a client may send after its login, and where they lead [2.4.6]. No second open."""


def step(table: Mapping[tuple[StateT, int], StateT], state: StateT, performative: int) -> StateT:
    """Finds the next state, or raises a protocol error: nothing outside the table is legal."""
    try:
        return table[state, performative]
    except KeyError:
        raise Amqp10Error(ILLEGAL_STATE, f"{_spoken(performative)} while {state.value}") from None


def _spoken(performative: int) -> str:
    try:
        return Performative(performative).name.lower().replace("_", "-")
    except ValueError:
        return f"a frame of the type 0x{performative:02x}"
