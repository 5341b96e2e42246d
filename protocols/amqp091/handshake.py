"""From the protocol header to connection.open: who says what when, and what is agreed on.

Pure: it is given methods and answers, and gives back methods to send and commands for whoever can
wait. What a connection does once it is open is `machine`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.settings import Settings
from protocols.amqp091.terms import Tuning
from protocols.amqp091.wire.frames import FRAME_MIN_SIZE, FrameError
from protocols.amqp091.wire.methods import (
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from protocols.amqp091.wire.tables import decode_table
from queue_core.access.auth import PLAIN
from queue_core.access.login import Begin
from queue_core.errors import AccessRefused

AMQPLAIN: Final = "AMQPLAIN"
MOST_EARLY_FRAMES: Final = 64

CAPABILITIES: Final[Mapping[str, object]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


@dataclass(frozen=True, slots=True)
class OpenVhost:
    """Find the virtual host, then call `opened` or `refused`."""

    name: str


def start(settings: Settings, mechanisms: Sequence[str]) -> ConnectionStart:
    """What we say first."""
    offered = list(mechanisms)
    if PLAIN in offered:
        offered.insert(offered.index(PLAIN) + 1, AMQPLAIN)
    properties: dict[str, object] = {
        "capabilities": CAPABILITIES,
        "cluster_name": "howdah",
        "information": "AMQP 0.9.1 on PostgreSQL",
        "platform": "Python",
        "product": settings.product,
        "version": settings.version,
    }
    return ConnectionStart(0, 9, properties, " ".join(offered).encode(), b"en_US")


def login_of(method: ConnectionStartOk, offered: Sequence[str]) -> Begin:
    """How the client wants to log in. Raises AccessRefused where that is not possible."""
    mechanism = method.mechanism
    if mechanism == AMQPLAIN and PLAIN in offered:
        return Begin(PLAIN, _plain(method.response))
    if mechanism not in offered:
        raise AccessRefused(
            f"mechanism '{mechanism}' is not offered; use one of {', '.join(offered)}"
        )
    return Begin(mechanism, method.response)


def _plain(response: bytes) -> bytes:
    """What AMQPLAIN says in a field table (without its length), as PLAIN says it."""
    try:
        table, _ = decode_table(len(response).to_bytes(4) + response)
    except Amqp091Error as error:
        raise AccessRefused(f"the AMQPLAIN response is malformed: {error.text}") from None
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(login, str) or not isinstance(password, str | bytes):
        raise AccessRefused("the AMQPLAIN response needs LOGIN and PASSWORD")
    secret = password.encode() if isinstance(password, str) else password
    return b"\0".join((b"", login.encode(), secret))


def tune(settings: Settings) -> ConnectionTune:
    return ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat)


def agree(method: ConnectionTuneOk, settings: Settings) -> Tuning:
    """The client has the last word, but not beyond what we offered. 0 is no limit of its own."""
    frame_max = method.frame_max or settings.frame_max
    channel_max = method.channel_max or settings.channel_max
    if not FRAME_MIN_SIZE <= frame_max <= settings.frame_max:
        raise Amqp091Error(
            ReplyCode.NOT_ALLOWED,
            f"negotiated frame_max = {frame_max}; it must be from {FRAME_MIN_SIZE} to "
            f"{settings.frame_max}",
        )
    if channel_max > settings.channel_max:
        raise Amqp091Error(
            ReplyCode.NOT_ALLOWED,
            f"negotiated channel_max = {channel_max} is higher than the maximum allowed value "
            f"({settings.channel_max})",
        )
    return Tuning(frame_max, channel_max, method.heartbeat)


class EarlyFrames:
    """Frames of a client that has not opened its connection: a handshake takes a few, and whoever
    sends many wants something else."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def count(self, counters: Amqp091Counters) -> None:
        self._count += 1
        if self._count > MOST_EARLY_FRAMES:
            counters.early_floods += 1
            raise FrameError(f"more than {MOST_EARLY_FRAMES} frames before the connection is open")
