"""What people send to an MQTT port that is no MQTT, known by its first bytes."""

from __future__ import annotations

from typing import Final

_MISTAKES: Final = (
    (b"AMQP", "it speaks AMQP: that listener has another port"),
    (b"\x16\x03", "it speaks TLS: set tls for this listener, or connect without TLS"),
    (b"GET ", "it speaks HTTP: WebSocket and management have listeners of their own"),
    (b"POST", "it speaks HTTP: the management listener has another port"),
)


def mistake(start: bytes) -> str | None:
    """What a connection that begins so was meant for; None: it may be MQTT, spoken well or not."""
    return next((words for prefix, words in _MISTAKES if start.startswith(prefix)), None)
