"""The errors of AMQP 0.9.1: reply codes, and which error gets which.

`Amqp091Error` is a peer that broke the protocol. Requests that the core cannot meet are answered
from `ANSWERS`. Whether a code ends the channel or the connection is the standard's decision: see
`HARD`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from queue_core import errors as core

MAX_TEXT_BYTES: Final = 255


class ReplyCode(IntEnum):
    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


HARD: Final = frozenset(
    (
        ReplyCode.CONNECTION_FORCED,
        ReplyCode.INVALID_PATH,
        ReplyCode.FRAME_ERROR,
        ReplyCode.SYNTAX_ERROR,
        ReplyCode.COMMAND_INVALID,
        ReplyCode.CHANNEL_ERROR,
        ReplyCode.UNEXPECTED_FRAME,
        ReplyCode.RESOURCE_ERROR,
        ReplyCode.NOT_ALLOWED,
        ReplyCode.NOT_IMPLEMENTED,
        ReplyCode.INTERNAL_ERROR,
    )
)
"""Codes that end the connection; all others end the channel."""


class Amqp091Error(Exception):
    """The peer broke the protocol, or asked for what it does not offer."""

    def __init__(self, code: ReplyCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def ends_connection(self) -> bool:
        return self.code in HARD


ANSWERS: Final[dict[type[core.CoreError], ReplyCode]] = {
    core.AccessRefused: ReplyCode.ACCESS_REFUSED,
    core.QueueNotFound: ReplyCode.NOT_FOUND,
    core.ExchangeNotFound: ReplyCode.NOT_FOUND,
    core.QueueInUse: ReplyCode.PRECONDITION_FAILED,
    core.QueueNotEmpty: ReplyCode.PRECONDITION_FAILED,
    core.ExchangeInUse: ReplyCode.PRECONDITION_FAILED,
    core.NotEquivalent: ReplyCode.PRECONDITION_FAILED,
    core.UnsupportedArgument: ReplyCode.PRECONDITION_FAILED,
    core.InvalidArgument: ReplyCode.PRECONDITION_FAILED,
    core.InvalidTopic: ReplyCode.PRECONDITION_FAILED,
    core.QueueFull: ReplyCode.PRECONDITION_FAILED,
    core.MessageTooLarge: ReplyCode.PRECONDITION_FAILED,
    core.ResourceLocked: ReplyCode.RESOURCE_LOCKED,
    core.SessionNotFound: ReplyCode.NOT_FOUND,
    core.VhostNotFound: ReplyCode.NOT_ALLOWED,
    core.StoreUnavailable: ReplyCode.RESOURCE_ERROR,
    core.NameReserved: ReplyCode.ACCESS_REFUSED,
    core.LimitExceeded: ReplyCode.PRECONDITION_FAILED,
    core.QuotaReached: ReplyCode.NOT_ALLOWED,
    core.NotSupported: ReplyCode.NOT_IMPLEMENTED,
    core.ConsumerStalled: ReplyCode.RESOURCE_ERROR,
    core.DeliveryFailed: ReplyCode.INTERNAL_ERROR,
}


def answer(error: core.CoreError) -> Amqp091Error:
    """Finds the reply code for an error of the core."""
    for kind in type(error).__mro__:
        code = ANSWERS.get(kind)
        if code is not None:
            return Amqp091Error(code, str(error))
    return Amqp091Error(ReplyCode.INTERNAL_ERROR, str(error))


def reply_text(code: ReplyCode, text: str) -> str:
    """Words an error as clients print it: the code's name first, and no longer than a short string
    may be."""
    whole = f"{code.name} - {text}"
    encoded = whole.encode()
    if len(encoded) <= MAX_TEXT_BYTES:
        return whole
    return encoded[: MAX_TEXT_BYTES - 3].decode(errors="ignore") + "..."
