"""One connection past its login: the engine's events, and what is done about each.

Hot events (transfers, dispositions, credit) are answered in place. An event that needs the core to
wait (attaching a link, discharging a transaction) becomes a command: whoever owns the socket runs
it, and calls `advance` again; all that came behind it stays in the engine until then, in order.
`advance` goes one step at a time, and has more to do while `is_unfinished`.
Owns no socket and no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from protocols.amqp10.addressing.filters import ORIGINS
from protocols.amqp10.context import Context
from protocols.amqp10.engine import proton as pn
from protocols.amqp10.engine.flow_echo import Echoing
from protocols.amqp10.engine.proton import (
    CONNECTION_CLOSE,
    CONNECTION_OPEN,
    DELIVERY,
    LINK_CLOSE,
    LINK_DETACH,
    LINK_FLOW,
    LINK_OPEN,
    RECEIVED,
    SESSION_CLOSE,
    SESSION_OPEN,
    TRANSACTIONAL,
    TRANSPORT_ERROR,
    Engine,
    Handle,
)
from protocols.amqp10.engine.unreported_frames import Watch
from protocols.amqp10.errors import (
    DECODE_ERROR,
    FORCED,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    TOO_LARGE,
    Amqp10Error,
    answer,
)
from protocols.amqp10.links.attaching import attach
from protocols.amqp10.links.browsing import BrowsingLink
from protocols.amqp10.links.detaching import Link, Releasing
from protocols.amqp10.links.incoming import IncomingLink
from protocols.amqp10.links.outgoing import OutgoingLink, verdict_of
from protocols.amqp10.links.transactions import MAX_COMMAND, Coordinator, CoordinatorLink
from protocols.amqp10.settings import product_of
from protocols.amqp10.terms import Terms
from queue_core.access.auth import Identity, Peer
from queue_core.delivery.consumer import Delivery, Sink
from queue_core.errors import AccessRefused, CoreError
from queue_core.outcomes import ACCEPTED
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

Command = Coroutine[Any, Any, None]
SENDERS: Final = (OutgoingLink, BrowsingLink)  # links on which we send
VHOST_PREFIX: Final = "vhost:"  # in the hostname of open, as RabbitMQ's clients write it
OFFERED: Final = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY", "queue", "topic")


MOST_EVENTS: Final = 256  # that are handled before somebody looks at the time
STEP: Final = 16 * 1024  # bytes for the engine, likewise
MOST_EARLY_BYTES: Final = 64 * 1024  # of a client that has not opened its connection


class Machine:
    def __init__(
        self, context: Context, peer: Peer, identity: Identity, wake: Callable[[], None]
    ) -> None:
        self._context = context
        self._settings = settings = context.settings
        self.counters = context.counters
        self.memory = context.services.memory
        self._peer = peer
        self._identity = identity
        self.wake = wake  # there is something to write, at the end of the loop's turn
        self.engine = Engine(
            "howdah",
            settings.max_frame_size,
            settings.channel_max,
            int(settings.idle_seconds * 1000),  # the engine announces half of it [2.4.5]
        )
        self.links: dict[Handle, Link] = {}
        self.outgoing: dict[Handle, Delivery] = {}
        self.origin = ORIGINS.new()  # marks this connection's messages, for no-local
        self.coordinator = Coordinator(self)
        self.releasing = Releasing(self)
        self.echoing = Echoing()
        self._watch = Watch()
        self._failed: dict[Handle, Link] = {}  # ended by us; the peer has not answered yet
        self._refused: set[Handle] = set()  # never begun; likewise
        self._sessions: set[Handle] = set()  # begun by the peer, and not ended by it
        self.terms: Terms
        self.is_open = False
        self.is_failed = False
        self.is_blocked = False  # the socket is full
        self.starved: set[IncomingLink] = set()  # wait for the database to catch up
        self.partial_bytes = 0  # of messages that are still coming in
        self.has_published = False  # since somebody last looked
        self.on_partial: Callable[[int], None] = _nothing  # hears of `partial_bytes`
        self.on_transaction: Callable[[int], None] = _nothing  # by how much open ones grew
        self._has_dropped = False  # settled transfers that were refused, and the log says so
        self._stalled: set[OutgoingLink] = set()
        self._accepted: list[Delivery] = []
        self._second: list[tuple[Handle, Delivery]] = []
        self._committing: dict[int, tuple[int, list[tuple[Handle, Sink]]]] = {}
        self._next = 0
        self._input, self._position = b"", 0
        self._early = 0  # bytes that the engine took before it was open
        self._has_events = False  # in the engine, perhaps

    @property
    def is_unfinished(self) -> bool:
        """There is more to do, without more input."""
        return self._has_events or self._position < len(self._input)

    @property
    def vhost(self) -> Vhost:
        return self.terms.vhost

    # --- input

    def receive(self, data: bytes) -> None:
        """Call `advance` after it."""
        self._watch.see(data)
        rest = self._input[self._position :]
        self._input, self._position = rest + data if rest else data, 0

    def advance(self) -> Command | None:
        """Goes one step further, or says what must be waited for."""
        command = self._handle_events()
        self._settle_accepted()
        if command is not None or self._has_events:
            return command
        if self._position < len(self._input):
            self._push()
            command = self._handle_events()
            self._settle_accepted()
        if not self.is_unfinished:
            self._input, self._position = b"", 0
            self._watch.forget()
        return command

    def _push(self) -> None:
        engine, before = self.engine, self._position
        self._position = engine.push(self._input, before, STEP)
        if engine.is_deaf:
            self._on_deaf()
        elif self._position == before:
            engine.fail(INTERNAL_ERROR, "the engine takes no more")
            self._position = len(self._input)
        if not self.is_open:
            self._count_early(self._position - before)

    def _count_early(self, count: int) -> None:
        """An open takes a few hundred bytes; who sends many more before it wants something else."""
        self._early += count
        if self._early > MOST_EARLY_BYTES and not self.engine.is_closed:
            self.counters.early_floods += 1
            text = f"more than {MOST_EARLY_BYTES} bytes before the connection is open"
            self.engine.fail(RESOURCE_LIMIT, text)
            self._position = len(self._input)

    def _on_deaf(self) -> None:
        """The engine reads on no more; where it does not say why, it could not read a frame."""
        self._position = len(self._input)
        if not self.engine.has_failure and not self.engine.is_remote_closed:
            self.is_failed = True
            self._log_failure("it sent a frame that cannot be read")
            self.counters.connection_errors += 1
            self.close("a frame that cannot be read, or a performative that is none", DECODE_ERROR)

    def _handle_events(self) -> Command | None:
        next_event, link_of = self.engine.next, pn.link_of
        outgoing, links = self.outgoing, self.links
        touched: IncomingLink | None = None
        command: Command | None = None
        self._has_events = False
        for _ in range(MOST_EVENTS):
            event = next_event()
            if event is None:
                break
            kind, subject = event
            if kind == DELIVERY:
                delivery = outgoing.get(subject) if outgoing else None
                if delivery is not None:
                    self._on_disposition(subject, delivery)
                    continue
                link = links.get(link_of(subject))
                if link is touched and touched is not None:  # as nearly always
                    touched.on_delivery(subject)
                elif isinstance(link, IncomingLink):
                    if touched is not None:
                        touched.replenish()
                    touched = link
                    link.on_delivery(subject)
                elif isinstance(link, CoordinatorLink):
                    command = self._coordinate(link, subject)
                else:
                    self._on_stray(subject)
            elif kind == LINK_FLOW:
                found = links.get(subject)
                if isinstance(found, SENDERS):
                    found.on_flow()
                self._look_for_echo(subject)
            else:
                command = self._on_cold(kind, subject)
            if command is not None:
                self._has_events = self.engine.has_events
                break
        else:
            self._has_events = True
        if touched is not None:
            self.has_published = True
            touched.replenish()
        return command

    def _on_stray(self, delivery: Handle) -> None:
        """Word of something that we have settled, as a rule."""
        if pn.is_readable(delivery):  # on a link that has ended on our side
            pn.discard(pn.link_of(delivery))
        elif pn.is_current(delivery):  # of what we send, nothing is: it is the peer's own
            self.engine.fail(NOT_ALLOWED, "a transfer on a link that its sender receives on")

    def _coordinate(self, link: CoordinatorLink, delivery: Handle) -> Command | None:
        if not pn.is_readable(delivery):
            return None
        if pn.unread_bytes(delivery) > MAX_COMMAND:
            text = f"a declare or a discharge of more than {MAX_COMMAND} bytes"
            self.fail_link(link.handle, TOO_LARGE, text)
            return None
        if pn.is_partial(delivery):
            return None
        data = pn.read(link.handle, delivery)
        pn.advance(link.handle)
        return link.perform(delivery, data)

    def _look_for_echo(self, handle: Handle) -> None:
        asked = self.echoing.asked(handle)
        if asked is not None:
            echo = self._watch.echo(asked.channel, asked.handle)
            if echo is not None:
                self.echoing.ask(handle, echo)
                self.wake()

    # --- dispositions

    def _on_disposition(self, sent: Handle, delivery: Delivery) -> None:
        state, is_settled = pn.remote_state(sent), pn.is_settled(sent)
        if state == pn.ACCEPTED and is_settled:
            del self.outgoing[sent]
            pn.settle(sent)
            self._accepted.append(delivery)
            return
        if state in (0, RECEIVED) and not is_settled:
            return  # still at it
        if state == TRANSACTIONAL:
            try:
                self.coordinator.retire(sent, delivery)
            except Amqp10Error as error:
                self.fail_link(pn.link_of(sent), error.condition, error.text)
            return
        del self.outgoing[sent]
        if state == pn.ACCEPTED:  # not settled: it waits until we have
            self._second.append((sent, delivery))
            return
        default = delivery.consumer.sink.default  # type: ignore[attr-defined]
        try:
            verdict = verdict_of(state, sent, default)
        except Amqp10Error as error:  # the link ends, and what it had comes back
            self.fail_link(pn.link_of(sent), error.condition, error.text)
            return
        if is_settled:
            pn.settle(sent)
            self.vhost.settle([delivery], verdict)
        else:
            token = self._commit_later([(sent, delivery)], state)
            self.vhost.settle([delivery], verdict, self, token)
        self.wake()

    def _settle_accepted(self) -> None:
        """What one chunk accepted is settled at once."""
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            self.vhost.settle(accepted, ACCEPTED)
            for sink in {delivery.consumer.sink for delivery in accepted}:
                sink.on_settled()  # type: ignore[attr-defined]
        if self._second:
            second, self._second = self._second, []
            token = self._commit_later(second, pn.ACCEPTED)
            self.vhost.settle([delivery for _, delivery in second], ACCEPTED, self, token)
            for sink in {delivery.consumer.sink for _, delivery in second}:
                sink.on_settled()  # type: ignore[attr-defined]

    def _commit_later(self, second: list[tuple[Handle, Delivery]], state: int) -> int:
        """Receiver-settle-mode second: they are settled with the peer when that is committed."""
        self._next += 1
        deliveries = [(sent, delivery.consumer.sink) for sent, delivery in second]
        self._committing[self._next] = state, deliveries
        return self._next

    def on_committed(self, tokens: list[int]) -> None:
        """It is. The peer hears the outcome that it asked for once more: some wait for it."""
        for token in tokens:
            state, deliveries = self._committing.pop(token, (0, []))
            for sent, sink in deliveries:
                if sink.is_open:  # type: ignore[attr-defined]
                    if state:
                        pn.update(sent, state)
                    pn.settle(sent)
        self.wake()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        """The database did not take the settlement; the core delivers again after a restart."""
        self.on_committed(tokens)

    # --- cold events

    def _on_cold(self, kind: int, subject: Handle) -> Command | None:
        if kind == CONNECTION_OPEN and not self.is_open:
            return self._open()
        if kind == LINK_OPEN:
            return self._attach(subject)
        if kind == LINK_CLOSE:
            return self._end_link(subject, is_closed=True)
        if kind == LINK_DETACH:
            return self._end_link(subject, is_closed=False)
        if kind == SESSION_OPEN:
            self._begin(subject)
        elif kind == CONNECTION_OPEN:
            self.engine.fail(ILLEGAL_STATE, "open came a second time")
        elif kind == SESSION_CLOSE:
            return self._end_session(subject)
        elif kind == CONNECTION_CLOSE:
            self.engine.close()
            self.is_open = False
        elif kind == TRANSPORT_ERROR:
            self._log_failure(f"it broke the protocol: {self.engine.failure}")
            self.counters.connection_errors += 1
            self.is_failed = True
        self.wake()
        return None

    async def _open(self) -> None:
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
        except CoreError as error:
            said = answer(error)
            self._log_failure(f"{said.condition}: {said.text}")
            self.counters.refused_connections += 1
            self.engine.close(said.condition, said.text)
            self.wake()
            return
        self.counters.connections += 1
        self.terms = Terms(
            self._context, vhost, self._identity, self._peer, self.engine.remote_container
        )
        self.is_open = True
        self.engine.open(OFFERED, product_of(self._settings))
        self.wake()

    def _begin(self, session: Handle) -> None:
        """The engine lets a channel begin again and again: more than there are channels tell it."""
        self._sessions.add(session)
        if len(self._sessions) > self._settings.channel_max + 1:
            self.engine.fail(NOT_ALLOWED, "a begin on a channel whose session has not ended")
        else:
            pn.open_session(session)

    async def _attach(self, handle: Handle) -> None:
        try:
            if not self.is_open:
                raise Amqp10Error(NOT_ALLOWED, "the connection is not open")
            limit = self._settings.max_links
            ended = len(self._failed) + len(self._refused)
            if len(self.links) + ended + len(self.releasing) >= limit:
                raise Amqp10Error(RESOURCE_LIMIT, f"{limit} links on one connection are the most")
            is_receiver = pn.is_sender(handle)
            asked = self._watch.attach(pn.name_of(handle), is_receiver=is_receiver)
            if self.echoing.is_taken(asked):  # [2.7.3] the engine lets it pass
                text = f"handle {asked.handle} is another link's; detach that first"
                self._note_link_error(handle, HANDLE_IN_USE, text)
                pn.end_session(pn.session_of(handle), HANDLE_IN_USE, text)
                self.wake()
                return
            await attach(self, handle, asked)
            self.echoing.attach(handle, asked)
        except Amqp10Error as error:
            self._refuse_link(handle, error)
        except CoreError as error:
            self._refuse_link(handle, answer(error))
        self.wake()

    def _refuse_link(self, handle: Handle, error: Amqp10Error) -> None:
        self._note_link_error(handle, error.condition, error.text)
        pn.refuse_link(handle, error.condition, error.text)
        self._refused.add(handle)
        limit = self._settings.max_links
        if len(self._refused) > limit:  # each takes memory until the peer has answered
            text = f"{limit} links were refused, and not detached"
            self.engine.fail(RESOURCE_LIMIT, text)

    def _note_link_error(self, handle: Handle, condition: str, text: str) -> None:
        self.counters.link_errors += 1
        self._log_failure(f"link '{pn.name_of(handle)}': {condition}: {text}")

    def _log_failure(self, what: str) -> None:
        log.info("%s of user '%s': %s", self._peer.host, self._identity.name, what)

    async def _end_link(self, handle: Handle, *, is_closed: bool) -> None:
        link = self.links.pop(handle, None)
        self._refused.discard(handle)
        if link is not None:
            await self._release(link, is_closed=is_closed)
        elif handle in self._failed:  # an answer to our error is no wish to end a subscription
            await self._release(self._failed.pop(handle), is_closed=False)
        if is_closed:
            pn.close_link(handle)
        else:
            pn.detach_link(handle)
        pn.free_link(handle)
        self.wake()

    async def _end_session(self, session: Handle) -> None:
        _pause(link for link in self.links.values() if pn.session_of(link.handle) == session)
        for links in (self.links, self._failed):
            for handle, link in list(links.items()):
                if pn.session_of(handle) == session:
                    del links[handle]
                    await self._release(link, is_closed=False)
                    pn.free_link(handle)
        for handle in [each for each in self._refused if pn.session_of(each) == session]:
            self._refused.discard(handle)
            pn.free_link(handle)
        await self.releasing.end_session(session)
        self.echoing.end_session(session)
        self._sessions.discard(session)
        pn.end_session(session)
        pn.free_session(session)
        self.wake()

    async def _release(self, link: Link, *, is_closed: bool, is_lost: bool = False) -> None:
        """The link's end in the core, and that of the queue that was only for it."""
        self._settle_accepted()
        self.echoing.detach(link.handle, pn.session_of(link.handle), link.sent_count)
        if isinstance(link, IncomingLink):
            self.starved.discard(link)
        elif isinstance(link, OutgoingLink):
            self._stalled.discard(link)
        await self.releasing.release(link, is_closed=is_closed, is_lost=is_lost)

    def fail_link(self, handle: Handle, condition: str, text: str) -> None:
        """Ends a link with an error; the session goes on. The peer's detach ends it for good."""
        self._note_link_error(handle, condition, text)
        self._settle_accepted()  # what it accepted before does not come back with the rest
        link = self.links.pop(handle, None)
        if link is not None:
            link.close(is_lost=False)
            self.starved.discard(link)
            self._stalled.discard(link)
            self._failed[handle] = link
        pn.close_link(handle, condition, text)
        if not pn.is_sender(handle):
            pn.pass_over(handle)  # of what it failed for, the error tells
            pn.discard(handle)
        self.wake()

    def review(self) -> None:
        """Permissions have changed: links that may not read any more are detached."""
        for link in self._senders():
            right = link.supply.right
            loss = None if right is None else self.terms.auth.loss(self._identity, right)
            if loss is not None:
                said = answer(loss)
                self.fail_link(link.handle, said.condition, said.text)

    def count_dropped(self, error: Amqp10Error) -> None:
        """A settled transfer that was refused: its sender cannot be told."""
        self.counters.dropped_transfers += 1
        if not self._has_dropped:
            self._has_dropped = True
            self._log_failure(f"messages that it sent settled are dropped: {error.text}")

    # --- flow

    def starve(self, link: IncomingLink) -> None:
        """No credit until the database has caught up."""
        self.starved.add(link)

    def feed(self) -> None:
        """It has."""
        starved, self.starved = self.starved, set()
        for link in starved:
            link.replenish()

    def stall(self, link: OutgoingLink) -> None:
        """The receiver's session takes no more for now."""
        link.is_stalled = True
        link.pause()
        self._stalled.add(link)

    def take_output(self) -> bytes:
        data = self.engine.take_output()
        if self.echoing.is_busy:
            self.echoing.watch(data)
            data += self.echoing.answers(self.links)
        if self._stalled:
            for link in list(self._stalled):
                if pn.waiting_bytes(link.session) < pn.LOW_WATER:
                    self._stalled.discard(link)
                    link.is_stalled = False
                    link.resume()
        return data

    def block(self) -> None:
        self.is_blocked = True
        for link in self._senders():
            link.pause()

    def unblock(self) -> None:
        self.is_blocked = False
        for link in self._senders():
            link.resume()

    def _senders(self) -> list[OutgoingLink | BrowsingLink]:
        return [link for link in self.links.values() if isinstance(link, SENDERS)]

    # --- the end

    def close(self, reason: str, condition: str = FORCED) -> None:
        """The gateway's own goodbye."""
        if not self.engine.is_closed:
            self.engine.close(condition, reason)
            self.wake()

    async def lost(self, *, is_clean: bool) -> None:
        """The connection is gone, with or without a word."""
        links, self.links = [*self.links.values(), *self._failed.values()], {}
        self._failed.clear()
        is_clean = is_clean and not self.is_failed
        _pause(links)
        for link in links:
            await self._release(link, is_closed=False, is_lost=not is_clean)
        self.outgoing.clear()
        self._committing.clear()
        if hasattr(self, "terms"):
            self.vhost.release_owner(self.terms.owner)
        self.engine.free()
        # The cyclic collector runs seldom in the gateway: leave it no cycles.
        self.wake = _nothing
        self.on_partial = self.on_transaction = _nothing
        del self.coordinator, self.releasing


def _pause(links: Iterable[Link]) -> None:
    """They are about to end, and what one gives back is not for another of them."""
    for link in links:
        if isinstance(link, SENDERS):
            link.pause()


def _nothing(*_: int) -> None:
    """Nobody listens any more, or nobody did."""
