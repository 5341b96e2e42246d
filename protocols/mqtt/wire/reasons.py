"""Reason codes: what the peer hears when it broke the protocol or asked for what cannot be.

The code *is* the error. One table answers for the errors of the core, one for the few codes that a
3.x CONNACK can say. No packet and no socket is known here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from queue_core import errors
from queue_core.errors import CoreError


class ReasonCode(IntEnum):
    """Table 2-6 of the standard; the first three names are said by position elsewhere."""

    SUCCESS = 0x00  # also: normal disconnection, granted QoS 0
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class MqttError(Exception):
    """The peer broke the protocol: the connection ends, with this code where the version has it."""

    def __init__(self, reason: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def malformed(text: str) -> MqttError:
    return MqttError(ReasonCode.MALFORMED_PACKET, text)


def violation(text: str) -> MqttError:
    return MqttError(ReasonCode.PROTOCOL_ERROR, text)


# Codes for a request that the core cannot meet, in the words of PUBACK, SUBACK and CONNACK.
REASONS: Final[dict[type[CoreError], ReasonCode]] = {
    errors.AccessRefused: ReasonCode.NOT_AUTHORIZED,
    errors.QueueNotFound: ReasonCode.TOPIC_NAME_INVALID,
    errors.ExchangeNotFound: ReasonCode.TOPIC_NAME_INVALID,
    errors.QueueInUse: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.QueueNotEmpty: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.ExchangeInUse: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.NotEquivalent: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.UnsupportedArgument: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.InvalidArgument: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.InvalidTopic: ReasonCode.TOPIC_NAME_INVALID,
    errors.QueueFull: ReasonCode.QUOTA_EXCEEDED,
    errors.MessageTooLarge: ReasonCode.PACKET_TOO_LARGE,
    errors.ResourceLocked: ReasonCode.NOT_AUTHORIZED,
    errors.SessionNotFound: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.VhostNotFound: ReasonCode.NOT_AUTHORIZED,
    errors.StoreUnavailable: ReasonCode.SERVER_UNAVAILABLE,
    errors.NameReserved: ReasonCode.NOT_AUTHORIZED,
    errors.LimitExceeded: ReasonCode.QUOTA_EXCEEDED,
    errors.QuotaReached: ReasonCode.QUOTA_EXCEEDED,
    errors.NotSupported: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.ConsumerStalled: ReasonCode.QUOTA_EXCEEDED,
    errors.DeliveryFailed: ReasonCode.UNSPECIFIED_ERROR,
}


def reason_of(error: CoreError) -> ReasonCode:
    """Returns the code for an error of the core, or for the nearest kind of it that has a row."""
    for kind in type(error).__mro__:
        reason = REASONS.get(kind)
        if reason is not None:
            return reason
    return ReasonCode.UNSPECIFIED_ERROR


# Codes that a PUBACK or PUBREC may say (tables 3-4 and 3-5), and a SUBACK (table 3-8): all others
# have no place there, and become the general one.
PUBLISH_REFUSALS: Final = frozenset((0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
SUBSCRIBE_REFUSALS: Final = frozenset((0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2))


def publish_refusal(error: CoreError) -> ReasonCode:
    reason = reason_of(error)
    return reason if reason in PUBLISH_REFUSALS else ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


def subscribe_refusal(error: CoreError) -> ReasonCode:
    reason = reason_of(error)
    if reason is ReasonCode.TOPIC_NAME_INVALID:
        return ReasonCode.TOPIC_FILTER_INVALID
    return reason if reason in SUBSCRIBE_REFUSALS else ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


# Codes that a CONNACK may say (table 3-1) and a DISCONNECT (table 3-10) [MQTT-3.2.2-8]
# [MQTT-3.14.2-1].
# The same trouble has another name before and after the client was let in.
CONNACK_REASONS: Final = frozenset(
    (0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F)
)
DISCONNECT_REASONS: Final = frozenset(
    (0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3))
)
_IN_CONNACK: Final = {ReasonCode.SERVER_SHUTTING_DOWN: ReasonCode.SERVER_UNAVAILABLE}
_IN_DISCONNECT: Final = {ReasonCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_BUSY}


def connack_reason(reason: ReasonCode) -> ReasonCode:
    if reason in CONNACK_REASONS:
        return reason
    return _IN_CONNACK.get(reason, ReasonCode.UNSPECIFIED_ERROR)


def disconnect_reason(reason: ReasonCode) -> ReasonCode:
    if reason in DISCONNECT_REASONS:
        return reason
    return _IN_DISCONNECT.get(reason, ReasonCode.UNSPECIFIED_ERROR)


# Codes for trouble of this gateway that another one may not have.
PASSING_TROUBLE: Final = frozenset(
    (
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.QUOTA_EXCEEDED,
    )
)

# Table 3.1 of 3.1.1: all that its CONNACK can say. For all else the socket closes without a word.
RETURN_CODES: Final[dict[ReasonCode, int]] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.UNSPECIFIED_ERROR: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 5,
}
