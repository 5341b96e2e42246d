"""One AMQP 0.9.1 connection without its socket: bytes in, methods and commands out. No clock.

    receive(data, is_over)   handles what is whole; a command, if something must be waited for
    keep(data)               adds to what waits, and handles nothing
    perform(), proceed()     carry that command out, and go on behind it
    output                   the frames to send

Which method of channel 0 may come when is a table in `states`; what the channels of an open
connection do is told in `client`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from protocols.amqp091.client import Client
from protocols.amqp091.context import Context
from protocols.amqp091.dispatch import Perform
from protocols.amqp091.errors import Amqp091Error, ReplyCode, answer, reply_text
from protocols.amqp091.handshake import Handshake, OpenVhost
from protocols.amqp091.input import Input
from protocols.amqp091.negotiated_terms import Agreement, Terms
from protocols.amqp091.output import Output
from protocols.amqp091.reports import report_on
from protocols.amqp091.states import RECEIVED, State, step
from protocols.amqp091.wire.codec import decode_method
from protocols.amqp091.wire.frames import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    FrameError,
    split,
)
from protocols.amqp091.wire.methods import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from protocols.carrier import GONE, Carrier
from protocols.connection_report import ConnectionReport, ConnectionState
from queue_core.access.auth import Identity
from queue_core.access.login import Begin, Continue
from queue_core.errors import AccessRefused, CoreError
from queue_core.outcomes import FAILED, RELEASED, Verdict
from queue_core.scheduler import Effort
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

STEP_BYTES: Final = 16 * 1024  # that are worked through before somebody looks at the time
STEP_EFFORT: Final = 512  # of routing, likewise: comparisons, and queues of wide routes
RARE_FRAME_BYTES: Final = 256  # that a frame weighs besides, if it does not go the short way
NO_EFFORT: Final = Effort()  # of a connection that is not open: it routes nothing

Command = Begin | Continue | OpenVhost | Perform


def _never() -> bool:
    return False


class Machine:
    """The machine of one connection, from its first byte to its end."""

    def __init__(self, context: Context, output: Output, carrier: Carrier) -> None:
        self.state = State.AWAITING_HEADER
        self.output = output
        self.client: Client | None = None  # once the connection is open
        self.is_unfinished = False  # there may be more to handle, without more input
        self._handshake = Handshake(context, carrier)
        self.tuning = self._handshake.tuning
        self._carrier = carrier
        self._context = context
        self._settings = context.settings
        self._counters = context.counters
        self._input = Input()
        self._is_waiting = False  # for a command to be carried out

    @property
    def identity(self) -> Identity | None:
        """The user of the connection, once the client is logged in."""
        return self._handshake.identity

    @property
    def vhost(self) -> Vhost | None:
        """The virtual host of an open connection."""
        return None if self.client is None else self.client.vhost

    @property
    def channel_count(self) -> int:
        """Counts the channels of an open connection."""
        return 0 if self.client is None else len(self.client.channels)

    @property
    def partial_bytes(self) -> int:
        """Counts the bytes of messages that have come in part."""
        return 0 if self.client is None else self.client.arrivals.size

    # --- bytes

    def receive(self, data: bytes, is_over: Callable[[], bool] = _never) -> Command | None:
        """Handles everything that is whole, in what has come before and in `data`, until `is_over`
        says that the time is up. A command is to be carried out, then `proceed`."""
        self.keep(data)
        if self._is_waiting:
            return None
        try:
            command = self._advance()
            while command is None and self.is_unfinished and not is_over():
                command = self._advance()
        except Exception as error:
            self._on_bug(error)
            return None
        return command

    def keep(self, data: bytes) -> None:
        """Adds to what waits, and handles nothing."""
        if data:
            self._input.keep(data)
            self.is_unfinished = True

    def proceed(self) -> None:
        """Goes on behind a command that was carried out."""
        self._is_waiting = False
        self.is_unfinished = not self._input.is_empty

    def _advance(self) -> Command | None:
        if self.client is not None:
            self.client.forget_what_changed()
        command: Command | None = None
        try:
            if self.state is not State.CLOSED:
                command = self._parse()
        except FrameError as error:
            self._counters.connection_errors += 1
            self._log_failure(self._input.number, error)
            self.fail(error.code, error.text)
            self.state = State.CLOSED  # nothing that still comes can be understood
        except (Amqp091Error, CoreError) as error:
            self._fail(
                self._input.number, error if isinstance(error, Amqp091Error) else answer(error)
            )
        if self.state is State.CLOSED:
            self.is_unfinished = False
        if self.client is not None:
            self.client.settle_acked()
        self._is_waiting = command is not None
        return command

    def _parse(self) -> Command | None:
        """Handles frames until there is none left, or one that has to wait, or as many as one step
        should."""
        found, client = self._input, self.client
        effort = NO_EFFORT if client is None else client.effort
        last, tired_at = found.position + STEP_BYTES, effort.spent + STEP_EFFORT
        self.is_unfinished = True  # unless it comes to an end that is none of ours
        while found.position < last and effort.spent <= tired_at:
            if client is not None and self.state is State.OPEN:
                client.take_hot(last, tired_at)
                if found.position >= last or effort.spent > tired_at:
                    return None
                if found.position == len(found.buffer):  # most chunks end so
                    self.is_unfinished = False
                    return None
            position = found.position
            command = self._step()
            if command is not None or found.position == position:
                self.is_unfinished = command is not None
                return command
            last -= RARE_FRAME_BYTES
        return None

    def _step(self) -> Command | None:
        """Handles one frame, the general way. The position stays where it is while the frame is
        incomplete."""
        if self.state is State.AWAITING_HEADER:
            self._greet()
            return None
        if self.state is State.CLOSED:
            return None
        found = self._input
        frame = split(found.buffer, found.position, self.tuning.frame_max)
        if frame is None:
            return None
        found.position = frame.end + 1
        found.number, found.index = frame.channel, 0
        if self.client is None:
            self._handshake.count_frame()
        return self._frame(frame)

    def _greet(self) -> None:
        found = self._input
        header = found.buffer[found.position : found.position + len(PROTOCOL_HEADER)]
        if not PROTOCOL_HEADER.startswith(header):
            self.output.write(PROTOCOL_HEADER)  # what we would have understood
            self.state = State.CLOSED
        elif len(header) == len(PROTOCOL_HEADER):
            found.position += len(PROTOCOL_HEADER)
            self.output.send(0, self._handshake.start())
            self.state = State.STARTING

    def _frame(self, frame: Frame) -> Command | None:
        if frame.kind == HEARTBEAT:
            if frame.start != frame.end:
                raise Amqp091Error(ReplyCode.FRAME_ERROR, "a heartbeat with a payload")
            if frame.channel != 0:
                raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a heartbeat on a channel")
            return None
        payload = self._input.buffer[frame.start : frame.end]
        if frame.kind == METHOD and len(payload) >= 4:
            self._input.index = int.from_bytes(payload[:4])
        if self.state is State.CLOSING:
            self._await_close_ok(frame, payload)
            return None
        if frame.channel == 0:
            if frame.kind != METHOD:
                raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "content on channel 0")
            return self._connection_method(decode_method(payload))
        if self.state is not State.OPEN or self.client is None:
            raise Amqp091Error(
                ReplyCode.CHANNEL_ERROR, f"a frame on channel {frame.channel} before open"
            )
        if frame.kind == METHOD:
            return self.client.receive(frame.channel, payload)
        self.client.take_content(frame, payload)
        return None

    # --- channel 0

    def _connection_method(self, method: Method) -> Command | None:
        self.state = step(RECEIVED, self.state, method)
        match method:
            case ConnectionStartOk():
                try:
                    return self._handshake.begin(method)
                except AccessRefused as error:
                    self._refuse(error)
            case ConnectionSecureOk():
                return Continue(method.response)
            case ConnectionTuneOk():
                self._handshake.tune(method)
                self.tuning = self._handshake.tuning
            case ConnectionOpen():
                return OpenVhost(method.virtual_host)
            case ConnectionUpdateSecret():
                # As in RabbitMQ for users of its own: a login here does not expire, so there is
                # nothing that a new secret could prolong, and it gives no right to anything.
                self.output.send(0, ConnectionUpdateSecretOk())
            case ConnectionClose():
                self._end_client(RELEASED)
                self.output.send(0, ConnectionCloseOk())
        return None

    async def perform(self, command: Command) -> None:
        """Carries a command out; an error of it ends the channel, or the handshake."""
        try:
            match command:
                case Perform():
                    assert self.client is not None
                    await self.client.perform(command)
                case OpenVhost():
                    vhost = await self._handshake.enter(command.name)
                    if self.state is State.OPENING:  # else the gateway has ended it meanwhile
                        self._open(vhost)
                case _:
                    reply = await self._handshake.log_in(command)
                    if self.state is State.AUTHENTICATING:  # likewise
                        is_over = isinstance(reply, ConnectionTune)
                        self.output.send(0, reply)
                        self.state = State.TUNING if is_over else State.SECURING
        except CoreError as error:
            self._refuse(error)
        except Exception as error:
            self._on_bug(error)

    def _open(self, vhost: Vhost) -> None:
        identity = self._handshake.identity
        assert identity is not None
        terms = Terms(
            self._context,
            vhost,
            identity,
            Agreement(self.tuning, self._handshake.client),
            self.output,
            self._carrier,
            self._fail_from_outside,
        )
        self.client = Client(terms, self._input, self._carrier)
        self._counters.connections += 1
        self.output.send(0, ConnectionOpenOk())
        self.state = State.OPEN
        self._carrier.on_opened(identity, vhost.name)

    def _can(self, capability: str) -> bool:
        """Whether the client has said that it knows something beyond the standard."""
        return bool(self._handshake.client.capabilities.get(capability))

    def _refuse(self, error: CoreError) -> None:
        """Ends a handshake whose login, or whose virtual host, is refused."""
        self._counters.refused_connections += 1
        if self.state is State.AUTHENTICATING and not self._can("authentication_failure_close"):
            self.state = State.CLOSED  # as old clients expect it: without a word
            return
        found = answer(error)
        # RabbitMQ says 530 for a virtual host that is not the user's.
        if self.state is State.OPENING and found.code is ReplyCode.ACCESS_REFUSED:
            found = Amqp091Error(ReplyCode.NOT_ALLOWED, found.text)
        self.fail(found.code, found.text, self._input.index)

    def block(self, reason: str) -> None:
        """Tells a client that wants to know that its publishes are not read for now."""
        if self.state is State.OPEN and self._can("connection.blocked"):
            self.output.send(0, ConnectionBlocked(reason))

    def unblock(self) -> None:
        """Tells a client that wants to know that its publishes are read again."""
        if self.state is State.OPEN and self._can("connection.blocked"):
            self.output.send(0, ConnectionUnblocked())

    def beat(self) -> None:
        """Shows that we are alive."""
        self.output.write(HEARTBEAT_FRAME)

    # --- errors and the end

    def _fail_from_outside(self, number: int, error: Amqp091Error, index: int = 0) -> None:
        """Ends a channel by an error of no frame in hand: of a command, or of no method at all."""
        self._input.index = index
        self._fail(number, error)

    def _fail(self, number: int, error: Amqp091Error) -> None:
        """Ends the channel, or the connection, as the error asks for it."""
        self._log_failure(number, error)
        client = self.client
        if error.ends_connection or client is None or not client.fail_channel(number, error):
            self._counters.connection_errors += 1
            self.fail(error.code, error.text, self._input.index)

    def _log_failure(self, number: int, error: Amqp091Error) -> None:
        said = reply_text(error.code, error.text)
        host, user = self._carrier.peer().host, self._user()
        log.info("%s of user '%s', channel %d: %s", host, user, number, said)

    def _on_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        log.error("a bug ends the connection of %s", self._carrier.peer().host, exc_info=error)
        self.fail(ReplyCode.INTERNAL_ERROR, "a bug of the gateway; see its log")

    def _user(self) -> str:
        return "" if self.identity is None else self.identity.name

    def who(self) -> str:
        """Names the client for the log."""
        return f"'{self._user()}' at {self._carrier.peer().host}"

    def fail(self, code: ReplyCode, text: str, index: int = 0) -> None:
        """Ends the connection and says why; it is over when the client has answered."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        if self.state is State.AWAITING_HEADER:
            self.state = State.CLOSED
            return
        class_id, method_id = divmod(index, 1 << 16)
        self.state = State.CLOSING
        self._end_client(RELEASED)
        self.output.send(0, ConnectionClose(code, reply_text(code, text), class_id, method_id))

    def _await_close_ok(self, frame: Frame, payload: bytes) -> None:
        """Waits for the client's answer to our close: everything else is ignored."""
        if frame.channel or self._input.index not in (
            ConnectionCloseOk.index,
            ConnectionClose.index,
        ):
            return
        method = decode_method(payload)
        self.state = step(RECEIVED, self.state, method)
        if isinstance(method, ConnectionClose):
            self.output.send(0, ConnectionCloseOk())

    def lost(self) -> None:
        """Ends everything: the socket is gone, whatever was said."""
        self.state = State.CLOSED
        self._end_client(FAILED)
        # The cyclic collector runs seldom in the gateway: leave it no cycles.
        self.client = None
        self._carrier = GONE
        self._handshake.end()

    def _end_client(self, verdict: Verdict) -> None:
        if self.client is not None:
            self.client.end(verdict)

    # --- the client's socket and permissions

    def pause(self) -> None:
        """Stops deliveries: the client's socket is full."""
        self.output.is_blocked = True
        if self.client is not None:
            self.client.pause()

    def resume(self) -> None:
        """Goes on with deliveries: the client's socket has room."""
        self.output.is_blocked = False
        if self.client is not None:
            self.client.resume()

    def review(self) -> None:
        """Looks through the client's consumers after permissions have changed."""
        if self.client is not None:
            self.client.review()

    # --- people

    def report(self, state: ConnectionState) -> ConnectionReport | None:
        """Describes an open connection to people; None: it is not open."""
        return None if self.client is None else report_on(self.client, state)

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Ends a consumer because an operator wants it; False: there is no such consumer."""
        return self.client is not None and self.client.cancel_consumer(channel, tag, reason)
