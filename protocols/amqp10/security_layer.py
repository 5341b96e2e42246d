"""The security layer: an AMQP 1.0 connection until the client is logged in.

    receive(data)            handles what is whole; a command, if the login must be waited for
    perform(), proceed()     carry that command out, and go on behind it
    take_output()            the SASL frames to send

`Machine` takes its place when the login has succeeded. No socket and no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from protocols.amqp10.context import Context
from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.states import SaslState
from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER, Sasl
from protocols.connection_report import ConnectionState
from queue_core.access.auth import Credentials, Identity, Peer
from queue_core.access.login import Begin, Challenge, Continue, Login
from queue_core.access.mechanisms import ANONYMOUS
from queue_core.errors import AccessRefused, CoreError

log = logging.getLogger(__name__)

Command = Coroutine[Any, Any, None]


class Entrance(Protocol):
    """The connection, as the security layer sees it."""

    def peer(self) -> Peer:
        """Describes the client's end of the connection."""
        ...

    def on_authenticated(self, identity: Identity, mechanism: str, rest: bytes) -> None:
        """Hears the user that the client is, and by which mechanism. The rest of the input belongs
        to AMQP."""


class _Gone:
    """The entrance of a layer whose connection is gone."""

    def peer(self) -> Peer:
        return Peer.described_by(lambda _: None)

    def on_authenticated(self, identity: Identity, mechanism: str, rest: bytes) -> None:
        """Does nothing: such a client is not let in."""


GONE: Final = _Gone()


def _never() -> bool:
    return False


def _nothing() -> tuple[str, ...]:
    """Offers no mechanism: the connection is gone."""
    return ()


class SecurityLayer:
    """The layer of one connection, from its first byte to the end of the login."""

    client: Final = None  # there is none before the login
    vhost: Final = None
    partial_bytes: Final = 0  # no message comes before the login
    channel_count: Final = 0  # nor does a session begin

    def __init__(self, context: Context, entrance: Entrance) -> None:
        self.is_unfinished = False  # there may be more to handle, without more input
        self.is_over = False  # nothing more is said
        self._context = context
        self._auth = context.services.auth
        self._entrance = entrance
        self._sasl = Sasl(self._offered)
        self._login: Login | None = None  # once the client has chosen a mechanism
        self._mechanism = ""  # that mechanism
        self._input = b""
        self._is_waiting = False  # for a command to be carried out

    def _offered(self) -> tuple[str, ...]:
        return self._auth.mechanisms(self._entrance.peer())

    # --- input

    def keep(self, data: bytes) -> None:
        """Adds to what waits, and handles nothing."""
        self._input += data
        self.is_unfinished = True

    def receive(self, data: bytes, is_over: Callable[[], bool] = _never) -> Command | None:
        """Handles what is whole. A command is to be carried out, then `proceed`."""
        self.keep(data)
        self.is_unfinished = False
        if self._is_waiting or self.is_over:
            return None
        try:
            command = self._advance()
        except AccessRefused as error:
            self._refuse(error)
            return None
        except Amqp10Error as error:
            log.warning("SASL with %s failed: %s", self._host(), error.text)
            self._context.counters.refused_connections += 1
            self.is_over = True
            return None
        except Exception as error:
            self._on_bug(error)
            return None
        self._is_waiting = command is not None
        return command

    def _advance(self) -> Command | None:
        data = self._input
        if self._sasl.state is SaslState.AWAITING_HEADER:
            if len(data) < len(HEADER):
                return None
            if data.startswith(AMQP_HEADER):
                return self._enter_unproven()
        self._input = b""
        step = self._sasl.receive(data)
        return None if step is None else self._step(step)

    def _enter_unproven(self) -> Command | None:
        """Lets a client in that begins without SASL, where no login is needed [2.2]. Any other
        hears that SASL is needed."""
        if ANONYMOUS in self._offered():
            return self._enter_as_anonymous()
        self._context.counters.refused_connections += 1
        log.info("%s came without SASL, and nobody may enter unnamed", self._host())
        self._sasl.output += HEADER
        self.is_over = True
        return None

    # --- commands

    async def perform(self, command: Command) -> None:
        """Carries a step of the login out; an error of it ends the connection."""
        try:
            await command
        except CoreError as error:
            self._refuse(error)
        except Exception as error:
            self._on_bug(error)

    def proceed(self) -> None:
        """Goes on behind a command that was carried out."""
        self._is_waiting = False
        self.is_unfinished = not self.is_over

    async def _enter_as_anonymous(self) -> None:
        identity = await self._auth.authenticate(Credentials(ANONYMOUS), self._entrance.peer())
        self._entrance.on_authenticated(identity, ANONYMOUS, self._input)
        self._let_go()

    async def _step(self, step: Begin | Continue) -> None:
        """Takes one step of the login, and answers it."""
        if isinstance(step, Begin):
            self._mechanism = step.mechanism
            self._login = self._auth.begin(step.mechanism, self._entrance.peer())
        assert self._login is not None
        answer = await self._login.step(step.response)
        if isinstance(answer, Challenge):
            self._sasl.challenge(answer.data)
            return
        self._login = None
        self._sasl.accept(answer.data)
        rest = self._sasl.rest() + self._input
        self._entrance.on_authenticated(answer.identity, self._mechanism, rest)
        self._let_go()

    def _refuse(self, error: CoreError) -> None:
        self._context.counters.refused_connections += 1
        self._sasl.refuse(is_temporary=not isinstance(error, AccessRefused))
        self.is_over = True

    def _on_bug(self, error: Exception) -> None:
        self._context.counters.bugs += 1
        log.error("a bug ends the connection of %s", self._host(), exc_info=error)
        self.is_over = True

    # --- output

    def take_output(self) -> bytes:
        """Takes everything to send since the last time."""
        return self._sasl.take_output()

    # --- the socket, permissions and the end

    def pause(self) -> None:
        """Does nothing: nothing is delivered before the login."""

    def resume(self) -> None:
        """Does nothing: nothing is delivered before the login."""

    def review(self) -> None:
        """Does nothing: nothing is consumed before the login."""

    def _host(self) -> str:
        return self._entrance.peer().host

    def report(self, state: ConnectionState) -> None:
        """Describes nothing to people: there is no client before the login."""

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Finds no consumer: nothing is consumed before the login."""
        return False

    def who(self) -> str:
        """Names the client for the log."""
        return f"'' at {self._host()}"

    def fail(self, condition: str, text: str) -> None:
        """Ends the connection. SASL has no words for the reason."""
        self.is_over = True

    async def lost(self) -> None:
        """Ends everything: the socket is gone."""
        self._let_go()

    def _let_go(self) -> None:
        """Lets go of the connection, which is gone, or past its login: the cyclic collector runs
        seldom in the gateway."""
        self.is_over = True
        self._entrance = GONE
        self._login = None
        self._sasl = Sasl(_nothing)
