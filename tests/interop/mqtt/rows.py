"""The rows to prove: every property of every packet that may have it, in each direction, and
the tests that say which of them they prove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from protocols.mqtt.wire.property_set import RULES, PacketType

CLIENT: Final = "client"
GATEWAY: Final = "gateway"
P = PacketType

ACKNOWLEDGEMENTS: Final = (P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP)
BOTH: Final = (P.PUBLISH, *ACKNOWLEDGEMENTS, P.DISCONNECT, P.AUTH)
SENDS: Final = {
    CLIENT: (P.CONNECT, P.WILL, P.SUBSCRIBE, P.UNSUBSCRIBE, *BOTH),
    GATEWAY: (P.CONNACK, P.SUBACK, P.UNSUBACK, *BOTH),
}
# Said by one side only, in a packet that both send.
ONE_SIDED: Final = {
    (GATEWAY, P.DISCONNECT, "session_expiry"),  # [MQTT-3.14.2-2]
    (CLIENT, P.DISCONNECT, "server_reference"),  # section 3.14.2.2.5
    (CLIENT, P.PUBLISH, "subscription_identifiers"),  # [MQTT-3.3.4-6]
}


class Row(NamedTuple):
    sender: str
    packet: PacketType
    field: str


def _every() -> tuple[Row, ...]:
    rows = []
    for sender, packets in SENDS.items():
        for packet in packets:
            fields = [rule.field for rule in RULES.values() if packet in rule.packets]
            rows += [Row(sender, packet, field) for field in fields]
    return tuple(row for row in rows if row not in ONE_SIDED)


ROWS: Final = _every()
Test = Callable[..., Any]


def said(packet: PacketType, *fields: str) -> frozenset[Row]:
    return _rows(CLIENT, packet, fields)


def heard(packet: PacketType, *fields: str) -> frozenset[Row]:
    return _rows(GATEWAY, packet, fields)


def _rows(sender: str, packet: PacketType, fields: tuple[str, ...]) -> frozenset[Row]:
    """All of the packet's, where none are named."""
    own = {row.field for row in ROWS if row[:2] == (sender, packet)}
    assert own >= set(fields), f"{packet.name} has no {set(fields) - own}"
    return frozenset(Row(sender, packet, field) for field in fields or own)
