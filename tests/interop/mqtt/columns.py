"""The clients that the tests speak through, each with what its own interface cannot do.

A reason was seen in the client's code or in what it prints; the page of clients shows it.
Everything that is not here is proven by a test for that client. No client is imported: the page is
written without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protocols.mqtt.wire.packets import Version
from protocols.mqtt.wire.property_set import PacketType
from tests.interop.mqtt.rows import ACKNOWLEDGEMENTS, CLIENT, GATEWAY, ROWS, Row, heard, said

P = PacketType
Reasons = Mapping[Row, str]
ALL: Final = (Version.V31, Version.V311, Version.V5)


@dataclass(frozen=True)
class Column:
    """A client over one transport."""

    client: str
    transport: str
    versions: tuple[Version, ...]
    unversed: str = ""  # why it speaks no other
    cannot: Reasons = field(default_factory=dict)  # say it, or be brought to hear it
    silent: Reasons = field(default_factory=dict)  # takes it, and shows nothing of it

    @property
    def name(self) -> str:
        return f"{self.client}-{self.transport}"


def _because(*entries: tuple[frozenset[Row], str]) -> dict[Row, str]:
    return {row: reason for rows, reason in entries for row in rows}


def _own_acknowledgements() -> frozenset[Row]:
    return frozenset(row for row in ROWS if row[0] == CLIENT and row.packet in ACKNOWLEDGEMENTS)


# --- what the gateway never says, to no client

_OPTIONAL: Final = "the gateway sends no user properties of its own"
NOT_SENT: Final[Reasons] = _because(
    (frozenset(Row(GATEWAY, p, "user") for p in (P.CONNACK, P.SUBACK, P.UNSUBACK)), _OPTIONAL),
    (frozenset(Row(GATEWAY, p, "user") for p in ACKNOWLEDGEMENTS), _OPTIONAL),
    (frozenset(Row(GATEWAY, p, "user") for p in (P.DISCONNECT, P.AUTH)), _OPTIONAL),
    (
        heard(P.PUBREL, "reason_string"),
        "PUBREL of the gateway fails in answer to a PUBREC for nothing only, and its code says so",
    ),
    (
        heard(P.AUTH, "reason_string"),
        "a login that fails ends with CONNACK or DISCONNECT, which have the reason",
    ),
)


def _auth() -> frozenset[Row]:
    packets = frozenset(row for row in ROWS if row.packet is P.AUTH)
    return (packets | heard(P.CONNACK, "authentication_data")) - NOT_SENT.keys()


_NO_STRAY_PUBREL: Final = (
    heard(P.PUBCOMP, "reason_string"),
    "cannot be brought to send a PUBREL that PUBREC did not ask for",
)

# --- the clients, as pinned in requirements-dev.lock, by Debian, and in package-lock.json

VERSIONS: Final = {
    "gmqtt": ("gmqtt", "0.8.0, which has no WebSocket"),
    "paho": ("paho-mqtt", "2.2.0"),
    "mosquitto": ("mosquitto_pub and _sub", "2.0.11, which have no WebSocket"),
    "mqttjs": ("MQTT.js", "5.16.0"),
}

# --- gmqtt

GMQTT: Final = Column(
    "gmqtt",
    "tcp",
    (Version.V311, Version.V5),
    "knows two versions (constants.py)",
    cannot=_because(
        (_own_acknowledgements(), "writes acknowledgements without properties (package.py)"),
        (_auth(), "has no AUTH packet (constants.py), so no login of several steps"),
        (
            said(P.CONNECT, "authentication_data"),
            "does not know the property (property.py)",
        ),
        (
            heard(P.CONNACK, "assigned_client_id"),
            "makes up a client id itself when it is given none (client.py)",
        ),
        _NO_STRAY_PUBREL,
    ),
    silent=_because(
        (
            heard(P.CONNACK, "reason_string", "server_reference"),
            "does not read the properties of a CONNACK that refuses (handler.py)",
        ),
        (
            heard(P.PUBACK, "reason_string") | heard(P.PUBREC, "reason_string"),
            "does not read the properties of acknowledgements (handler.py)",
        ),
        (
            heard(P.UNSUBACK, "reason_string"),
            "gives on_unsubscribe no properties (handler.py)",
        ),
        (
            heard(P.CONNACK, "authentication_method"),
            "shows what CONNECT said in its place (handler.py)",
        ),
    ),
)

# --- paho-mqtt

_PAHO_CANNOT: Final = _because(
    (_own_acknowledgements(), "writes acknowledgements without properties (client.py)"),
    (_auth(), "takes an AUTH for an unknown packet (client.py), so no login of several steps"),
)
_PAHO_SILENT: Final = _because(
    (heard(P.PUBREC, "reason_string"), "ignores reason and properties of PUBREC (client.py)"),
)
PAHO: Final = Column("paho", "tcp", ALL, "", _PAHO_CANNOT, _PAHO_SILENT)
PAHO_WS: Final = Column("paho", "ws", ALL, "", _PAHO_CANNOT, _PAHO_SILENT)

# --- mosquitto_pub and mosquitto_sub

_SHOWN: Final = (
    "assigned_client_id",
    "server_keep_alive",
    "maximum_qos",
    "retain_available",
    "maximum_packet_size",
)
MOSQUITTO: Final = Column(
    "mosquitto",
    "tcp",
    ALL,
    cannot=_because(
        (_own_acknowledgements(), "know no acknowledgements in -D"),
        (_auth(), "know no AUTH in -D, so no login of several steps"),
        _NO_STRAY_PUBREL,
    ),
    silent=_because(
        (
            heard(P.CONNACK) - heard(P.CONNACK, *_SHOWN, "user", "authentication_data"),
            "print no properties of CONNACK; only what they act on is seen",
        ),
        (
            frozenset(
                Row(GATEWAY, p, "reason_string")
                for p in (P.PUBREC, P.SUBACK, P.UNSUBACK, P.DISCONNECT)
            ),
            "print the code, and the reason string of PUBACK only",
        ),
        (heard(P.DISCONNECT, "server_reference"), "print the code of DISCONNECT only"),
    ),
)

# --- MQTT.js

_MQTTJS_CANNOT: Final = _because(
    _NO_STRAY_PUBREL,
)
MQTTJS: Final = Column("mqttjs", "tcp", ALL, "", _MQTTJS_CANNOT)
MQTTJS_WS: Final = Column("mqttjs", "ws", ALL, "", _MQTTJS_CANNOT)

COLUMNS: Final = (GMQTT, PAHO, PAHO_WS, MOSQUITTO, MQTTJS, MQTTJS_WS)
