"""The asyncio side that the connections of both AMQP versions share: sockets, pressure, deadlines.

Everything said and understood is the machine's business. A chunk is handled in slices of the loop's
time, and output leaves in one write at the end of a turn. While a command is carried out, or the
database or a subscriber is behind, the socket is not read: the client feels it in TCP.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from protocols.connection_report import ConnectionReport, ConnectionState, Volume
from protocols.graceful_close import part
from protocols.memory_share import MemoryShare
from protocols.null_transport import NO_TRANSPORT
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
from protocols.services import Services
from protocols.timer import Timer
from queue_core.access.auth import Identity, Peer
from queue_core.queues.queue import Queue, wait_for_room
from queue_core.scheduler import HEAVY_BYTES, scheduler
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

WRITE_HIGH_BYTES: Final = 512 * 1024  # in the socket's buffer, before consumers wait
CLOSE_SECONDS: Final = 5.0  # for the client to answer our close
WAITING: Final = SUBSCRIBER | RESTING  # reasons not to read a publisher for a moment


class Settings(Protocol):
    """The settings that a connection itself needs."""

    @property
    def handshake_seconds(self) -> float: ...

    @property
    def max_unsent_size(self) -> int: ...


class Counters(Protocol):
    """The counters that a connection itself keeps."""

    handshake_timeouts: int
    held_publishers: int


class Context(Protocol):
    """The context that all connections of one adapter share."""

    @property
    def services(self) -> Services: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def counters(self) -> Counters: ...


class Machine(Protocol):
    """A protocol machine, as far as every connection needs it."""

    @property
    def is_unfinished(self) -> bool:
        """Whether there may be more to handle, without more input."""
        ...

    @property
    def vhost(self) -> Vhost | None:
        """The virtual host of an open connection."""
        ...

    @property
    def channel_count(self) -> int:
        """Counts the channels or sessions of an open connection."""
        ...

    @property
    def partial_bytes(self) -> int:
        """Counts the bytes of messages that have come in part."""
        ...

    def receive(self, data: bytes, is_over: Callable[[], bool]) -> Any:
        """Handles what is whole until `is_over`; a command is to be carried out, then `proceed`."""

    def keep(self, data: bytes) -> None:
        """Adds to the input, and handles nothing."""

    async def perform(self, command: Any) -> None:
        """Carries a command out; an error of it ends the connection or a part of it."""

    def proceed(self) -> None:
        """Goes on behind a command that was carried out."""

    def pause(self) -> None:
        """Stops deliveries: the client's socket is full."""

    def resume(self) -> None:
        """Goes on with deliveries: the client's socket has room."""

    def review(self) -> None:
        """Looks through the client's consumers after permissions have changed."""

    def who(self) -> str:
        """Names the client for the log."""
        ...

    def report(self, state: ConnectionState) -> ConnectionReport | None:
        """Describes an open connection to people; None: it is not open."""
        ...

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Ends a consumer because an operator wants it; False: there is no such consumer."""
        ...


MachineT = TypeVar("MachineT", bound=Machine)


class MachineConnection(ABC, asyncio.Protocol, Generic[MachineT]):
    """One client's connection. Implements the machine's `Carrier` and the account's `Holder`."""

    def __init__(self, context: Context, machine: MachineT) -> None:
        self._machine = machine
        self._services = context.services
        self._settings = context.settings
        self._totals = context.counters
        self._loop = asyncio.get_running_loop()
        self._share = scheduler().share()  # of the loop's time
        self._memory = MemoryShare(context.services.memory, self)
        self._transport: asyncio.Transport = NO_TRANSPORT  # until `connection_made`
        self._gate = ReadGate(NO_TRANSPORT)
        self._timer = Timer()  # for the login, and later for the client's answer to our close
        self._running: asyncio.Task[None] | None = None  # the command under way
        self._storing: asyncio.Task[None] | None = None  # a wait for the database
        self._waiting: asyncio.Task[None] | None = None  # a wait for subscribers that are behind
        self._is_flushing = False
        self._is_lost = False
        self.has_parted = False  # nothing is read or written any more
        self._bytes_received = 0
        self._bytes_sent = 0

    # --- the transport's calls

    @property
    def awaits_us(self) -> bool:
        """Whether the client has asked for something, as to be let in, and gets its answer yet."""
        return self._running is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        high = min(WRITE_HIGH_BYTES, self._settings.max_unsent_size)
        self._transport.set_write_buffer_limits(high=high)
        self._gate = ReadGate(self._transport, lambda: self._share.wait(self._go_on))
        self._timer.start(self._settings.handshake_seconds, self._on_late)

    def data_received(self, data: bytes) -> None:
        self._bytes_received += len(data)
        if self._gate.is_open and self._share.begin():
            self._work(data)
            return
        self._machine.keep(data)
        self._gate.shut(BACKLOG)

    def pause_writing(self) -> None:
        self._machine.pause()

    def resume_writing(self) -> None:
        self._machine.resume()
        self._read_on(UNREAD)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._services.auth.let_go(self)
        self._timer.stop()
        self._share.close()
        self._gate.close()
        if self._waiting is not None:
            self._waiting.cancel()  # no subscriber is to end for a publisher that is gone
        self._machine.pause()
        if self._running is None:
            self._end()
        # otherwise the command comes to its end first, so that nothing it makes is left behind

    @abstractmethod
    def _end(self) -> None:
        """Frees everything that the client held: its connection is over."""

    # --- input, in slices of the loop's time

    def _work(self, data: bytes) -> None:
        """Handles what is whole, as far as the slice goes that has begun."""
        machine, share = self._machine, self._share
        vhost = machine.vhost
        submitted = 0
        if vhost is not None:
            submitted = vhost.writer.submitted
            vhost.take_pressed()  # queues that others found full are not this client's doing
        try:
            command = machine.receive(data, share.is_over)
        finally:
            share.end()
        if command is not None:
            self._gate.shut(BUSY)
            self._running = self._loop.create_task(self._carry_out(command))
        self._after_input()
        if vhost is not None:
            self._hold_back_if_needed(vhost, submitted)
        self._note_backlog()

    def _note_backlog(self) -> None:
        if self._machine.is_unfinished:
            self._gate.shut(BACKLOG)
        else:
            self._read_on(BACKLOG)

    def _go_on(self) -> None:
        """Handles what has come already, unless something else is in the way by now."""
        if self._is_lost or self.has_parted or self._gate.is_held:
            return
        if self._share.begin():
            self._work(b"")
        else:
            self._gate.shut(BACKLOG)

    async def _carry_out(self, command: Any) -> None:
        """Carries one command out. What came behind it takes its turn like all input."""
        try:
            await self._machine.perform(command)
        finally:  # cancelled, too: a connection that waits for a command for ever never ends
            self._running = None
            self._share.charge()
            self._machine.proceed()
            if self._is_lost or self.has_parted:
                self._end()
            else:
                self._after_input()
                self._note_backlog()
                self._read_on(BUSY)

    @abstractmethod
    def _after_input(self) -> None:
        """Looks at the machine after it has handled something: it may have ended."""

    # --- publishers that bring more than others can take

    @abstractmethod
    def _hold_back_if_needed(self, vhost: Vhost, submitted: int) -> None:
        """Stops reading a client that has brought more than others can take, until they can.
        `submitted` is the number of the writer's units before this slice."""

    def _hold_for_store(self, vhost: Vhost) -> None:
        """Stops reading until the database has caught up."""
        if not self._gate.is_shut_for(STORE):
            self._totals.held_publishers += 1
            self._hold(STORE)
            self._storing = self._loop.create_task(self._wait_for_store(vhost))

    async def _wait_for_store(self, vhost: Vhost) -> None:
        await vhost.writer.uncongested()
        if not self._is_lost:
            self._read_on(STORE)

    def hold_for(self, queues: list[Queue]) -> None:
        """Stops reading until subscribers that are behind have room in these queues."""
        if not self._is_lost and not self._gate.is_shut_for(SUBSCRIBER):
            self._totals.held_publishers += 1
            self._gate.shut(SUBSCRIBER)
            self._waiting = self._loop.create_task(self._wait_for_room(queues))

    async def _wait_for_room(self, queues: list[Queue]) -> None:
        await wait_for_room(queues)
        if not self._is_lost:
            self._read_on(SUBSCRIBER)

    def _hold(self, reason: int) -> None:
        """Stops reading a publisher, for the database or for memory."""
        self._gate.shut(reason)

    def _read_on(self, reason: int) -> None:
        """Takes one reason not to read away."""
        self._gate.open(reason)

    # --- memory: implements `Holder`

    def on_short(self) -> None:
        self._hold(MEMORY)

    def on_room(self) -> None:
        self._read_on(MEMORY)

    @property
    def channel_count(self) -> int:
        return self._machine.channel_count

    def received_bytes(self) -> int:
        return self._machine.partial_bytes

    def is_read(self) -> bool:
        return self._gate.is_open

    def unsent_bytes(self) -> int:
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    def who(self) -> str:
        """Names the client for the log."""
        return self._machine.who()

    @abstractmethod
    def relieve(self, reason: str) -> None:
        """Ends the connection, which holds more memory than the gateway can spare."""

    # --- the machine: implements `Carrier`

    def peer(self) -> Peer:
        return Peer.described_by(self._transport.get_extra_info)

    def on_opened(self, identity: Identity, vhost: str) -> None:
        self._timer.stop()
        self._share.is_known = True
        if not self._is_lost:
            self._services.auth.let_in(self, identity, vhost)

    def expect(self, size: int) -> None:
        self._memory.expect(size)
        self._share.is_heavy = size > HEAVY_BYTES

    def add_transaction(self, size: int) -> None:
        self._memory.add_transaction(size)

    def flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flushing = False
        self._flush()

    @abstractmethod
    def _flush(self) -> None:
        """Writes all output that there is."""

    # --- the gateway's calls

    @abstractmethod
    def shut_down(self, reason: str) -> None:
        """Says goodbye for the gateway, and closes when that is written."""

    @abstractmethod
    def expel(self, reason: str) -> None:
        """Ends the connection of a user that may not be here any more."""

    def force_out(self, reason: str) -> None:
        """Ends the connection because an operator wants it: it is forced, as at a shutdown."""
        self.shut_down(reason)

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Ends a consumer because an operator wants it; False: there is no such consumer."""
        if self._is_lost or self.has_parted:
            return False
        is_found = self._machine.cancel_consumer(channel, tag, reason)
        self._after_input()
        return is_found

    def report(self) -> ConnectionReport | None:
        """Describes the connection to people; None: it is not open, or not any more."""
        return None if self._is_lost else self._machine.report(self._state())

    def volume(self) -> Volume:
        """Counts the bytes of the connection so far."""
        return Volume(self._bytes_received, self._bytes_sent, self.unsent_bytes())

    def _state(self) -> ConnectionState:
        if self.has_parted:
            return ConnectionState.CLOSING
        if self._gate.is_shut_for(STORE | MEMORY):
            return ConnectionState.BLOCKED
        return ConnectionState.FLOW if self._gate.is_shut_for(WAITING) else ConnectionState.RUNNING

    def review(self) -> None:
        """Looks through the client's consumers after permissions have changed."""
        if not self._is_lost and not self.has_parted:
            self._machine.review()
            self._after_input()

    # --- the end

    def _on_late(self) -> None:
        log.warning("%s has not opened its connection in time; closed", self.peer().host)
        self._totals.handshake_timeouts += 1
        self._transport.abort()

    def _await_close(self) -> None:
        """Gives the client some seconds to answer our close."""
        self._timer.start(CLOSE_SECONDS, self._transport.abort)

    def _part(self) -> None:
        """Says and hears nothing more: what the client still sends is thrown away."""
        if self.has_parted or self._is_lost:
            return
        self.has_parted = True
        self._timer.stop()
        self._gate.ignore(ALL)
        part(self._transport, CLOSE_SECONDS, is_stranger=not self._share.is_known)
