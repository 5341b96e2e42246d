"""The asyncio side of an MQTT connection: sockets, time, and pressure from both sides.

Packets and their meaning are the machine's business. A chunk is handled in slices of the loop's
time, and output leaves in one write at the end of a turn. While a command is carried out, or others
have their turn, the rest of the input waits, in order, and the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from protocols.connection_report import ConnectionReport, ConnectionState, Volume
from protocols.graceful_close import part
from protocols.memory_share import MemoryShare
from protocols.mqtt.context import Context
from protocols.mqtt.machine import Command, HoldBack, Machine
from protocols.mqtt.opening.handshake import Accepted
from protocols.mqtt.output import Output
from protocols.mqtt.wire.reasons import ReasonCode
from protocols.null_transport import NO_TRANSPORT
from protocols.read_gate import ALL, BACKLOG, BUSY, MEMORY, UNREAD, ReadGate
from queue_core.access.auth import Peer
from queue_core.errors import NotSupported
from queue_core.scheduler import HEAVY_BYTES, scheduler

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 5.0  # the peer has so long to take the last bytes
HEARD_BYTES: Final = 16 * 1024  # so much of a packet is as good a sign of life as a whole one
KEEP_ALIVE_FACTOR: Final = 1.5  # so many keep alive intervals may pass in silence [MQTT-3.1.2-22]


class Connection(asyncio.Protocol):
    """One client's connection. Implements the machine's `Carrier` and the account's `Holder`."""

    __slots__ = (
        "_bytes_received",
        "_bytes_sent",
        "_context",
        "_gate",
        "_heard",
        "_is_flushing",
        "_is_writable",
        "_keep_alive",
        "_loop",
        "_machine",
        "_memory",
        "_output",
        "_published",
        "_share",
        "_timer",
        "_transport",
        "_unheard",
        "_waiting",
        "has_parted",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._share = scheduler().share()  # the connection's share of the loop's time
        self._output = Output(self._flush_soon, self._write, self.unsent_bytes)
        self._machine = Machine(context, self._output, self)
        self._memory = MemoryShare(context.services.memory, self)
        self._transport: asyncio.Transport = NO_TRANSPORT  # until `connection_made`
        self._gate = ReadGate(NO_TRANSPORT)
        self._waiting: asyncio.Task[Any] | None = None  # waits for subscribers that are behind
        self._is_writable = True
        self._is_flushing = False
        self.has_parted = False  # nothing is read or written any more
        self._heard = 0.0  # when the client last gave a sign of life, by the loop's clock
        self._unheard = 0  # bytes since then
        self._keep_alive = 0.0  # seconds of silence that end the connection; 0: none do
        self._timer: asyncio.TimerHandle | None = None
        self._published = 0  # messages of this client so far
        self._bytes_received = 0
        self._bytes_sent = 0

    # --- the transport's calls

    @property
    def awaits_us(self) -> bool:
        """Tells whether the client has asked for something, such as to be let in, and gets its
        answer yet."""
        return self._machine.command is not None

    @property
    def channel_count(self) -> int:
        """Counts no channels: MQTT has none."""
        return 0

    @property
    def is_let_in(self) -> bool:
        """Tells whether the client has shown who it is."""
        return self._machine.client is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # streams have nothing else
        self._gate = ReadGate(self._transport, lambda: self._share.wait(self._go_on))
        self._transport.set_write_buffer_limits(high=self._context.settings.write_buffer_bytes)
        self._context.connections.add(self)
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(
            self._context.settings.connect_timeout, self._on_no_connect
        )

    def data_received(self, data: bytes) -> None:
        size = len(data)
        self._context.counters.bytes_received += size
        self._bytes_received += size
        self._unheard += size
        if self._unheard >= HEARD_BYTES:
            self._hear()
        machine = self._machine
        is_behind = machine.size or machine.command is not None  # most are not: 0.1 us less
        if self._gate.is_shut_for(BACKLOG) or (is_behind and machine.must_keep(len(data))):
            machine.keep(data)
        else:
            self._work(data)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._machine.pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._machine.resume()
        self._read_on(UNREAD)

    def lose_transport(self) -> None:
        """Ends the connection without a word of MQTT: what carries it is at its end."""
        self.has_parted = True
        self._gate.ignore(ALL)
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._context.connections.discard(self)
        self._context.services.auth.let_go(self)
        self._share.close()
        self._gate.close()
        self._stop_waiting()
        self._output.close()
        self._memory.end()
        self._watch(0)
        self._machine.lost()

    # --- input, in slices of the loop's time

    def _work(self, data: bytes) -> None:
        """Handles what is whole, as far as a slice of the loop's time goes."""
        machine, share, counters = self._machine, self._share, self._context.counters
        if not share.begin():
            machine.keep(data)
            self._gate.shut(BACKLOG)
            return
        received = counters.messages_received
        try:
            command = machine.receive(data, share.is_over)
        finally:
            share.end()
        if machine.has_handled:
            self._hear()
        if command is not None:
            self._run(command)
        if self.has_parted:
            return
        if counters.messages_received != received:
            self._published += counters.messages_received - received
            self._memory.hold_if_short()
        if machine.answers_early:
            self._write()
        expected = machine.expected_bytes
        self._memory.expect(expected)
        share.is_heavy = expected > HEAVY_BYTES
        if machine.command is None:
            if not self._is_writable:
                self.hold_back_if_unread()
        elif machine.is_full:
            self._gate.shut(BUSY)
        if machine.is_unfinished:
            self._gate.shut(BACKLOG)
        else:
            self._read_on(BACKLOG)

    def _go_on(self) -> None:
        """Handles what has come already, unless something else is in the way by now."""
        if not self.has_parted and not self._gate.is_held:
            self._work(b"")

    def _run(self, command: Command) -> None:
        task = self._context.spawn(self._carry_out(command))
        if isinstance(command, HoldBack):
            self._waiting = task
        else:
            self._gate.shut(BUSY)

    async def _carry_out(self, command: Command) -> None:
        """Carries one command out. What came behind it takes its turn like all input."""
        await self._machine.perform(command)
        if self._machine.proceed():
            self._gate.shut(BACKLOG)
        self._read_on(BUSY)

    def _stop_waiting(self) -> None:
        """Waits for no subscriber any more: none is to end for a publisher that is gone."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def hold_back_if_unread(self) -> None:
        """Reads no more of a client that does not take our answers."""
        most = self._context.settings.write_buffer_bytes
        if not self._is_writable and self._transport.get_write_buffer_size() > most:
            self._gate.shut(UNREAD)

    def _read_on(self, reason: int) -> None:
        """Takes one reason not to read away."""
        if self._gate.open(reason):
            self._heard = self._loop.time()  # bytes that came meanwhile are yet to be read

    # --- memory: implements `Holder`

    def on_short(self) -> None:
        self._gate.shut(MEMORY)

    def on_room(self) -> None:
        self._read_on(MEMORY)

    def received_bytes(self) -> int:
        return self._machine.size

    def is_read(self) -> bool:
        return self._gate.is_open and self._machine.command is None

    def unsent_bytes(self) -> int:
        """Counts the bytes that the client's socket has not taken yet."""
        return self._transport.get_write_buffer_size()

    def relieve(self, reason: str) -> None:
        self._machine.fail(ReasonCode.QUOTA_EXCEEDED, reason)

    def who(self) -> str:
        """Names the client for the log."""
        return self._machine.who()

    # --- the machine: implements `Carrier`

    def peer(self) -> Peer:
        return Peer.described_by(self._transport.get_extra_info)

    def on_opened(self, accepted: Accepted) -> None:
        self._share.is_known = True
        vhost = accepted.session.vhost.name
        self._context.services.auth.let_in(self, accepted.identity, vhost)
        self._watch(accepted.keep_alive)
        if not self._is_writable:
            self._machine.pause()

    def on_ended(self) -> None:
        self._stop_waiting()
        self._write()
        if not self.has_parted and not self._transport.is_closing():
            self.has_parted = True
            self._gate.ignore(ALL)
            part(self._transport, LINGER_SECONDS, is_stranger=not self.is_let_in)

    # --- output

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._write()

    def _write(self) -> None:
        pieces = self._output.pieces
        if not pieces:
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not self.has_parted and not self._transport.is_closing():
            self._context.counters.bytes_sent += len(data)
            self._bytes_sent += len(data)
            self._memory.write(self._transport, data, pieces)
        pieces.clear()

    # --- time

    def _on_no_connect(self) -> None:
        self._timer = None
        if not self.is_let_in:
            self._context.counters.refused_connections += 1
            log.info("%s has not connected in time; closed", self.who())
            self._transport.abort()

    def _hear(self) -> None:
        """Notes a sign of life: a whole packet [MQTT-3.1.2-22], or a good piece of one."""
        self._heard = self._loop.time()
        self._unheard = 0

    def _watch(self, keep_alive: int) -> None:
        """Ends the connection from now on when it is silent for too long; 0 seconds: never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep_alive = keep_alive * KEEP_ALIVE_FACTOR
        if keep_alive:
            self._timer = self._loop.call_later(self._keep_alive, self._on_silence)

    def _on_silence(self) -> None:
        """Ends the connection after one and a half times the keep alive without a packet
        [MQTT-3.1.2-22]."""
        left = self._heard + self._keep_alive - self._loop.time()
        if left > 0 or not self._gate.is_open:  # a client that is not read cannot be heard
            self._timer = self._loop.call_later(max(left, 1.0), self._on_silence)
            return
        self._timer = None
        self._context.counters.keep_alive_timeouts += 1
        self._machine.fail(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long")

    # --- the gateway's calls

    def shut_down(self, reason: str) -> None:
        """Says goodbye for the gateway. Wills stay as they are for a lost connection."""
        self._machine.fail(ReasonCode.SERVER_SHUTTING_DOWN, reason)

    def force_out(self, reason: str) -> None:
        """Ends the connection because an operator wants it."""
        self._machine.fail(ReasonCode.ADMINISTRATIVE_ACTION, reason)

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Refuses to end a single consumer: MQTT has no packet that tells a client of it."""
        raise NotSupported(
            "MQTT cannot tell a client that a subscription has ended; end its connection instead"
        )

    def report(self) -> ConnectionReport | None:
        """Describes the connection to people; None: the client is not let in, or gone."""
        keep_alive = int(self._keep_alive / KEEP_ALIVE_FACTOR)
        return self._machine.report(self._state(), self._published, keep_alive)

    def volume(self) -> Volume:
        """Counts the bytes of the connection so far."""
        return Volume(self._bytes_received, self._bytes_sent, self.unsent_bytes())

    def _state(self) -> ConnectionState:
        if self.has_parted:
            return ConnectionState.CLOSING
        if self._gate.is_shut_for(MEMORY):
            return ConnectionState.BLOCKED
        is_waiting = self._waiting is not None and not self._waiting.done()
        return ConnectionState.FLOW if is_waiting else ConnectionState.RUNNING

    def expel(self, reason: str) -> None:
        """Ends the connection of a user who may not be here any more."""
        self._machine.fail(ReasonCode.NOT_AUTHORIZED, reason)

    def review(self) -> None:
        """Looks through the client's subscriptions after permissions have changed."""
        self._machine.review()
