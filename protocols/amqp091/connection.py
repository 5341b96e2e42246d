"""The asyncio side of a connection: reads chunks, writes once per loop turn, keeps time.

All that is said and understood is `machine`'s business. While a command waits, or while the core
has more to store than it should hold, nothing is read from the socket: the client feels it in TCP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from protocols.amqp091.channel import Channel
from protocols.amqp091.consume.consuming import review
from protocols.amqp091.context import Context
from protocols.amqp091.dispatch import Perform
from protocols.amqp091.errors import ReplyCode
from protocols.amqp091.handshake import OpenVhost
from protocols.amqp091.machine import Command, Machine
from protocols.amqp091.output import Output
from protocols.amqp091.states import State
from protocols.farewell import part
from protocols.memory_share import MemoryShare
from protocols.read_gate import (
    ALL,
    BACKLOG,
    BUSY,
    MEMORY,
    RESTING,
    STORE,
    SUBSCRIBER,
    UNREAD,
    ReadGate,
)
from queue_core.access.auth import Peer
from queue_core.access.login import Begin, Challenge, Continue, Login
from queue_core.delivery.backpressure import wait_for_room
from queue_core.errors import AccessRefused, CoreError
from queue_core.queues.competing import CompetingQueue
from queue_core.scheduler import scheduler

log = logging.getLogger(__name__)

WRITE_HIGH: Final = 512 * 1024  # bytes that may wait in the socket's buffer before consumers do
CLOSE_SECONDS: Final = 5.0  # for the client to answer our close
REST_SECONDS: Final = 0.002  # for the consumers of a queue that grows
BEATS: Final = 2  # looks per heartbeat interval
MISSED: Final = 2 * BEATS + 1  # looks without a byte before the client is taken for dead
SHORT: Final = "memory is short: publishing goes on when it is not"
BLOCKED: Final = "the database is behind: publishing goes on when it has caught up"


class Connection(asyncio.Protocol):
    """One client. The gateway constructs it, and gives it the transport."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self._counters = context.counters
        self._services = context.services
        self._loop = asyncio.get_running_loop()
        self._share = scheduler().share()  # of the loop's time
        self._output = Output(self._schedule, self._flush)
        self._transport: asyncio.Transport
        self._machine: Machine
        self._peer: Peer
        self._login: Login | None = None  # while the client shows who it is
        self._is_scheduled = False
        self._is_leaving = False
        self._is_lost = False
        self._has_said_all = False  # nothing is read or written any more
        self._gate: ReadGate
        self._memory = MemoryShare(context.services.memory, self)
        self._running: asyncio.Task[None] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None  # for subscribers that are behind
        self._timer: asyncio.TimerHandle
        self._has_heard = True
        self._has_spoken = False
        self._missed = 0

    # --- the transport's calls

    @property
    def awaits_us(self) -> bool:
        """Whether the client has asked for something, as to be let in, and gets its answer yet."""
        return self._running is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        high = min(WRITE_HIGH, self._settings.max_unsent_size)
        self._transport.set_write_buffer_limits(high=high)
        self._gate = ReadGate(self._transport, lambda: self._share.wait(self._go_on))
        self._peer = Peer.described_by(transport.get_extra_info)
        self._machine = Machine(self._context, self._peer, self._output)
        self._machine.arrivals.reserve = self._memory.expect
        self._timer = self._loop.call_later(self._settings.handshake_seconds, self._on_late)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        if self._gate.is_open and self._share.begin():
            self._work(data)
            return
        self._machine.keep(data)
        self._gate.shut(BACKLOG)

    def pause_writing(self) -> None:
        self._output.is_blocked = True
        self._machine.each_channel(Channel.pause)

    def resume_writing(self) -> None:
        self._output.is_blocked = False
        self._gate.open(UNREAD)
        self._machine.each_channel(Channel.resume)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._services.auth.let_go(self)
        self._timer.cancel()
        self._share.close()
        self._gate.close()
        if self._waiting is not None:
            self._waiting.cancel()  # no subscriber is to end for a publisher that is gone
        self._output.is_blocked = True
        self._machine.each_channel(Channel.pause)
        if self._running is None:
            self._end()
        # otherwise what runs comes to its end first, so that nothing it makes is left behind

    def _end(self) -> None:
        self._machine.lost()
        self._memory.end()
        self._output.close()
        self._login = None

    # --- input, in slices of the loop's time

    def _work(self, data: bytes) -> None:
        machine, share = self._machine, self._share
        try:
            self._forget_pressed()
            command = machine.receive(data)
            while command is None and machine.is_unfinished and not share.is_over():
                command = machine.receive(b"")
        except Exception as error:
            self._on_bug(error)
            return
        finally:
            share.end()
        if command is not None:
            self._run(command)
        self._after_input()
        self._note_backlog()

    def _note_backlog(self) -> None:
        if self._machine.is_unfinished:
            self._gate.shut(BACKLOG)
        else:
            self._gate.open(BACKLOG)

    def _go_on(self) -> None:
        """What has come already has its turn, unless something else is in the way by now."""
        if self._is_lost or self._has_said_all or self._gate.is_held:
            return
        if self._share.begin():
            self._work(b"")
        else:
            self._gate.shut(BACKLOG)

    # --- commands

    def _run(self, command: Command) -> None:
        self._gate.shut(BUSY)
        self._running = self._loop.create_task(self._carry_out(command))

    async def _carry_out(self, command: Command) -> None:
        """One command. What came behind it takes its turn like all input."""
        try:
            await self._answer(command)
            self._share.charge()
            self._machine.proceed()
        except Exception as error:
            self._on_bug(error)
        finally:
            self._running = None
            if self._is_lost:
                self._end()
            else:
                self._after_input()
                self._note_backlog()
                self._gate.open(BUSY)

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
            self._share.is_known = True
            self._machine.authenticated(answer.identity)

    async def _open(self, name: str) -> None:
        vhost = await self._services.vhost(name)
        identity = self._machine.identity
        assert identity is not None
        if not self._services.auth.may_enter(identity, name):
            raise AccessRefused(f"access to vhost '{name}' refused for user '{identity.name}'")
        self._machine.opened(vhost)
        assert self._machine.terms is not None
        transactions = self._machine.terms.transactions
        transactions.on_change = self._memory.add_transaction
        transactions.on_pressed = self._hold_for
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
            if self._transport.get_write_buffer_size() > self._settings.max_unsent_size:
                self._counters.held_readers += 1
                return False
        return True

    def _after_input(self) -> None:
        machine = self._machine
        if machine.state is State.CLOSED or machine.state is State.CLOSING:
            self._say_goodbye()
            return
        if not self._has_room_left():
            self._gate.shut(UNREAD)
        if machine.has_published:
            machine.has_published = False
            terms = machine.terms
            is_held = self._gate.is_shut_for(STORE)
            if terms is not None and terms.vhost.writer.is_congested and not is_held:
                self._counters.held_publishers += 1
                self._block(STORE, BLOCKED)
                self._storing = self._loop.create_task(self._hold())
            elif terms is not None and terms.vhost.context.is_crowded:
                terms.vhost.context.is_crowded = False
                self._rest()
            self._memory.hold_if_short()
            if terms is not None and (pressed := terms.vhost.take_pressed()):
                self._hold_for(pressed)

    def _forget_pressed(self) -> None:
        """Others may have found queues full before: that is not this client's doing."""
        if self._machine.terms is not None:
            self._machine.terms.vhost.take_pressed()

    def _hold_for(self, queues: list[CompetingQueue]) -> None:
        """Subscribers of what it published are behind."""
        if not self._is_lost and not self._gate.is_shut_for(SUBSCRIBER):
            self._counters.held_publishers += 1
            self._gate.shut(SUBSCRIBER)
            self._waiting = self._loop.create_task(self._wait_for_room(queues))

    async def _wait_for_room(self, queues: list[CompetingQueue]) -> None:
        await wait_for_room(queues)
        if not self._is_lost:
            self._gate.open(SUBSCRIBER)

    def _rest(self) -> None:
        """A publisher is confirmed at once by a queue in memory, its consumers wait for the
        network: without a moment's rest it would fill the queue, however fast they are."""
        if not self._gate.is_shut_for(RESTING):
            self._counters.rested_publishers += 1
            self._gate.shut(RESTING)
            self._loop.call_later(REST_SECONDS, self._gate.open, RESTING)

    async def _hold(self) -> None:
        terms = self._machine.terms
        assert terms is not None
        await terms.vhost.writer.uncongested()
        if not self._is_lost:
            self._unblock(STORE)

    def _block(self, reason: int, text: str) -> None:
        """Stops reading a publisher, and tells it, if it has not been told already."""
        if not self._gate.is_shut_for(STORE | MEMORY):
            self._machine.block(text)
        self._gate.shut(reason)

    def _unblock(self, reason: int) -> None:
        self._gate.open(reason)
        if not self._gate.is_shut_for(STORE | MEMORY):
            self._machine.unblock()

    # --- memory: implements `Holder`

    def on_short(self) -> None:
        self._block(MEMORY, SHORT)

    def on_room(self) -> None:
        self._unblock(MEMORY)

    def received_bytes(self) -> int:
        return self._machine.arrivals.size

    def is_read(self) -> bool:
        return self._gate.is_open

    def unsent_bytes(self) -> int:
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    def who(self) -> str:
        identity = self._machine.identity
        return f"'{'' if identity is None else identity.name}' at {self._peer.host}"

    def relieve(self, reason: str) -> None:
        if not self._is_lost:
            self._machine.close(ReplyCode.RESOURCE_ERROR, reason)
            self._gate.open(MEMORY)  # what still comes is thrown away
            self._after_input()

    # --- writing

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self._flush()

    def _flush(self) -> None:
        data, pieces = self._output.take_pieces()
        if data and not self._is_lost and not self._has_said_all:
            self._has_spoken = True
            self._memory.write(self._transport, data, pieces)

    # --- time

    def _on_late(self) -> None:
        self._counters.handshake_timeouts += 1
        log.warning("%s has not opened its connection in time; closed", self._peer.host)
        self._transport.abort()

    def _beat_later(self) -> None:
        seconds = self._machine.tuning.heartbeat / BEATS
        self._timer = self._loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        # it cannot be heard
        is_deaf = self._gate.is_shut_for(BUSY | STORE | SUBSCRIBER | BACKLOG | MEMORY)
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
        if self._has_said_all or self._is_lost:
            return
        self._flush()
        if self._machine.state is State.CLOSED:
            self._has_said_all = True
            self._timer.cancel()
            part(self._transport, CLOSE_SECONDS, is_stranger=self._machine.identity is None)
        elif not self._is_leaving:
            self._timer.cancel()
            self._timer = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)
        self._is_leaving = True
        self._gate.ignore(
            ALL & ~(BUSY | BACKLOG)
        )  # only the client's answer counts, and it is to be heard

    def _on_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        log.error("a bug ends the connection of %s", self._peer.host, exc_info=error)
        self._machine.close(ReplyCode.INTERNAL_ERROR, "a bug of the gateway; see its log")
        self._after_input()
