"""One AMQP 1.0 connection past its login, without its socket: bytes in, bytes and commands out.

    receive(data, is_over)   handles what is whole; a command, if something must be waited for
    keep(data)               adds to what waits, and handles nothing
    perform(), proceed()     carry that command out, and go on behind it
    take_output()            the frames to send

Which frame may come when is a table in `states`; what the frames of an open connection set going is
told in `client`. What came behind a command stays in the engine until it is carried out, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from protocols.amqp10.client import Client, Command
from protocols.amqp10.context import Context
from protocols.amqp10.engine import proton as pn
from protocols.amqp10.engine.proton import (
    CONNECTION_CLOSE,
    CONNECTION_OPEN,
    DELIVERY,
    LINK_CLOSE,
    LINK_DETACH,
    LINK_FLOW,
    LINK_OPEN,
    SESSION_CLOSE,
    SESSION_OPEN,
    TRANSPORT_ERROR,
    Engine,
    Handle,
)
from protocols.amqp10.engine.unreported_fields import Watch
from protocols.amqp10.errors import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    Amqp10Error,
    answer,
)
from protocols.amqp10.links.detaching import Link
from protocols.amqp10.links.from_client import IncomingLink
from protocols.amqp10.links.transactions import CoordinatorLink
from protocols.amqp10.negotiated_terms import Terms
from protocols.amqp10.reports import report_on
from protocols.amqp10.settings import product_of
from protocols.amqp10.states import RECEIVED, Performative, State, step
from protocols.carrier import GONE, Carrier
from protocols.connection_report import ConnectionReport, ConnectionState
from queue_core.access.auth import Identity
from queue_core.delivery.consumer import Delivery
from queue_core.errors import AccessRefused, CoreError
from queue_core.scheduler import Effort
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

VHOST_PREFIX: Final = "vhost:"  # in the hostname of open, as RabbitMQ's clients write it
OFFERED: Final = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY", "queue", "topic")
MOST_EVENTS: Final = 256  # that are handled before somebody looks at the time
STEP_EFFORT: Final = 512  # of routing, likewise: comparisons, and queues of wide routes
STEP_BYTES: Final = 16 * 1024  # that the engine gets before somebody looks at the time
MOST_EARLY_BYTES: Final = 64 * 1024  # of a client that has not opened its connection

PERFORMATIVES: Final[Mapping[int, Performative]] = {
    CONNECTION_OPEN: Performative.OPEN,
    SESSION_OPEN: Performative.BEGIN,
    LINK_OPEN: Performative.ATTACH,
    LINK_CLOSE: Performative.DETACH,
    LINK_DETACH: Performative.DETACH,
    SESSION_CLOSE: Performative.END,
    CONNECTION_CLOSE: Performative.CLOSE,
}
"""The frame that each of the engine's events reports."""

NONE_SENT: Final[Mapping[Handle, Delivery]] = {}
NO_LINKS: Final[Mapping[Handle, Link]] = {}


def _never() -> bool:
    return False


class Machine:
    """The machine of one connection, from the AMQP header to its end."""

    def __init__(
        self, context: Context, carrier: Carrier, identity: Identity, mechanism: str
    ) -> None:
        self.state = State.AWAITING_OPEN
        self.client: Client | None = None  # once the connection is open
        self.is_failed = False  # the client broke the protocol
        self.counters = context.counters
        self.engine = Engine(
            "howdah",
            context.settings.max_frame_size,
            context.settings.channel_max,
            int(context.settings.idle_seconds * 1000),  # the engine announces half of it [2.4.5]
        )
        self._context = context
        self._settings = context.settings
        self._carrier = carrier
        self._identity = identity
        self._mechanism = mechanism  # of the login
        self._watch = Watch()
        self._input, self._position = b"", 0
        self._early = 0  # bytes that the engine took before it was open
        self._has_events = False  # in the engine, perhaps
        self._is_waiting = False  # for a command to be carried out
        self._effort = Effort()  # of the virtual host's router, once it is open

    @property
    def is_unfinished(self) -> bool:
        """Whether there may be more to handle, without more input."""
        return self._has_events or self._position < len(self._input)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is said, ever."""
        return self.engine.is_over

    @property
    def vhost(self) -> Vhost | None:
        """The virtual host of an open connection."""
        return None if self.client is None else self.client.vhost

    @property
    def channel_count(self) -> int:
        """Counts the sessions of an open connection."""
        return 0 if self.client is None else len(self.client.sessions)

    @property
    def partial_bytes(self) -> int:
        """Counts the bytes of messages that have come in part."""
        return 0 if self.client is None else self.client.partial_bytes

    # --- input

    def keep(self, data: bytes) -> None:
        """Adds to what waits, and handles nothing."""
        if data:
            self._watch.see(data)
            rest = self._input[self._position :]
            self._input, self._position = rest + data if rest else data, 0

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
        self._is_waiting = command is not None
        return command

    async def perform(self, command: Command) -> None:
        """Carries a command out; an error of it ends the connection."""
        try:
            await command
        except Exception as error:
            self._on_bug(error)

    def proceed(self) -> None:
        """Goes on behind a command that was carried out."""
        self._is_waiting = False

    def _advance(self) -> Command | None:
        """Goes one step further, or says what must be waited for."""
        command = self._handle_events()
        if command is not None or self._has_events:
            return command
        if self._position < len(self._input):
            self._push()
            command = self._handle_events()
        if not self.is_unfinished:
            self._input, self._position = b"", 0
            self._watch.forget()
        return command

    def _push(self) -> None:
        """Gives the engine some more of the input."""
        engine, before = self.engine, self._position
        self._position = engine.push(self._input, before, STEP_BYTES)
        if engine.is_deaf:
            self._on_deaf()
        elif self._position == before:
            engine.fail(INTERNAL_ERROR, "the engine takes no more")
            self._position = len(self._input)
        if self.client is None:
            self._count_early(self._position - before)

    def _count_early(self, count: int) -> None:
        """Counts bytes before the open, which takes a few hundred: a client that sends many more
        wants something else."""
        self._early += count
        if self._early > MOST_EARLY_BYTES and not self.engine.is_closed:
            self.counters.early_floods += 1
            text = f"more than {MOST_EARLY_BYTES} bytes before the connection is open"
            self.engine.fail(RESOURCE_LIMIT, text)
            self._position = len(self._input)

    def _on_deaf(self) -> None:
        """Gives up input that the engine does not read any more. Where the engine does not say why,
        it could not read a frame."""
        self._position = len(self._input)
        if not self.engine.has_failure and not self.engine.is_remote_closed:
            self.is_failed = True
            self._log_failure("it sent a frame that cannot be read")
            self.counters.connection_errors += 1
            self.fail(DECODE_ERROR, "a frame that cannot be read, or a performative that is none")

    def _handle_events(self) -> Command | None:
        """Handles the events that the engine has, or as many as one step should."""
        next_event, link_of, client = self.engine.next, pn.link_of, self.client
        outgoing = NONE_SENT if client is None else client.outgoing
        links = NO_LINKS if client is None else client.links
        touched: IncomingLink | None = None
        command: Command | None = None
        self._has_events = False
        effort = self._effort
        tired_at = effort.spent + STEP_EFFORT
        for _ in range(MOST_EVENTS):
            if effort.spent > tired_at:
                self._has_events = True
                break
            event = next_event()
            if event is None:
                break
            kind, subject = event
            if kind == DELIVERY:
                delivery = outgoing.get(subject) if outgoing else None
                if delivery is not None and client is not None:
                    client.on_disposition(subject, delivery)
                    continue
                link = links.get(link_of(subject))
                if link is touched and touched is not None:  # as nearly always
                    touched.on_delivery(subject)
                elif isinstance(link, IncomingLink):
                    if touched is not None:
                        touched.replenish()
                    touched = link
                    link.on_delivery(subject)
                elif isinstance(link, CoordinatorLink) and client is not None:
                    command = client.coordinate(link, subject)
                else:
                    self._on_stray(subject)
            elif kind == LINK_FLOW:
                if client is not None:
                    client.on_flow(subject)
            else:
                command = self._on_cold(kind, subject)
            if command is not None:
                self._has_events = self.engine.has_events
                break
        else:
            self._has_events = True
        if touched is not None:
            touched.client.has_published = True
            touched.replenish()
        if client is not None:
            client.settle_accepted()
        return command

    def _on_stray(self, delivery: Handle) -> None:
        """Handles an event of a delivery that no link knows: one settled by us, as a rule."""
        if pn.is_readable(delivery):  # on a link that has ended on our side
            pn.discard(pn.link_of(delivery))
        elif pn.is_current(delivery):  # of what we send, nothing is: it is the peer's own
            self.engine.fail(NOT_ALLOWED, "a transfer on a link that its sender receives on")

    # --- the connection's own events

    def _on_cold(self, kind: int, subject: Handle) -> Command | None:
        """Handles an event that is no transfer, disposition or flow, if it is legal now."""
        if kind == TRANSPORT_ERROR:
            self._on_broken()
            return None
        if self.state is State.CLOSED:
            return None
        try:
            self.state = step(RECEIVED, self.state, PERFORMATIVES[kind])
        except Amqp10Error as error:
            self.engine.fail(error.condition, error.text)
            self._carrier.flush_soon()
            return None
        if self.state is State.OPENING:
            return self._open()
        if self.state is State.CLOSED:
            self.engine.close()
            self._carrier.flush_soon()
            return None
        # whatever comes behind an open that was refused is passed over
        return None if self.client is None else self.client.on_event(kind, subject)

    def _on_broken(self) -> None:
        """Notes that the engine has given the connection up: the client broke the protocol."""
        self._log_failure(f"it broke the protocol: {self.engine.failure}")
        self.counters.connection_errors += 1
        self.is_failed = True
        self.state = State.CLOSED
        self._carrier.flush_soon()

    async def _open(self) -> None:
        """Finds the virtual host that the open names, and lets the client in."""
        hostname = self.engine.remote_hostname
        is_vhost = hostname.startswith(VHOST_PREFIX)
        name = hostname[len(VHOST_PREFIX) :] if is_vhost else "/"
        services = self._context.services
        try:
            vhost = await services.vhost(name)
            if not services.auth.may_enter(self._identity, name):
                raise AccessRefused(
                    f"user '{self._identity.name}' may not enter vhost '{name}'; grant it first"
                )
            limit = vhost.settings.max_connections
            services.auth.require_connection(self._identity, name, limit)
        except CoreError as error:
            said = answer(error)
            self._log_failure(f"{said.condition}: {said.text}")
            self.counters.refused_connections += 1
            self.fail(said.condition, said.text)
            return
        if self.state is not State.OPENING:  # the gateway has ended the connection meanwhile
            return
        self.counters.connections += 1
        terms = Terms(
            self._context,
            vhost,
            self._identity,
            self._carrier.peer(),
            self.engine.remote_container,
            self._mechanism,
            self.engine.remote_properties,
        )
        self.client = Client(self._context, terms, self.engine, self._watch, self._carrier)
        self._effort = terms.vhost.router.effort
        self.state = State.OPEN
        self.engine.open(OFFERED, product_of(self._settings))
        self._carrier.flush_soon()
        self._carrier.on_opened(self._identity, name)

    # --- output and time

    def take_output(self) -> bytes:
        """Takes everything to send, or as much as one turn should write."""
        data = self.engine.take_output()
        return data if self.client is None else self.client.watch_output(data)

    def tick(self, now_ms: int, silence_ms: int) -> int:
        """Keeps the idle time-outs of both sides, and says when to call again; 0: never. The peer
        may be silent for `silence_ms`; 0: for ever, because nobody listens."""
        if self.client is not None:  # before the open it would change what our open announces
            self.engine.expect_input(silence_ms)
        return self.engine.tick(now_ms)

    # --- the client's socket and permissions

    def pause(self) -> None:
        """Stops deliveries: the client's socket is full."""
        if self.client is not None:
            self.client.pause()

    def resume(self) -> None:
        """Goes on with deliveries: the client's socket has room."""
        if self.client is not None:
            self.client.resume()

    def review(self) -> None:
        """Looks through the client's links after permissions have changed."""
        if self.client is not None and self.state is State.OPEN:
            self.client.review()

    # --- people

    def report(self, state: ConnectionState) -> ConnectionReport | None:
        """Describes an open connection to people; None: it is not open."""
        return None if self.client is None else report_on(self.client, self.engine, state)

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Ends a consumer because an operator wants it; False: there is no such consumer."""
        return self.client is not None and self.client.cancel_consumer(channel, tag, reason)

    # --- the end

    def _log_failure(self, what: str) -> None:
        host, user = self._carrier.peer().host, self._identity.name
        log.info("%s of user '%s': %s", host, user, what)

    def _on_bug(self, error: Exception) -> None:
        self.counters.bugs += 1
        log.error("a bug ends the connection of %s", self._carrier.peer().host, exc_info=error)
        self.fail(INTERNAL_ERROR, "a bug of the gateway; see its log")

    def who(self) -> str:
        """Names the client for the log."""
        return f"'{self._identity.name}' at {self._carrier.peer().host}"

    def fail(self, condition: str, text: str) -> None:
        """Ends the connection and says why; it is over when the client has answered."""
        if not self.engine.is_closed:
            self.engine.close(condition, text)
            if self.state is not State.CLOSED:
                self.state = State.CLOSING
            self._carrier.flush_soon()

    async def lost(self) -> None:
        """Ends everything: the socket is gone, whatever was said."""
        is_clean = self.state in (State.CLOSING, State.CLOSED) and not self.is_failed
        self.state = State.CLOSED
        client, self.client = self.client, None
        if client is not None:
            await client.end(is_clean=is_clean)
        self.engine.free()
        self._carrier = GONE  # the cyclic collector runs seldom in the gateway
