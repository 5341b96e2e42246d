"""The asyncio side of an AMQP 0.9.1 connection: heartbeats, connection.blocked, publishers' rests.

The part that both AMQP versions share is `amqp_connection`'s; all that is said and understood
is `machine`'s business.
"""

from __future__ import annotations

import logging
from typing import Final

from protocols.amqp091.context import Context
from protocols.amqp091.errors import ReplyCode
from protocols.amqp091.machine import Machine
from protocols.amqp091.output import Output
from protocols.amqp091.states import State
from protocols.amqp_connection import MachineConnection
from protocols.read_gate import ALL, BACKLOG, BUSY, MEMORY, RESTING, STORE, SUBSCRIBER, UNREAD
from protocols.timer import Timer
from queue_core.access.auth import Identity
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

REST_SECONDS: Final = 0.002  # for the consumers of a queue that grows
LOOKS_PER_HEARTBEAT: Final = 2  # at whether a byte has come, in one heartbeat interval
MOST_SILENT_LOOKS: Final = 2 * LOOKS_PER_HEARTBEAT + 1  # before the client is taken for dead
BLOCKED_TEXTS: Final = {  # of connection.blocked
    STORE: "the database is behind: publishing goes on when it has caught up",
    MEMORY: "memory is short: publishing goes on when it is not",
}


class Connection(MachineConnection[Machine]):
    """One AMQP 0.9.1 client's connection."""

    def __init__(self, context: Context) -> None:
        self._output = Output(self.flush_soon, self._flush)
        super().__init__(context, Machine(context, self._output, self))
        self._counters = context.counters
        self._heartbeat = Timer()
        self._is_leaving = False
        self._has_heard = True
        self._has_spoken = False
        self._silent_looks = 0

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._heartbeat.stop()
        super().connection_lost(error)

    def _end(self) -> None:
        self._machine.lost()
        self._memory.end()
        self._output.close()

    # --- pressure

    def _after_input(self) -> None:
        if self._machine.state in (State.CLOSED, State.CLOSING):
            self._say_goodbye()
        elif not self._has_room_left():
            self._gate.shut(UNREAD)

    def _has_room_left(self) -> bool:
        """Whether more answers may be written. Deliveries stop by themselves when the socket is
        full, answers stop with the questions."""
        if self._output.is_blocked and not self._is_lost:
            self._flush()
            if self._transport.get_write_buffer_size() > self._settings.max_unsent_size:
                self._counters.held_readers += 1
                return False
        return True

    def _hold_back_if_needed(self, vhost: Vhost, submitted: int) -> None:
        client = self._machine.client
        if client is None or not client.has_published or self._is_leaving:
            return
        client.has_published = False
        if vhost.writer.is_congested and not self._gate.is_shut_for(STORE):
            self._hold_for_store(vhost)
        elif vhost.take_crowded():
            self._rest()
        self._memory.hold_if_short()
        if pressed := vhost.take_pressed():
            self.hold_for(pressed)

    def _rest(self) -> None:
        """Stops reading for a moment. A queue in memory confirms a publisher at once, and its
        consumers wait for the network: without a rest the publisher would fill the queue, however
        fast they are."""
        if not self._gate.is_shut_for(RESTING):
            self._counters.rested_publishers += 1
            self._gate.shut(RESTING)
            self._loop.call_later(REST_SECONDS, self._gate.open, RESTING)

    def _hold(self, reason: int) -> None:
        """Stops reading a publisher, and tells the client, if it has not been told already."""
        if not self._gate.is_shut_for(STORE | MEMORY):
            self._machine.block(BLOCKED_TEXTS[reason])
        super()._hold(reason)

    def _read_on(self, reason: int) -> None:
        was_held = self._gate.is_shut_for(STORE | MEMORY)
        super()._read_on(reason)
        if was_held and not self._gate.is_shut_for(STORE | MEMORY):
            self._machine.unblock()

    def relieve(self, reason: str) -> None:
        if not self._is_lost:
            self._machine.fail(ReplyCode.RESOURCE_ERROR, reason)
            self._gate.open(MEMORY)  # what still comes is thrown away
            self._after_input()

    # --- writing

    def _flush(self) -> None:
        data, pieces = self._output.take_pieces()
        if data and not self._is_lost and not self.has_parted:
            self._has_spoken = True
            self._bytes_sent += len(data)
            self._memory.write(self._transport, data, pieces)

    # --- heartbeats

    def on_opened(self, identity: Identity, vhost: str) -> None:
        super().on_opened(identity, vhost)
        if self._machine.tuning.heartbeat and not self._is_lost:
            self._look_later()

    def _look_later(self) -> None:
        seconds = self._machine.tuning.heartbeat / LOOKS_PER_HEARTBEAT
        self._heartbeat.start(seconds, self._look)

    def _look(self) -> None:
        """Ends the connection of a client that has been silent for two heartbeat intervals, and
        sends a heartbeat where nothing else was sent."""
        # while the socket is not read, the client cannot be heard
        is_deaf = self._gate.is_shut_for(BUSY | STORE | SUBSCRIBER | BACKLOG | MEMORY)
        self._silent_looks = 0 if self._has_heard or is_deaf else self._silent_looks + 1
        if self._silent_looks >= MOST_SILENT_LOOKS:
            self._counters.heartbeat_timeouts += 1
            log.warning(
                "%s sent nothing for two heartbeat intervals of %d s; closed",
                self.peer().host,
                self._machine.tuning.heartbeat,
            )
            self._transport.abort()
            return
        if not self._has_spoken:
            self._machine.beat()
        self._has_heard = self._has_spoken = False
        self._look_later()

    # --- the gateway's calls

    def shut_down(self, reason: str) -> None:
        """Says goodbye for the gateway, and closes when that is written."""
        if not self._is_lost:
            self._machine.fail(ReplyCode.CONNECTION_FORCED, reason)
            self._after_input()

    def expel(self, reason: str) -> None:
        """Ends the connection of a user that may not be here any more."""
        if not self._is_lost:
            self._machine.fail(ReplyCode.ACCESS_REFUSED, reason)
            self._after_input()

    # --- the end

    def _say_goodbye(self) -> None:
        """Writes the last words, once: a client that goes on talking, or does not read, gets no
        more time for that."""
        if self.has_parted or self._is_lost:
            return
        self._flush()
        self._heartbeat.stop()
        if self._machine.state is State.CLOSED:
            self._part()
        elif not self._is_leaving:
            self._await_close()
        self._is_leaving = True
        # only the client's answer counts, and it is to be heard
        self._gate.ignore(ALL & ~(BUSY | BACKLOG))
