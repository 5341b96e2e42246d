"""The errors of AMQP 1.0: error conditions, and which error gets which.

`Amqp10Error` is a peer that asked for what the protocol does not allow. Requests that the core
cannot meet are answered from `CONDITIONS`.
"""

from __future__ import annotations

from typing import Final

from queue_core import errors as core

INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
ROLLED_BACK: Final = "amqp:transaction:rollback"


class Amqp10Error(Exception):
    """The peer asked for what the protocol does not allow, or not here."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.text = text


CONDITIONS: Final[dict[type[core.CoreError], str]] = {
    core.AccessRefused: UNAUTHORIZED,
    core.QueueNotFound: NOT_FOUND,
    core.ExchangeNotFound: NOT_FOUND,
    core.QueueInUse: PRECONDITION_FAILED,
    core.QueueNotEmpty: PRECONDITION_FAILED,
    core.ExchangeInUse: PRECONDITION_FAILED,
    core.NotEquivalent: PRECONDITION_FAILED,
    core.UnsupportedArgument: NOT_IMPLEMENTED,
    core.InvalidArgument: INVALID_FIELD,
    core.InvalidTopic: INVALID_FIELD,
    core.QueueFull: RESOURCE_LIMIT,
    core.MessageTooLarge: TOO_LARGE,
    core.ResourceLocked: RESOURCE_LOCKED,
    core.SessionNotFound: NOT_FOUND,
    core.VhostNotFound: NOT_FOUND,
    core.StoreUnavailable: RESOURCE_LIMIT,
    core.NameReserved: NOT_ALLOWED,
    core.LimitExceeded: RESOURCE_LIMIT,
    core.QuotaReached: RESOURCE_LIMIT,
    core.NotSupported: NOT_IMPLEMENTED,
    core.ConsumerStalled: RESOURCE_LIMIT,
    core.DeliveryFailed: INTERNAL_ERROR,
}


def answer(error: core.CoreError) -> Amqp10Error:
    """Finds the error condition for an error of the core."""
    for kind in type(error).__mro__:
        condition = CONDITIONS.get(kind)
        if condition is not None:
            return Amqp10Error(condition, str(error))
    return Amqp10Error(INTERNAL_ERROR, str(error))
