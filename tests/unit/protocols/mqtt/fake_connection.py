"""A connection without a network: what the publishing and delivering parts say to it is kept."""

from __future__ import annotations

from protocols.mqtt.wire.reasons import ReasonCode
from queue_core.vhost import Vhost


class Link:
    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.failures: list[ReasonCode] = []

    def flush_soon(self) -> None: ...
    def flush_if_large(self) -> None: ...

    def unsent(self) -> int:
        return 0

    def fail(self, reason: ReasonCode, text: str) -> None:
        self.failures.append(reason)


class Session:
    client_id = "publisher"
    is_persistent = False

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost
