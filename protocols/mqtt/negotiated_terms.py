"""The terms of one client: what CONNECT and CONNACK agreed on, and whom its parts work with.

Made complete when CONNECT is accepted, and never changed. The parts of a connected client
(publishing, delivering, subscribing) are given the terms and take from them what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from protocols.mqtt.wire.packets import Connect, Version
from protocols.mqtt.wire.reasons import ReasonCode, reason_of
from queue_core.delivery.consumer import Origin

if TYPE_CHECKING:
    from protocols.mqtt.context import Context
    from protocols.mqtt.counters import MqttCounters
    from protocols.mqtt.output import Output
    from protocols.mqtt.settings import Settings
    from queue_core.access.auth import Auth, Identity
    from queue_core.errors import CoreError
    from queue_core.sessions.session import Session
    from queue_core.vhost import Vhost

NEVER_EXPIRES: Final = 0xFFFF_FFFF  # a session expiry interval that never ends (section 3.1.2.11.2)
MAX_RECEIVE: Final = 65_535  # messages; the receive maximum of a client that names none
MAX_PACKET_BYTES: Final = 0xFFFF_FFFF  # the maximum packet size of a client that names none
# A reason string has 1,024 characters at most. A client whose packets are smaller than this many
# bytes gets none [MQTT-3.4.2-2].
REASON_STRING_PACKET_BYTES: Final = 8192


def lifetime_of(asked: int, most: float | None) -> float | None:
    """Tells how many seconds a session outlives its connection; None: for ever."""
    wanted = None if asked == NEVER_EXPIRES else float(asked)
    if most is None:
        return wanted
    return most if wanted is None else min(wanted, most)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The numbers that CONNECT asked for and CONNACK granted."""

    version: Version
    receive_maximum: int  # QoS 1 and 2 messages that the client takes at once
    max_packet: int  # bytes that the client takes
    alias_maximum: int  # topic aliases that the client takes
    tells_reasons: bool  # the client wants to hear reason strings
    expiry: float | None  # seconds that the session outlives its connection; None: for ever

    @classmethod
    def of(cls, connect: Connect, expiry: float | None, settings: Settings) -> Agreement:
        asked = connect.properties
        return cls(
            connect.version,
            min(asked.receive_maximum or MAX_RECEIVE, settings.max_inflight),
            asked.maximum_packet_size or MAX_PACKET_BYTES,
            asked.topic_alias_maximum or 0,
            connect.version is Version.V5
            and settings.reason_strings
            and asked.request_problem != 0  # [MQTT-3.1.2-29]
            and (asked.maximum_packet_size or REASON_STRING_PACKET_BYTES)
            >= REASON_STRING_PACKET_BYTES,
            expiry,
        )


class Link(Protocol):
    """The connection, as the parts of its client see it."""

    def fail(self, reason: ReasonCode, text: str) -> None:
        """Ends the connection, with that reason where the version has a packet for it."""

    def defer(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs what takes time: the rest of the input waits for it, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Everything that the parts of one connected client share."""

    context: Context
    session: Session
    identity: Identity
    address: str  # the client's end of the connection, for people
    agreement: Agreement
    output: Output
    link: Link

    @property
    def version(self) -> Version:
        return self.agreement.version

    @property
    def is_5(self) -> bool:
        return self.agreement.version is Version.V5

    @property
    def vhost(self) -> Vhost:
        return self.session.vhost

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def counters(self) -> MqttCounters:
        return self.context.counters

    @property
    def auth(self) -> Auth:
        return self.context.services.auth

    @property
    def clock(self) -> Callable[[], float]:
        return self.context.services.clock

    @property
    def origin(self) -> Origin:
        """Names this client as a consumer, for people."""
        session = self.session
        return Origin(session.protocol, self.identity.name, session.client_id, self.address)

    def fail_by(self, error: CoreError) -> None:
        """Ends the connection for a refusal that no packet can carry: 3.x has none for any."""
        self.link.fail(reason_of(error), str(error))
