"""The asyncio side of an AMQP 1.0 connection: idle time-outs, and links that wait for credit.

The part that both AMQP versions share is `amqp_connection`'s. All that is said and understood is
the business of `security_layer`, until the client is logged in, and of `machine` after that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from protocols.amqp10.context import Context
from protocols.amqp10.errors import FORCED, RESOURCE_LIMIT, UNAUTHORIZED
from protocols.amqp10.machine import Machine
from protocols.amqp10.security_layer import SecurityLayer
from protocols.amqp10.states import State
from protocols.amqp_connection import MachineConnection
from protocols.read_gate import MEMORY, STORE, UNREAD
from protocols.timer import Timer
from queue_core.access.auth import Identity
from queue_core.vhost import Vhost

SHORTEST_TICK_SECONDS: Final = 0.25
LONGEST_TICK_SECONDS: Final = 10.0
HEARING_SECONDS: Final = 2.0  # after reading began again, until what had come is read


class Connection(MachineConnection[SecurityLayer | Machine]):
    """One AMQP 1.0 client's connection."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, SecurityLayer(context, self))
        self._context = context
        self._counters = context.counters
        self._ticks = Timer()
        self._listens_since = 0.0  # by the loop's clock
        self._is_leaving = False
        self._feeding: asyncio.Task[None] | None = None  # a wait for the database
        self._ending: asyncio.Task[None] | None = None

    def pause_writing(self) -> None:
        """Stops reading, too, from a client that does not read: its frames make answers."""
        self._counters.held_readers += 1
        self._gate.shut(UNREAD)
        super().pause_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._ticks.stop()
        super().connection_lost(error)

    def _end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end_machine())

    async def _end_machine(self) -> None:
        await self._machine.lost()
        self._memory.end()

    # --- the machine: implements `Entrance` and `Carrier`

    def on_authenticated(self, identity: Identity, mechanism: str, rest: bytes) -> None:
        """Puts a machine in the place of the security layer, whose last words are written first."""
        if self._is_lost or self.has_parted:
            return
        self._flush()
        machine = Machine(self._context, self, identity, mechanism)
        machine.keep(rest)
        self._machine = machine
        self._tick()

    def on_opened(self, identity: Identity, vhost: str) -> None:
        super().on_opened(identity, vhost)
        self._flush()  # our open, with our idle time-out in it
        self._tick()  # now the peer's own is known

    # --- pressure

    def _after_input(self) -> None:
        self.flush_soon()
        machine = self._machine
        if isinstance(machine, Machine) and machine.state is State.CLOSING:
            self._leave()

    def _hold_back_if_needed(self, vhost: Vhost, submitted: int) -> None:
        client = self._machine.client
        if vhost.writer.is_congested and vhost.writer.submitted != submitted:
            self._hold_for_store(vhost)
        if client is not None and client.has_published:
            client.has_published = False
            self._memory.hold_if_short()
        if pressed := vhost.take_pressed():
            self.hold_for(pressed)

    def _read_on(self, reason: int) -> None:
        if reason in (STORE, MEMORY):
            self._feed()
        if self._gate.open(reason):
            self._listens_since = self._loop.time()

    def _feed(self) -> None:
        """Grants credit to links that have waited for the database or for memory."""
        client = self._machine.client
        if client is not None and not self._is_lost and not self.has_parted:
            client.feed()

    async def _feed_later(self, vhost: Vhost) -> None:
        """Waits for the database, while the connection is read: its senders have no credit."""
        try:
            await vhost.writer.uncongested()
        finally:
            self._feeding = None
        self._feed()

    def relieve(self, reason: str) -> None:
        client = self._machine.client
        if client is not None and not self._is_lost and not self.has_parted:
            client.fail_links(RESOURCE_LIMIT, reason)
            self._fail(RESOURCE_LIMIT, reason)

    # --- writing

    def _flush(self) -> None:
        if self._is_lost or self.has_parted:
            return
        machine = self._machine
        data = machine.take_output()
        if data:
            self._bytes_sent += len(data)
            self._memory.write(self._transport, data, (data,))
        client = machine.client
        if machine.is_over:
            self._part()
        elif client is not None and client.starved:
            if self._memory.is_short:
                self._memory.hold_if_short(is_read=True)
            elif self._feeding is None and not self._gate.is_shut_for(STORE):
                self._feeding = self._loop.create_task(self._feed_later(client.vhost))

    # --- idle time-outs

    def _tick(self) -> None:
        """Keeps the idle time-outs of both sides, which the machine knows."""
        machine = self._machine
        if self._is_lost or self.has_parted or not isinstance(machine, Machine):
            return
        now, allowed = self._loop.time(), self._context.settings.idle_seconds
        # while the socket is not read, the client cannot be heard
        is_fair = self._gate.is_open and now - self._listens_since > HEARING_SECONDS
        when = machine.tick(int(now * 1000), int(allowed * 1000) if is_fair else 0)
        self.flush_soon()
        if when > 0:
            seconds = max(SHORTEST_TICK_SECONDS, when / 1000 - now)
        elif allowed and not is_fair:
            seconds = HEARING_SECONDS
        else:
            self._ticks.stop()
            return
        self._ticks.start(min(seconds, LONGEST_TICK_SECONDS), self._tick)

    # --- the gateway's calls

    def shut_down(self, reason: str) -> None:
        """Says goodbye for the gateway, and closes when that is written."""
        self._fail(FORCED, reason)

    def expel(self, reason: str) -> None:
        """Ends the connection of a user that may not be here any more."""
        self._fail(UNAUTHORIZED, reason)

    # --- the end

    def _fail(self, condition: str, reason: str) -> None:
        if not self._is_lost and not self.has_parted:
            self._machine.fail(condition, reason)
            self._after_input()

    def _leave(self) -> None:
        """Waits for the client's answer to our close, once: one that goes on talking, or does not
        read, gets no more time for that."""
        if not self._is_leaving:
            self._is_leaving = True
            self._await_close()

    def _part(self) -> None:
        super()._part()
        self._ticks.stop()
        if self._running is None:  # everything that the client had is free at once
            self._machine.pause()
            self._end()
