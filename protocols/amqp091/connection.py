"""The asyncio side of a connection: reads chunks, writes once per loop turn, keeps time.

All that is said and understood is `machine`'s business. While a command waits, or while the core
has more to store than it should hold, nothing is read from the socket: the client feels it in TCP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from protocols.amqp091.channel import Channel
from protocols.amqp091.consuming import review
from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.errors import ReplyCode
from protocols.amqp091.handshake import OpenVhost, State
from protocols.amqp091.machine import Command, Machine
from protocols.amqp091.operations import Perform
from protocols.amqp091.output import Output
from protocols.amqp091.settings import Settings
from protocols.amqp091.terms import Services
from queue_core.auth import PLAIN, Credentials, Peer
from queue_core.errors import AccessRefused, CoreError
from queue_core.logins import Begin, Challenge, Continue, Login

log = logging.getLogger(__name__)

WRITE_HIGH: Final = 512 * 1024  # bytes that may wait in the socket's buffer before consumers do
WRITE_FULL: Final = 8 * 1024 * 1024  # bytes of answers, after which a client has to read first
CLOSE_SECONDS: Final = 5.0  # for the client to answer our close
REST_SECONDS: Final = 0.002  # for the consumers of a queue that grows
BEATS: Final = 2  # looks per heartbeat interval
MISSED: Final = 2 * BEATS + 1  # looks without a byte before the client is taken for dead
BLOCKED: Final = "the database is behind: publishing goes on when it has caught up"


class Connection(asyncio.Protocol):
    """One client. The gateway constructs it, and gives it the transport."""

    def __init__(
        self, services: Services, settings: Settings, counters: Amqp091Counters | None = None
    ) -> None:
        self._services = services
        self._settings = settings
        self._counters = counters or Amqp091Counters()
        self._loop = asyncio.get_running_loop()
        self._output = Output(self._schedule, self._flush)
        self._transport: asyncio.Transport
        self._machine: Machine
        self._peer: Peer
        self._login: Login | None = None  # while the client shows who it is
        self._is_scheduled = False
        self._is_leaving = False
        self._is_lost = False
        self._has_said_all = False  # our half of the connection is closed
        self._is_held = False  # not reading, because the core is behind
        self._is_resting = False  # not reading for a moment, because a queue grows
        self._has_room = asyncio.Event()  # cleared while the client does not read its answers
        self._has_room.set()
        self._running: asyncio.Task[None] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle
        self._has_heard = True
        self._has_spoken = False
        self._missed = 0

    # --- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        self._peer = Peer.described_by(transport.get_extra_info)
        self._machine = Machine(
            self._services, self._settings, self._peer, self._output, self, self._counters
        )
        self._timer = self._loop.call_later(self._settings.handshake_seconds, self._on_late)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        if self._machine.is_garbled:
            return
        try:
            command = self._machine.receive(data)
        except Exception as error:
            self._on_bug(error)
            return
        if command is not None:
            self._run(command)
        self._after_input()

    def pause_writing(self) -> None:
        self._output.is_blocked = True
        self._machine.each_channel(Channel.pause)

    def resume_writing(self) -> None:
        self._output.is_blocked = False
        self._has_room.set()
        self._resume_reading()
        self._machine.each_channel(Channel.resume)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._services.auth.let_go(self)
        self._timer.cancel()
        self._output.is_blocked = True
        self._has_room.set()
        self._machine.each_channel(Channel.pause)
        if self._running is None:
            self._end()
        # otherwise what runs comes to its end first, so that nothing it makes is left behind

    def _end(self) -> None:
        self._machine.lost()
        self._output.take()

    # --- commands

    def _run(self, command: Command) -> None:
        self._transport.pause_reading()
        self._running = self._loop.create_task(self._carry_out(command))

    async def _carry_out(self, command: Command | None) -> None:
        machine = self._machine
        try:
            while command is not None:
                await self._answer(command)
                if not self._has_room_left():
                    await self._has_room.wait()
                command = None if self._is_lost else machine.proceed()
        except Exception as error:
            self._on_bug(error)
        finally:
            self._running = None
            if self._is_lost:
                self._end()
            else:
                self._resume_reading()
                self._after_input()

    async def _answer(self, command: Command) -> None:
        machine, auth = self._machine, self._services.auth
        try:
            match command:
                case Perform():
                    await machine.perform(command)
                case Begin():
                    # tune has no room for what a mechanism says last
                    self._login = auth.begin(command.mechanism, self._peer, has_last_word=False)
                    await self._step(self._login, command.response)
                case Continue():
                    assert self._login is not None
                    await self._step(self._login, command.response)
                case OpenVhost():
                    await self._open(command.name)
        except CoreError as error:
            machine.refused(error)

    async def _step(self, login: Login, response: bytes) -> None:
        """Of the login; what the client hears of it."""
        answer = await login.step(response)
        if isinstance(answer, Challenge):
            self._machine.challenged(answer.data)
        else:
            self._login = None
            self._machine.authenticated(answer.identity)

    async def _open(self, name: str) -> None:
        vhost = await self._services.vhost(name)
        identity = self._machine.identity
        assert identity is not None
        if not self._services.auth.may_enter(identity, name):
            raise AccessRefused(f"access to vhost '{name}' refused for user '{identity.name}'")
        self._machine.opened(vhost)
        if not self._is_lost:
            self._services.auth.let_in(self, identity, name)
        self._timer.cancel()
        if self._machine.tuning.heartbeat:
            self._beat_later()

    # --- after every chunk

    def _has_room_left(self) -> bool:
        """Deliveries stop by themselves when the socket is full, answers with the questions."""
        if self._output.is_blocked and not self._is_lost:
            self._flush()
            if self._transport.get_write_buffer_size() > WRITE_FULL:
                self._has_room.clear()
                self._counters.held_readers += 1
                return False
        return True

    def _after_input(self) -> None:
        machine = self._machine
        if not self._has_room_left():
            self._transport.pause_reading()
        if machine.state is State.CLOSED or machine.state is State.CLOSING:
            self._say_goodbye()
        elif machine.has_published:
            machine.has_published = False
            terms = machine.terms
            if terms is not None and terms.vhost.writer.is_congested and not self._is_held:
                self._is_held = True
                self._counters.held_publishers += 1
                self._transport.pause_reading()
                machine.block(BLOCKED)
                self._holding = self._loop.create_task(self._hold())
            elif terms is not None and terms.vhost.house.is_crowded:
                terms.vhost.house.is_crowded = False
                self._rest()

    def _rest(self) -> None:
        """A publisher is confirmed at once by a queue in memory, its consumers wait for the
        network: without a moment's rest it would fill the queue, however fast they are."""
        if not self._is_resting:
            self._is_resting = True
            self._counters.rested_publishers += 1
            self._transport.pause_reading()
            self._loop.call_later(REST_SECONDS, self._end_rest)

    def _end_rest(self) -> None:
        self._is_resting = False
        self._resume_reading()

    async def _hold(self) -> None:
        terms = self._machine.terms
        assert terms is not None
        try:
            await terms.vhost.writer.uncongested()
        finally:
            self._is_held = False
        if not self._is_lost:
            self._machine.unblock()
            self._resume_reading()

    def _resume_reading(self) -> None:
        is_free = self._running is None and not self._is_held and not self._is_resting
        is_free = is_free and self._has_room.is_set()
        if is_free and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- writing

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self._flush()

    def _flush(self) -> None:
        data = self._output.take()
        if data and not self._is_lost and not self._has_said_all:
            self._has_spoken = True
            self._transport.write(data)

    # --- time

    def _on_late(self) -> None:
        self._counters.handshake_timeouts += 1
        log.warning("%s has not opened its connection in time; closed", self._peer.host)
        self._transport.abort()

    def _beat_later(self) -> None:
        seconds = self._machine.tuning.heartbeat / BEATS
        self._timer = self._loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        is_deaf = self._is_held or self._running is not None  # we are not reading
        self._missed = 0 if self._has_heard or is_deaf else self._missed + 1
        if self._missed >= MISSED:
            self._counters.heartbeat_timeouts += 1
            log.warning(
                "%s sent nothing for two heartbeat intervals of %d s; closed",
                self._peer.host,
                self._machine.tuning.heartbeat,
            )
            self._transport.abort()
            return
        if not self._has_spoken:
            self._machine.beat()
        self._has_heard = self._has_spoken = False
        self._beat_later()

    # --- the end

    def shut_down(self, reason: str) -> None:
        """The gateway stops: says so, and closes when that is written."""
        if not self._is_lost:
            self._machine.close(ReplyCode.CONNECTION_FORCED, reason)
            self._after_input()

    def expel(self, reason: str) -> None:
        """The user may not be here any more."""
        if not self._is_lost:
            self._machine.close(ReplyCode.ACCESS_REFUSED, reason)
            self._after_input()

    def review(self) -> None:
        """Permissions have changed."""
        if not self._is_lost:
            for channel in list(self._machine.channels.values()):
                review(channel)
            self._after_input()

    def _say_goodbye(self) -> None:
        """Once: a client that goes on talking, or does not read, gets no more time for that."""
        self._flush()
        if not self._is_leaving:
            self._is_leaving = True
            self._timer.cancel()
            self._timer = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)
        if self._machine.is_garbled and self._transport.can_write_eof():
            # The client is still sending. To close now would make TCP reset the connection, and
            # take our words with it: what comes is thrown away until it has read them.
            self._has_said_all = True
            self._transport.write_eof()
        elif self._machine.state is State.CLOSED:
            self._transport.close()

    def _on_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        log.error("a bug ends the connection of %s", self._peer.host, exc_info=error)
        self._machine.close(ReplyCode.INTERNAL_ERROR, "a bug of the gateway; see its log")
        self._after_input()
