"""The states of a connection and of a channel, and the legal moves of a connection as a table.

The legal moves of an open channel are the two tables of `dispatch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    Method,
)


class State(Enum):
    """The states of a connection, in the order in which it goes through them."""

    AWAITING_HEADER = auto()
    STARTING = auto()  # we have sent start
    AUTHENTICATING = auto()
    SECURING = auto()  # we have sent secure
    TUNING = auto()  # we have sent tune
    TUNED = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # we have sent close
    CLOSED = auto()


class ChannelState(Enum):
    """The states of a channel; before channel.open there is none."""

    OPEN = auto()
    CLOSING = auto()  # we have sent channel.close
    CLOSED = auto()


Transitions = Mapping[tuple[State, type[Method]], State]

RECEIVED: Final[Transitions] = {
    (State.STARTING, ConnectionStartOk): State.AUTHENTICATING,
    (State.SECURING, ConnectionSecureOk): State.AUTHENTICATING,
    (State.TUNING, ConnectionTuneOk): State.TUNED,
    (State.TUNED, ConnectionOpen): State.OPENING,
    (State.OPEN, ConnectionUpdateSecret): State.OPEN,
    (State.TUNING, ConnectionClose): State.CLOSED,
    (State.TUNED, ConnectionClose): State.CLOSED,
    (State.OPEN, ConnectionClose): State.CLOSED,
    (State.CLOSING, ConnectionClose): State.CLOSED,
    (State.CLOSING, ConnectionCloseOk): State.CLOSED,
}
"""Methods of channel 0 that a client may send, and where they lead; all others are illegal."""


def step(table: Transitions, state: State, method: Method) -> State:
    """Finds the next state, or raises a protocol error: nothing outside the table is legal."""
    try:
        return table[state, type(method)]
    except KeyError:
        raise Amqp091Error(
            ReplyCode.CHANNEL_ERROR, f"{type(method).__name__} while {state.name}"
        ) from None
