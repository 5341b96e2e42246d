"""A connection without a network: what the publishing and delivering parts say to it is kept."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from protocols.mqtt.counters import MqttCounters
from protocols.mqtt.negotiated_terms import Agreement, Terms
from protocols.mqtt.output import Output
from protocols.mqtt.publish.fan_out import FanOut
from protocols.mqtt.settings import Settings
from protocols.mqtt.wire.packets import Version
from protocols.mqtt.wire.reasons import ReasonCode
from queue_core.access.auth import Auth, Identity
from queue_core.vhost import Vhost

LARGEST_PACKET_BYTES = 1 << 20


class Link:
    """Keeps what is sent in `out`, and the reasons for which it was to end."""

    def __init__(self) -> None:
        self.output = Output(lambda: None, lambda: None, lambda: 0)
        self.out = self.output.pieces
        self.failures: list[ReasonCode] = []
        self.complaints: list[str] = []

    def fail(self, reason: ReasonCode, text: str) -> None:
        self.failures.append(reason)
        self.complaints.append(text)

    def defer(self, work: Coroutine[Any, Any, None]) -> None:
        raise AssertionError("nothing here takes time")


class Session:
    client_id = "publisher"
    is_persistent = False

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost


def terms_of(
    link: Link,
    session: Any,
    version: Version,
    *,
    max_packet: int = LARGEST_PACKET_BYTES,
    counters: MqttCounters | None = None,
    is_async: bool = False,
) -> Terms:
    """The terms of a client of that version; all else of them is as plain as can be."""
    context: Any = SimpleNamespace(
        settings=Settings(),
        counters=counters or MqttCounters(),
        fan_out=FanOut(1, is_async=is_async),
        services=SimpleNamespace(
            auth=Auth([], []), clock=float, sessions=SimpleNamespace(retained=None)
        ),
    )
    agreement = Agreement(version, 10, max_packet, 0, tells_reasons=True, expiry=0)
    return Terms(context, session, Identity("somebody"), "", agreement, link.output, link)
