"""The last packet of a 5.0 connection that the gateway ends: its code, and what else it says."""

from __future__ import annotations

from protocols.mqtt.negotiated_terms import REASON_STRING_PACKET_BYTES
from protocols.mqtt.settings import Settings
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import ConnAck, Disconnect, Version
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from protocols.mqtt.wire.reasons import (
    PASSING_TROUBLE,
    ReasonCode,
    connack_reason,
    disconnect_reason,
)


def last_words(
    reason: ReasonCode, text: str, settings: Settings, *, is_new: bool, asked_size: int | None
) -> ConnAck | Disconnect | None:
    """Returns CONNACK for a client that is not let in, DISCONNECT for others. `asked_size` is the
    largest packet that the client takes; None: even this packet is too much for it, and the end
    says it all."""
    told, properties = _words(reason, text, settings, asked_size)
    packet: ConnAck | Disconnect = Disconnect(disconnect_reason(told), properties)
    if is_new:
        packet = ConnAck(False, connack_reason(told), properties)
    is_small = asked_size is None or len(encode(packet, Version.V5)) <= asked_size
    return packet if is_small else None  # [MQTT-3.1.2-24]


def _words(
    reason: ReasonCode, text: str, settings: Settings, asked_size: int | None
) -> tuple[ReasonCode, PropertySet]:
    """Returns the properties of the last packet: a client that this gateway cannot serve now hears
    of one that can, where the operator named it (section 4.11)."""
    least = REASON_STRING_PACKET_BYTES
    if (asked_size or least) < least:  # [MQTT-3.2.2-19]
        return reason, NO_PROPERTIES
    reference = settings.server_reference if reason in PASSING_TROUBLE else None
    told = reason if reference is None else ReasonCode.USE_ANOTHER_SERVER
    words = text[:1024] if settings.reason_strings else None
    return told, PropertySet(reason_string=words, server_reference=reference)
