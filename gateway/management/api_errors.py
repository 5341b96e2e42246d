"""Errors of the HTTP API, in the shape that RabbitMQ's tools read: a status, and a JSON object with
`error` and `reason`.

Answers for which status each error of the core has. RabbitMQ has no 403 for who may not do a
thing: that is a 401 with the error `not_authorised`, whereas a failed login says `not_authorized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from queue_core.errors import (
    AccessRefused,
    ConsumerStalled,
    CoreError,
    DeliveryFailed,
    ExchangeInUse,
    ExchangeNotFound,
    InvalidArgument,
    InvalidTopic,
    LimitExceeded,
    MessageTooLarge,
    NameReserved,
    NotEquivalent,
    NotSupported,
    QueueFull,
    QueueInUse,
    QueueNotEmpty,
    QueueNotFound,
    QuotaReached,
    ResourceLocked,
    SessionNotFound,
    StoreUnavailable,
    UnsupportedArgument,
    VhostNotFound,
)

BAD_REQUEST: Final = "bad_request"
NOT_FOUND: Final = "Object Not Found"
NOT_AUTHORISED: Final = "not_authorised"  # known, and may not
NOT_AUTHORIZED: Final = "not_authorized"  # the login failed
UNAVAILABLE: Final = "unavailable"

STATUSES: Final[dict[type[CoreError], tuple[int, str]]] = {
    AccessRefused: (401, NOT_AUTHORISED),
    QueueNotFound: (404, NOT_FOUND),
    ExchangeNotFound: (404, NOT_FOUND),
    SessionNotFound: (404, NOT_FOUND),
    VhostNotFound: (404, NOT_FOUND),
    QueueInUse: (400, BAD_REQUEST),
    QueueNotEmpty: (400, BAD_REQUEST),
    ExchangeInUse: (400, BAD_REQUEST),
    NotEquivalent: (400, BAD_REQUEST),
    UnsupportedArgument: (400, BAD_REQUEST),
    InvalidArgument: (400, BAD_REQUEST),
    InvalidTopic: (400, BAD_REQUEST),
    MessageTooLarge: (400, BAD_REQUEST),
    ResourceLocked: (400, BAD_REQUEST),
    NameReserved: (400, BAD_REQUEST),
    LimitExceeded: (400, BAD_REQUEST),
    QuotaReached: (400, BAD_REQUEST),
    NotSupported: (400, BAD_REQUEST),
    QueueFull: (400, "rejected"),
    StoreUnavailable: (503, UNAVAILABLE),
    ConsumerStalled: (503, UNAVAILABLE),
    DeliveryFailed: (500, "internal_error"),
}


class ErrorBody(msgspec.Struct, frozen=True):
    """Names what went wrong, and says the cause and the way out."""

    error: str
    reason: str


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, error: str, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.body = ErrorBody(error, reason)
        self.headers = headers or {}


def bad_request(reason: str) -> ApiError:
    return ApiError(400, BAD_REQUEST, reason)


def not_found(reason: str) -> ApiError:
    return ApiError(404, NOT_FOUND, reason)


def not_authorised(reason: str) -> ApiError:
    """Makes the error for a client that is known and may not do this."""
    return ApiError(401, NOT_AUTHORISED, reason)


def from_core(error: CoreError) -> ApiError:
    """Makes the answer to an error of the core, whose text is the reason."""
    kinds = (kind for kind in type(error).__mro__ if kind in STATUSES)
    status, name = STATUSES[next(kinds)]
    return ApiError(status, name, str(error))
