"""The control packets: one set for 3.1, 3.1.1 and 5.0, in the standard's own words.

Plain values. How they are written is the codec's business, when they may come is the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from protocols.mqtt.wire.reasons import ReasonCode


class Version(IntEnum):
    """The protocol level that CONNECT names."""

    V31 = 3
    V311 = 4
    V5 = 5


@dataclass(frozen=True, slots=True)
class Will:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0  # seconds; 0: none
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class ConnAck:
    session_present: bool = False
    reason: int = ReasonCode.SUCCESS  # in 3.x the return code
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0  # at QoS 0 there is none
    properties: PropertySet = NO_PROPERTIES
    # The properties as the publisher wrote them, which say the same as `properties`.
    raw_properties: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class PubAck:
    packet_id: int
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PubRec:
    packet_id: int
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PubRel:
    packet_id: int
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PubComp:
    packet_id: int
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """One filter of a SUBSCRIBE and its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    packet_id: int
    requests: tuple[SubscribeRequest, ...]
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class SubAck:
    packet_id: int
    reasons: tuple[int, ...]
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    packet_id: int
    filters: tuple[str, ...]
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class UnsubAck:
    packet_id: int
    reasons: tuple[int, ...] = ()  # 3.x has none
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PingReq:
    pass


@dataclass(frozen=True, slots=True)
class PingResp:
    pass


@dataclass(frozen=True, slots=True)
class Disconnect:
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    reason: int = ReasonCode.SUCCESS
    properties: PropertySet = NO_PROPERTIES


Acknowledgement = PubAck | PubRec | PubRel | PubComp
Packet = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
