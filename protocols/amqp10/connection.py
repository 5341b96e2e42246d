"""The asyncio side of a connection: reads chunks, writes once per loop turn, keeps time.

All that is said and understood is the business of `sasl`, until the client has shown who it is, and
of `machine` after that. While a command waits, or while the core has more to store than it should
hold, nothing is read from the socket: the client feels it in TCP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, cast

from protocols.amqp10.context import Context
from protocols.amqp10.errors import INTERNAL_ERROR, RESOURCE_LIMIT, UNAUTHORIZED, Amqp10Error
from protocols.amqp10.machine import Command, Machine
from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER, Sasl, State, Wish
from protocols.farewell import part
from protocols.memory_share import MemoryShare
from protocols.read_gate import (
    ALL,
    BACKLOG,
    BUSY,
    LOGIN,
    MEMORY,
    STORE,
    SUBSCRIBER,
    UNREAD,
    ReadGate,
)
from queue_core.access.auth import ANONYMOUS, Credentials, Identity, Peer
from queue_core.access.login import Begin, Challenge, Login
from queue_core.errors import AccessRefused, CoreError
from queue_core.queues.backpressure import wait_for_room
from queue_core.queues.queue import Queue
from queue_core.scheduler import scheduler

log = logging.getLogger(__name__)

WRITE_HIGH: Final = 512 * 1024  # bytes that may wait in the socket's buffer before consumers do
CLOSE_SECONDS: Final = 5.0  # for the client to answer our close
SHORTEST_TICK: Final = 0.25  # seconds
PARTIAL_STEP: Final = 1 << 20  # bytes of unfinished messages that room is reserved for at once
LONGEST_TICK: Final = 10.0
HEARING_SECONDS: Final = 2.0  # after reading began again, until what had come is read


class Connection(asyncio.Protocol):
    """One client. The gateway constructs it, and gives it the transport."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self._counters = context.counters
        self._services = context.services
        self._loop = asyncio.get_running_loop()
        self._share = scheduler().share()  # of the loop's time
        self._transport: asyncio.Transport
        self._peer: Peer
        self._sasl: Sasl
        self._login: Login | None = None  # once the client has chosen a mechanism
        self._machine: Machine | None = None  # there is none before the login
        self._before = b""  # what came before anybody could take it
        self._is_scheduled = False
        self._is_lost = False
        self._has_parted = False  # nothing is said or heard any more
        self._gate: ReadGate
        self._memory = MemoryShare(context.services.memory, self)
        self._is_held = False  # waits for the store to catch up
        self._listens_since = 0.0
        self._identity: Identity | None = None  # before the login
        self._running: asyncio.Task[None] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None  # for subscribers that are behind
        self._ending: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle
        self._ticking: asyncio.TimerHandle | None = None
        self._is_late_over = False  # it opened in time
        self._is_clean = False

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
        self._sasl = Sasl(self._services.auth.mechanisms(self._peer))
        self._late = self._loop.call_later(self._settings.handshake_seconds, self._on_late)

    def data_received(self, data: bytes) -> None:
        try:
            if self._machine is not None:
                self._machine.receive(data)
                if self._gate.is_open:
                    self._advance()
                else:
                    self._gate.shut(BACKLOG)
            else:
                self._log_in(data)
        except Exception as error:
            self._on_bug(error)

    def pause_writing(self) -> None:
        """A peer that does not read is not read from, either: what it sends makes answers."""
        self._counters.held_readers += 1
        self._gate.shut(UNREAD)
        if self._machine is not None:
            self._machine.block()

    def resume_writing(self) -> None:
        if self._machine is not None:
            self._machine.unblock()
        self._read_on(UNREAD)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._services.auth.let_go(self)
        self._share.close()
        self._gate.close()
        self._late.cancel()
        if self._waiting is not None:
            self._waiting.cancel()  # no subscriber is to end for a publisher that is gone
        if self._ticking is not None:
            self._ticking.cancel()
        if self._machine is not None:
            self._machine.block()
            if self._running is None:
                self._ending = self._loop.create_task(self._end())
        else:
            self._memory.end()
        # otherwise what runs comes to its end first, so that nothing it makes is left behind

    async def _end(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.lost(is_clean=self._is_clean)
        self._memory.end()

    # --- login

    def _log_in(self, data: bytes) -> None:
        if self._running is not None:
            self._before += data
            if len(self._before) > self._settings.max_frame_size:
                self._gate.shut(LOGIN)
            return
        if self._sasl.state is State.AWAITING_HEADER:
            self._before += data
            if len(self._before) < len(HEADER):
                return
            data, self._before = self._before, b""
            if data.startswith(AMQP_HEADER):
                self._enter_unproven(data)
                return
        if self._sasl.state is State.AUTHENTICATED:  # the AMQP header comes now
            self._before += data
            self._begin_amqp()
            return
        self._receive_sasl(data)

    def _receive_sasl(self, data: bytes) -> None:
        try:
            wish = self._sasl.receive(data)
        except AccessRefused as error:
            self._refuse_login(error)
            return
        except Amqp10Error as error:
            log.warning("SASL with %s failed: %s", self._peer.host, error.text)
            self._counters.refused_connections += 1
            self._write_sasl()
            self._part()
            return
        self._write_sasl()
        if wish is not None:
            self._running = self._loop.create_task(self._guarded(self._step(wish)))

    def _enter_unproven(self, data: bytes) -> None:
        """Without a security layer: only where nobody needs to say who he is [2.2]."""
        if ANONYMOUS not in self._services.auth.mechanisms(self._peer):
            self._counters.refused_connections += 1
            log.info("%s came without SASL, and nobody may enter unnamed", self._peer.host)
            self._transport.write(HEADER)
            self._part()
            return
        self._before = data
        self._running = self._loop.create_task(self._guarded(self._enter_as_anonymous()))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A part of the login that takes time; what comes meanwhile waits in `_before`."""
        try:
            await work
        except CoreError as error:
            self._running = None
            self._refuse_login(error)
        except Exception as error:
            self._running = None
            self._on_bug(error)

    async def _enter_as_anonymous(self) -> None:
        credentials = Credentials(ANONYMOUS)
        self._identity = await self._services.auth.authenticate(credentials, self._peer)
        self._running = None
        if not self._is_lost:
            self._sasl.state = State.AUTHENTICATED
            self._gate.open(LOGIN)
            self._begin_amqp()

    async def _step(self, wish: Wish) -> None:
        """One step of the login, and what the client hears of it."""
        if isinstance(wish, Begin):
            self._login = self._services.auth.begin(wish.mechanism, self._peer)
        assert self._login is not None
        answer = await self._login.step(wish.response)
        self._running = None
        if self._is_lost:
            return
        if isinstance(answer, Challenge):
            self._sasl.challenge(answer.data)
            self._write_sasl()
            self._gate.open(LOGIN)
            came, self._before = self._before, b""
            self._receive_sasl(came)
            return
        self._identity = answer.identity
        self._login = None
        self._sasl.accept(answer.data)
        self._write_sasl()
        self._before = self._sasl.rest() + self._before
        self._gate.open(LOGIN)
        self._begin_amqp()

    def _begin_amqp(self) -> None:
        if len(self._before) < len(AMQP_HEADER):
            return
        assert self._identity is not None  # AMQP begins after the login
        machine = Machine(self._context, self._peer, self._identity, self._schedule)
        self._machine = machine
        machine.on_partial, machine.on_transaction = self._on_partial, self._memory.add_transaction
        machine.coordinator.on_pressed = self._hold_for
        machine.receive(self._before)
        self._before = b""
        self._advance()
        self._tick()

    def _refuse_login(self, error: CoreError) -> None:
        self._counters.refused_connections += 1
        self._sasl.refuse(is_temporary=not isinstance(error, AccessRefused))
        self._write_sasl()
        self._part()

    def _write_sasl(self) -> None:
        output = self._sasl.take_output()
        if output and not self._is_lost and not self._has_parted:
            self._transport.write(output)

    # --- input, in slices of the loop's time

    def _advance(self) -> None:
        machine, share = self._machine, self._share
        assert machine is not None
        if not share.begin():
            self._gate.shut(BACKLOG)
            return
        submitted = machine.vhost.writer.submitted if machine.is_open else 0
        self._forget_pressed()
        try:
            command = machine.advance()
            while command is None and machine.is_unfinished and not share.is_over():
                command = machine.advance()
        finally:
            share.end()
        if command is not None:
            self._gate.shut(BUSY)
            self._running = self._loop.create_task(self._carry_out(command))
        self._after_input()
        if machine.is_open:
            self._hold_back_if_needed(machine, submitted)
        self._note_backlog()

    def _note_backlog(self) -> None:
        if self._machine is not None and self._machine.is_unfinished:
            self._gate.shut(BACKLOG)
        else:
            self._read_on(BACKLOG)

    def _go_on(self) -> None:
        """What has come already has its turn, unless something else is in the way by now."""
        if self._is_lost or self._has_parted or self._machine is None or self._gate.is_held:
            return
        try:
            self._advance()
        except Exception as error:
            self._on_bug(error)

    # --- commands

    async def _carry_out(self, command: Command) -> None:
        """One command. What came behind it takes its turn like all input."""
        try:
            await command
            self._share.charge()
        except Exception as error:
            self._on_bug(error)
        finally:
            self._running = None
            if self._is_lost or self._has_parted:
                await self._end()
            else:
                self._after_input()
                self._note_backlog()
                self._read_on(BUSY)

    # --- after every chunk

    def _after_input(self) -> None:
        machine = self._machine
        assert machine is not None
        self._schedule()
        if machine.is_open and not self._is_late_over:
            assert self._identity is not None
            self._is_late_over = self._share.is_known = True
            self._services.auth.let_in(self, self._identity, machine.vhost.name)
            self._late.cancel()
            self._flush()  # our open, with our idle time-out in it
            self._tick()  # now the peer's own is known

    def _hold_back_if_needed(self, machine: Machine, submitted: int) -> None:
        """The disk or a subscriber is behind: who has brought something is not read until it is
        not."""
        writer = machine.vhost.writer
        if writer.is_congested and writer.submitted != submitted and not self._is_held:
            self._is_held = True
            self._counters.held_publishers += 1
            self._gate.shut(STORE)
            self._storing = self._loop.create_task(self._hold())
        if machine.has_published:
            machine.has_published = False
            self._memory.hold_if_short()
        if pressed := machine.vhost.take_pressed():
            self._hold_for(pressed)

    def _forget_pressed(self) -> None:
        """Others may have found queues full before: that is not this client's doing."""
        if self._machine is not None and self._machine.is_open:
            self._machine.vhost.take_pressed()

    def _hold_for(self, queues: list[Queue]) -> None:
        """Subscribers of what it published are behind."""
        if not self._is_lost and not self._gate.is_shut_for(SUBSCRIBER):
            self._counters.held_publishers += 1
            self._gate.shut(SUBSCRIBER)
            self._waiting = self._loop.create_task(self._wait_for_room(queues))

    async def _wait_for_room(self, queues: list[Queue]) -> None:
        await wait_for_room(queues)
        if not self._is_lost:
            self._read_on(SUBSCRIBER)

    async def _hold(self) -> None:
        machine = self._machine
        assert machine is not None
        try:
            await machine.vhost.writer.uncongested()
        finally:
            self._is_held = False
        if not self._is_lost:
            machine.feed()
            self._read_on(STORE)

    def _read_on(self, reason: int) -> None:
        """One reason not to read is gone."""
        if self._gate.open(reason):
            self._listens_since = self._loop.time()

    # --- memory: implements `Holder`

    def _on_partial(self, size: int) -> None:
        """A transfer does not say how long its message is: room is reserved in steps."""
        steps = -(-size // PARTIAL_STEP)
        if self._memory.partial != steps * PARTIAL_STEP:
            self._memory.expect(steps * PARTIAL_STEP)

    def on_short(self) -> None:
        self._gate.shut(MEMORY)

    def on_room(self) -> None:
        if self._machine is not None and not self._is_lost:
            self._machine.feed()
        self._read_on(MEMORY)

    def received_bytes(self) -> int:
        return 0 if self._machine is None else self._machine.partial_bytes

    def is_read(self) -> bool:
        return self._gate.is_open

    def unsent_bytes(self) -> int:
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    def who(self) -> str:
        name = "" if self._identity is None else self._identity.name
        return f"'{name}' at {self._peer.host}"

    def relieve(self, reason: str) -> None:
        if self._machine is not None and not self._is_lost:
            for handle in list(self._machine.links):  # what it holds goes at once
                self._machine.fail_link(handle, RESOURCE_LIMIT, reason)
            self._machine.close(reason, RESOURCE_LIMIT)
            self._close_soon()

    # --- writing

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        machine = self._machine
        if self._is_lost or self._has_parted or machine is None:
            return
        data = machine.take_output()
        if data:
            self._memory.write(self._transport, data, (data,))
        if machine.engine.is_over:
            self._is_clean = not machine.is_failed
            self._part()
        elif machine.starved and self._memory.is_short:
            self._memory.hold_if_short(is_read=True)
        elif machine.starved and not self._is_held:
            self._is_held = True
            self._storing = self._loop.create_task(self._hold())

    # --- time

    def _on_late(self) -> None:
        log.warning("%s has not opened its connection in time; closed", self._peer.host)
        self._counters.handshake_timeouts += 1
        self._transport.abort()

    def _tick(self) -> None:
        """Idle time-outs, both ways: the engine keeps them."""
        if self._is_lost or self._machine is None:
            return
        if self._ticking is not None:
            self._ticking.cancel()
        now, engine = self._loop.time(), self._machine.engine
        is_fair = self._gate.is_open and now - self._listens_since > HEARING_SECONDS
        if self._is_late_over:  # before that it would change what our open announces
            engine.expect_input(int(self._settings.idle_seconds * 1000) if is_fair else 0)
        when = engine.tick(int(now * 1000))
        self._schedule()
        if when > 0:
            seconds = max(SHORTEST_TICK, when / 1000 - now)
        elif self._settings.idle_seconds and not is_fair:
            seconds = HEARING_SECONDS
        else:
            return
        self._ticking = self._loop.call_later(min(seconds, LONGEST_TICK), self._tick)

    # --- the end

    def shut_down(self, reason: str) -> None:
        """The gateway stops: says so, and closes when that is written."""
        if self._is_lost:
            return
        if self._machine is None:
            self._part()
            return
        self._machine.close(reason)
        self._close_soon()

    def expel(self, reason: str) -> None:
        """The user may not be here any more."""
        if self._machine is not None and not self._is_lost:
            self._machine.close(reason, UNAUTHORIZED)
            self._close_soon()

    def review(self) -> None:
        """Permissions have changed."""
        if self._machine is not None and self._machine.is_open and not self._is_lost:
            self._machine.review()

    def _part(self) -> None:
        """Nothing is said or heard after this, and what the client had is free at once."""
        if self._has_parted:
            return
        self._has_parted = True
        self._late.cancel()
        if self._machine is not None and self._running is None:
            self._machine.block()
            self._ending = self._loop.create_task(self._end())
        self._gate.ignore(ALL)
        part(self._transport, CLOSE_SECONDS, is_stranger=not self._is_late_over)

    def _close_soon(self) -> None:
        self._is_clean = True
        self._late.cancel()
        self._late = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def _on_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        log.error("a bug ends the connection of %s", self._peer.host, exc_info=error)
        if self._machine is None or self._is_lost:
            self._transport.abort()
            return
        self._machine.close("a bug of the gateway; see its log", INTERNAL_ERROR)
        self._close_soon()
