"""The handshake of AMQP 0.9.1: from the protocol header to connection.open.

The login, the limits that tune agrees on, and the virtual host are worked out here; methods come in
and methods to send go out. Which method may come when is a table in `states`. What an open
connection does is `machine`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocols.amqp091.context import Context
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.negotiated_terms import ClientFacts, Tuning
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.frames import FRAME_MIN_SIZE, FrameError
from protocols.amqp091.wire.methods import (
    ConnectionSecure,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from protocols.amqp091.wire.tables import decode_table
from protocols.carrier import GONE, Carrier
from queue_core.access.auth import Identity
from queue_core.access.login import Begin, Challenge, Continue, Login
from queue_core.access.mechanisms import PLAIN
from queue_core.errors import AccessRefused
from queue_core.vhost import Vhost

AMQPLAIN: Final = "AMQPLAIN"
MOST_EARLY_FRAMES: Final = 64  # before connection.open

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
    """The command to find the virtual host of connection.open, and to let the client in."""

    name: str


def start(settings: Settings, mechanisms: Sequence[str]) -> ConnectionStart:
    """Makes connection.start, the gateway's first method."""
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
    """Reads from start-ok how the client wants to log in. Raises AccessRefused where that is not
    possible."""
    mechanism = method.mechanism
    if mechanism == AMQPLAIN and PLAIN in offered:
        return Begin(PLAIN, _plain(method.response))
    if mechanism not in offered:
        raise AccessRefused(
            f"mechanism '{mechanism}' is not offered; use one of {', '.join(offered)}"
        )
    return Begin(mechanism, method.response)


def _plain(response: bytes) -> bytes:
    """Translates AMQPLAIN's response, a field table without its length, to PLAIN's."""
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
    """Takes the limits of tune-ok: the client has the last word, but not beyond our offer. 0 is no
    limit of its own."""
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


class Handshake:
    """One client's handshake: what it said of itself, its login, and the limits agreed on."""

    def __init__(self, context: Context, carrier: Carrier) -> None:
        self.identity: Identity | None = None  # whoever the client has shown to be
        self.tuning = Tuning(FRAME_MIN_SIZE, 0, 0)
        self.client = ClientFacts()
        self._context = context
        self._auth = context.services.auth
        self._carrier = carrier
        self._login: Login | None = None  # while the client shows who it is
        self._frames = 0

    def _offered(self) -> Sequence[str]:
        return self._auth.mechanisms(self._carrier.peer())

    def count_frame(self) -> None:
        """Counts a frame before connection.open: a handshake takes a few, and a client that sends
        many wants something else. Raises FrameError."""
        self._frames += 1
        if self._frames > MOST_EARLY_FRAMES:
            self._context.counters.early_floods += 1
            raise FrameError(f"more than {MOST_EARLY_FRAMES} frames before the connection is open")

    def start(self) -> ConnectionStart:
        """Makes the gateway's first method."""
        return start(self._context.settings, self._offered())

    def begin(self, method: ConnectionStartOk) -> Begin:
        """Begins a login as start-ok asks for it. Raises AccessRefused."""
        self.client = ClientFacts.of(
            method.client_properties, self._carrier.peer(), method.mechanism
        )
        return login_of(method, self._offered())

    async def log_in(self, command: Begin | Continue) -> ConnectionSecure | ConnectionTune:
        """Takes one step of the login, and returns its answer. Raises CoreError."""
        if isinstance(command, Begin):
            # tune has no room for what a mechanism says last
            self._login = self._auth.begin(
                command.mechanism, self._carrier.peer(), has_last_word=False
            )
        assert self._login is not None
        answer = await self._login.step(command.response)
        if isinstance(answer, Challenge):
            return ConnectionSecure(answer.data)
        self._login = None
        self.identity = answer.identity
        return tune(self._context.settings)

    def tune(self, method: ConnectionTuneOk) -> None:
        """Takes the client's last word on the limits. Raises 530 where it goes beyond ours."""
        self.tuning = agree(method, self._context.settings)

    async def enter(self, name: str) -> Vhost:
        """Finds the virtual host that the client names in connection.open. Raises CoreError."""
        assert self.identity is not None
        vhost = await self._context.services.vhost(name)
        if not self._auth.may_enter(self.identity, name):
            raise AccessRefused(f"access to vhost '{name}' refused for user '{self.identity.name}'")
        self._auth.require_connection(self.identity, name, vhost.settings.max_connections)
        return vhost

    def end(self) -> None:
        """Lets go of the connection, which is gone, and of a login under way."""
        self._carrier = GONE
        self._login = None
