"""One client past its open: its sessions and links, and what each of the engine's events does.

Hot events (transfers, dispositions, credit) are answered in place. An event that needs the core to
wait (attaching a link, discharging a transaction) becomes a command. Opening and closing the
connection is `machine`'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from protocols.amqp10.addressing.filters import ORIGINS
from protocols.amqp10.context import Context
from protocols.amqp10.engine import proton as pn
from protocols.amqp10.engine.flow_echo import Echoing
from protocols.amqp10.engine.proton import (
    LINK_CLOSE,
    LINK_DETACH,
    LINK_OPEN,
    RECEIVED,
    SESSION_CLOSE,
    SESSION_OPEN,
    TRANSACTIONAL,
    Engine,
    Handle,
)
from protocols.amqp10.engine.unreported_fields import Watch
from protocols.amqp10.errors import (
    DETACH_FORCED,
    HANDLE_IN_USE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    TOO_LARGE,
    Amqp10Error,
    answer,
)
from protocols.amqp10.links.attaching import attach
from protocols.amqp10.links.browsing import BrowsingLink
from protocols.amqp10.links.detaching import Link, Releasing
from protocols.amqp10.links.from_client import IncomingLink
from protocols.amqp10.links.outcomes import verdict_of
from protocols.amqp10.links.to_client import OutgoingLink
from protocols.amqp10.links.transactions import MAX_COMMAND_BYTES, Coordinator, CoordinatorLink
from protocols.amqp10.negotiated_terms import Terms
from protocols.amqp10.reports import flow_of
from protocols.carrier import GONE, Carrier
from protocols.connection_report import Flow
from queue_core.delivery.consumer import Delivery, Sink
from queue_core.errors import CoreError, QuotaReached
from queue_core.outcomes import ACCEPTED

log = logging.getLogger(__name__)

Command = Coroutine[Any, Any, None]
SENDERS: Final = (OutgoingLink, BrowsingLink)  # links on which the gateway sends
PARTIAL_STEP_BYTES: Final = 1 << 20  # of unfinished messages that room is reserved for at once


class Client:
    """Everything that an open connection has. Implements the core's `Publisher` for settlements
    that the peer hears of after their commit."""

    def __init__(
        self, context: Context, terms: Terms, engine: Engine, watch: Watch, carrier: Carrier
    ) -> None:
        self.terms = terms
        self.vhost = terms.vhost
        self.engine = engine
        self.counters = context.counters
        self.memory = context.services.memory
        self.wake = carrier.flush_soon  # there is something to write
        self.links: dict[Handle, Link] = {}
        self.outgoing: dict[Handle, Delivery] = {}
        self.origin = ORIGINS.new()  # marks this connection's messages, for no-local
        self.coordinator = Coordinator(terms, carrier, self.outgoing)
        self.releasing = Releasing(terms)
        self.echoing = Echoing()
        self.has_published = False  # since somebody last looked
        self.is_blocked = False  # the socket is full
        self.partial_bytes = 0  # of messages that are still coming in
        self.starved: set[IncomingLink] = set()  # wait for the database to catch up
        self._settings = context.settings
        self._carrier = carrier
        self._watch = watch
        self._reserved = 0  # bytes, for messages that are still coming in
        self._failed: dict[Handle, Link] = {}  # ended by us; the peer has not answered yet
        self._refused: set[Handle] = set()  # never begun; the peer has not answered yet
        # Begun by the peer, and not ended by it: with their numbers, for people.
        self.sessions: dict[Handle, int] = {}
        self._session_count = 0
        self.ended_flow = Flow()  # of links that were detached
        self._has_dropped = False  # settled transfers that were refused, and the log says so
        self._stalled: set[OutgoingLink] = set()
        self._accepted: list[Delivery] = []
        self._second: list[tuple[Handle, Delivery]] = []
        self._committing: dict[int, tuple[int, list[tuple[Handle, Sink]]]] = {}
        self._next = 0

    # --- events

    def on_event(self, kind: int, subject: Handle) -> Command | None:
        """Handles an event of a session or a link that is no transfer, disposition or flow."""
        if kind == LINK_OPEN:
            return self._attach(subject)
        if kind == LINK_CLOSE:
            return self._end_link(subject, is_closed=True)
        if kind == LINK_DETACH:
            return self._end_link(subject, is_closed=False)
        if kind == SESSION_CLOSE:
            return self._end_session(subject)
        if kind == SESSION_OPEN:
            self._begin(subject)
            self.wake()
        return None

    def on_flow(self, handle: Handle) -> None:
        """Handles a flow of the peer: credit for a link, and perhaps a request for an answer."""
        found = self.links.get(handle)
        if isinstance(found, SENDERS):
            found.on_flow()
        self._look_for_echo(handle)

    def coordinate(self, link: CoordinatorLink, delivery: Handle) -> Command | None:
        """Handles a transfer to a transaction coordinator: a declare or a discharge."""
        if not pn.is_readable(delivery):
            return None
        if pn.unread_bytes(delivery) > MAX_COMMAND_BYTES:
            text = f"a declare or a discharge of more than {MAX_COMMAND_BYTES} bytes"
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

    def on_disposition(self, sent: Handle, delivery: Delivery) -> None:
        state, is_settled = pn.remote_state(sent), pn.is_settled(sent)
        if state == pn.ACCEPTED and is_settled:
            del self.outgoing[sent]
            pn.settle(sent)
            self._accepted.append(delivery)
            return
        if state in (0, RECEIVED) and not is_settled:
            return  # the receiver has not decided yet
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

    def settle_accepted(self) -> None:
        """Settles everything that one chunk of input accepted, together."""
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
        """Keeps deliveries of receiver-settle-mode second: the peer hears that they are settled
        when that is committed."""
        self._next += 1
        deliveries = [(sent, delivery.consumer.sink) for sent, delivery in second]
        self._committing[self._next] = state, deliveries
        return self._next

    def on_committed(self, tokens: list[int]) -> None:
        """Settles deliveries whose outcome is committed. The peer hears the outcome that it asked
        for once more: some wait for it."""
        for token in tokens:
            state, deliveries = self._committing.pop(token, (0, []))
            for sent, sink in deliveries:
                if sink.is_open:  # type: ignore[attr-defined]
                    if state:
                        pn.update(sent, state)
                    pn.settle(sent)
        self.wake()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        """Settles deliveries whose settlement the database did not take: the core delivers them
        again after a restart."""
        self.on_committed(tokens)

    # --- sessions and links

    def _begin(self, session: Handle) -> None:
        """Begins a session. The engine lets a channel begin again and again: more sessions than
        there are channels give that away."""
        try:
            self.terms.auth.require_channel(self.terms.identity)
        except QuotaReached as error:
            said = answer(error)
            pn.open_session(session)
            pn.end_session(session, said.condition, said.text)
            self.wake()
            return
        self.sessions[session] = self._session_count = self._session_count + 1
        self.counters.sessions_opened += 1
        if len(self.sessions) > self._settings.channel_max + 1:
            self.engine.fail(NOT_ALLOWED, "a begin on a channel whose session has not ended")
        else:
            pn.open_session(session)

    async def _attach(self, handle: Handle) -> None:
        if pn.session_of(handle) not in self.sessions:
            return  # the session was refused, and its end is on its way to the client
        try:
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
        host, user = self.terms.peer.host, self.terms.identity.name
        log.info("%s of user '%s': %s", host, user, what)

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
        self._forget_session(session)
        pn.end_session(session)
        pn.free_session(session)
        self.wake()

    def _forget_session(self, session: Handle) -> None:
        if self.sessions.pop(session, None) is not None:
            self.counters.sessions_closed += 1

    def cancel_consumer(self, number: int, tag: str, reason: str) -> bool:
        """Detaches a link because an operator wants it; False: there is no such consumer."""
        for link in self._senders():
            if link.name == tag and self.sessions.get(link.session) == number:
                self.fail_link(link.handle, DETACH_FORCED, reason)
                return True
        return False

    async def _release(self, link: Link, *, is_closed: bool, is_lost: bool = False) -> None:
        """Ends a link in the core, and the queue that was only for it."""
        self.settle_accepted()
        self.ended_flow.add(flow_of(link))
        self.echoing.detach(link.handle, pn.session_of(link.handle), link.sent_count)
        if isinstance(link, IncomingLink):
            self.starved.discard(link)
        elif isinstance(link, OutgoingLink):
            self._stalled.discard(link)
        await self.releasing.release(link, is_closed=is_closed, is_lost=is_lost)

    def fail_link(self, handle: Handle, condition: str, text: str) -> None:
        """Ends a link with an error; the session goes on. The peer's detach ends it for good."""
        self._note_link_error(handle, condition, text)
        self.settle_accepted()  # what it accepted before does not come back with the rest
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
        """Detaches links that may not read any more after permissions have changed."""
        for link in self._senders():
            right = link.supply.right
            loss = None if right is None else self.terms.auth.loss(self.terms.identity, right)
            if loss is not None:
                said = answer(loss)
                self.fail_link(link.handle, said.condition, said.text)

    def count_dropped(self, error: Amqp10Error) -> None:
        """Counts a settled transfer that was refused: its sender cannot be told."""
        self.counters.dropped_transfers += 1
        if not self._has_dropped:
            self._has_dropped = True
            self._log_failure(f"messages that it sent settled are dropped: {error.text}")

    # --- flow

    def starve(self, link: IncomingLink) -> None:
        """Has a link wait for its credit until the database has caught up."""
        self.starved.add(link)

    def feed(self) -> None:
        """Grants credit to links that have waited for the database or for memory."""
        starved, self.starved = self.starved, set()
        for link in starved:
            link.replenish()

    def stall(self, link: OutgoingLink) -> None:
        """Pauses a link whose session takes no more for now."""
        link.is_stalled = True
        link.pause()
        self._stalled.add(link)

    def pause(self) -> None:
        """Stops deliveries: the client's socket is full."""
        self.is_blocked = True
        for link in self._senders():
            link.pause()

    def resume(self) -> None:
        """Goes on with deliveries: the client's socket has room."""
        self.is_blocked = False
        for link in self._senders():
            link.resume()

    def _senders(self) -> list[OutgoingLink | BrowsingLink]:
        return [link for link in self.links.values() if isinstance(link, SENDERS)]

    def watch_output(self, data: bytes) -> bytes:
        """Learns from what the engine has to say, and adds what the engine leaves out."""
        if self.echoing.is_busy:
            self.echoing.watch(data)
            data += self.echoing.answers(self.links)
        if self._stalled:
            for link in list(self._stalled):
                if pn.waiting_bytes(link.session) < pn.LOW_WATER_BYTES:
                    self._stalled.discard(link)
                    link.is_stalled = False
                    link.resume()
        return data

    def add_partial(self, size: int) -> None:
        """Counts bytes of messages that are still coming in; fewer, if below zero. A transfer does
        not say how long its message is: room is reserved in steps."""
        self.partial_bytes += size
        reserved = -(-self.partial_bytes // PARTIAL_STEP_BYTES) * PARTIAL_STEP_BYTES
        if reserved != self._reserved:
            self._reserved = reserved
            self._carrier.expect(reserved)

    # --- the end

    def fail_links(self, condition: str, text: str) -> None:
        """Ends all links with an error: what they hold is free at once."""
        for handle in list(self.links):
            self.fail_link(handle, condition, text)

    async def end(self, *, is_clean: bool) -> None:
        """Ends everything: the connection is gone. What the client had comes back, counted as
        failed unless both sides had said goodbye."""
        links, self.links = [*self.links.values(), *self._failed.values()], {}
        self._failed.clear()
        _pause(links)
        for link in links:
            await self._release(link, is_closed=False, is_lost=not is_clean)
        self.outgoing.clear()
        self._committing.clear()
        for session in list(self.sessions):
            self._forget_session(session)
        self.vhost.release_owner(self.terms.owner)
        self._carrier, self.wake = GONE, GONE.flush_soon


def _pause(links: Iterable[Link]) -> None:
    """Pauses links that are about to end: what one gives back is not for another of them."""
    for link in links:
        if isinstance(link, SENDERS):
            link.pause()
