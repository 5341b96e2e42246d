"""Recognises by their first bytes what people send to an MQTT port that is no MQTT, or no good
one."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.wire.codec import split
from protocols.mqtt.wire.connect_codec import version_of
from protocols.mqtt.wire.property_set import PacketType
from protocols.mqtt.wire.reasons import MqttError

_MISTAKES: Final = (
    (b"AMQP", "it speaks AMQP: that listener has another port"),
    (b"\x16\x03", "it speaks TLS: set tls for this listener, or connect without TLS"),
    (b"GET ", "it speaks HTTP: WebSocket and management have listeners of their own"),
    (b"POST", "it speaks HTTP: the management listener has another port"),
)


def mistake(start: bytes) -> str | None:
    """Names what a connection that begins so was meant for; None: it may be MQTT, spoken well or
    not."""
    return next((words for prefix, words in _MISTAKES if start.startswith(prefix)), None)


def named_version(data: bytes, limit: int) -> int:
    """Returns the version that a CONNECT names, however bad it is; 0: it is none, or names none."""
    try:
        frame = split(data, 0, limit)
    except MqttError:
        return 0
    if frame is None or frame.head >> 4 != PacketType.CONNECT:
        return 0
    return version_of(data[frame.start : frame.end])
