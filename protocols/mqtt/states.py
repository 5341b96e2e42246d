"""The states of a connection and its legal moves, as a table: which packet may come when."""

from __future__ import annotations

from enum import Enum
from typing import Final

from protocols.mqtt.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)
from protocols.mqtt.wire.reasons import violation


class State(Enum):
    AWAITING_CONNECT = "awaiting CONNECT"
    CONNECTING = "connecting"  # CONNACK is on its way; nothing is read meanwhile
    AUTHENTICATING = "authenticating"  # AUTH was sent, and is to be answered
    CONNECTED = "connected"
    CLOSED = "closed"


Transitions = dict[tuple[State, type[Packet]], State]

RECEIVED: Final[Transitions] = {
    (State.AWAITING_CONNECT, Connect): State.CONNECTING,  # [MQTT-3.1.0-1]
    (State.AUTHENTICATING, Auth): State.CONNECTING,  # [MQTT-3.1.2-30]
    (State.AUTHENTICATING, Disconnect): State.CLOSED,
    # No second CONNECT [MQTT-3.1.0-2], and nothing that only a server sends.
    (State.CONNECTED, Publish): State.CONNECTED,
    (State.CONNECTED, PubAck): State.CONNECTED,
    (State.CONNECTED, PubRec): State.CONNECTED,
    (State.CONNECTED, PubRel): State.CONNECTED,
    (State.CONNECTED, PubComp): State.CONNECTED,
    (State.CONNECTED, Subscribe): State.CONNECTED,
    (State.CONNECTED, Unsubscribe): State.CONNECTED,
    (State.CONNECTED, PingReq): State.CONNECTED,
    (State.CONNECTED, Auth): State.CONNECTED,
    (State.CONNECTED, Disconnect): State.CLOSED,  # [MQTT-3.14.4-1]
}


def step(table: Transitions, state: State, packet: Packet) -> State:
    """Returns the next state, or raises a protocol error: nothing outside the table is legal."""
    try:
        return table[state, type(packet)]
    except KeyError:
        raise violation(f"{type(packet).__name__} while {state.value}") from None
