"""A connected client: its session, its consumers, and what each packet of it sets going.

A client is made when CONNECT was accepted, and is complete from then on. No socket is known here:
the link owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Protocol

from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.retained_sending import RetainedSending
from protocols.mqtt.deliver.send_window import MOST_STORED, Outbound
from protocols.mqtt.deliver.sinks import SharedSink, StoredSink
from protocols.mqtt.negotiated_terms import Link, Terms, lifetime_of
from protocols.mqtt.publish.acknowledgements import Inbound, Received
from protocols.mqtt.publish.publishing import Publishing
from protocols.mqtt.publish.topic_aliases import OutgoingAliases
from protocols.mqtt.queue_topics.queue_topics import QueueTopics
from protocols.mqtt.subscribe.read_rights import WaitingRights
from protocols.mqtt.subscribe.subscribing import Subscribing
from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Auth,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from protocols.mqtt.wire.property_set import NO_PROPERTIES
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, violation
from queue_core.delivery.consumer import Consumer, ConsumerSpec, SharedCredit
from queue_core.errors import CoreError
from queue_core.outcomes import RELEASED
from queue_core.sessions.session import KEEP, Keep

log = logging.getLogger(__name__)


class ClientLink(Link, Protocol):
    """The connection, as its client sees it."""

    def follow_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs what is left to do for a packet that acts already, in order, one after another.
        Further subscriptions do not wait for it, the rest of the input does."""

    def close(self) -> None:
        """Ends the connection after what is in the output."""

    async def authenticate(self, packet: Auth) -> None:
        """Logs the client in again [MQTT-4.12.1-1]."""


class Client:
    """Handles the packets of one connected client. Implements the core's `SessionOwner`."""

    __slots__ = (
        "_agreement",
        "_consumers",
        "_context",
        "_credit",
        "_has_wish_to_end",
        "_is_held",
        "_link",
        "_passed_on_before",
        "_queue_topics",
        "_shared_credit",
        "_stored_sink",
        "_subscribing",
        "deliverer",
        "expiry",
        "is_closed",
        "publishes_will",
        "publishing",
        "session",
        "terms",
        "version",
    )

    def __init__(self, terms: Terms, link: ClientLink) -> None:
        settings, session = terms.settings, terms.session
        self.session = session
        self.version = terms.version
        self.is_closed = False
        self.publishes_will = True  # until a DISCONNECT says otherwise
        self.expiry: float | Keep | None = KEEP
        self.terms = terms
        self._link = link
        self._context = terms.context
        self._agreement = terms.agreement
        self._has_wish_to_end = False
        window = terms.agreement.receive_maximum
        self._credit = window + (settings.pending_queue_size if settings.pends_overflow else 0)
        if session.is_persistent:
            self._credit = min(self._credit, MOST_STORED)
        self._shared_credit = SharedCredit(self._credit)
        self.deliverer = self._make_deliverer(window)
        self._queue_topics = QueueTopics(terms, self.deliverer, self._shared_credit, self._credit)
        self.publishing = Publishing(terms, self._make_inbound(), self._queue_topics)
        self._subscribing = Subscribing(
            terms,
            self._make_retained_sending(),
            self._queue_topics,
            self._on_subscriptions_changed,
        )
        self._stored_sink: StoredSink | None = None
        if session.is_persistent:
            rights = WaitingRights(session.vhost.name, terms.identity, terms.auth)
            self._stored_sink = StoredSink(self.deliverer, session, self._shared_credit, rights)
            self._stored_sink.doubt()
        self._consumers: dict[str, Consumer] = {}  # by queue
        self._is_held = False
        self._passed_on_before = session.live.traffic.passed_on  # to an earlier connection
        self._notice_wishes()
        self._consume_own()

    def _make_deliverer(self, window: int) -> Deliverer:
        most = self._context.settings.topic_alias_maximum
        aliases = min(self._agreement.alias_maximum, most)
        return Deliverer(
            self.terms,
            Outbound(window, is_stored=self.session.is_persistent),
            self._credit,
            OutgoingAliases(aliases) if aliases else None,
        )

    def _make_retained_sending(self) -> RetainedSending:
        return RetainedSending(
            self.session,
            self._context.services.sessions.retained,
            self._context.sys_topics,
            self._context.settings,
            self._context.spawn,
            self.terms.fail_by,
        )

    def _make_inbound(self) -> Inbound:
        received = {
            packet_id: Received.RECEIVED
            for (is_outgoing, packet_id) in self.session.packets
            if not is_outgoing
        }
        return Inbound(
            self.terms.output.put,
            self.version,
            self._context.settings.max_inflight,
            self.terms.fail_by,
            self._forget,
            tells_reasons=self._agreement.tells_reasons,
            received=received,
        )

    def _forget(self, packet_id: int) -> None:
        self.publishing.forget(packet_id)

    # --- consumers

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers of the session's own queues, of shared groups and of queue topics."""
        return [*self._consumers.values(), *self._queue_topics.consumers()]

    @property
    def passed_on(self) -> int:
        """Counts the messages that went straight from publishers to this connection."""
        return self.session.live.traffic.passed_on - self._passed_on_before

    def _consume_own(self) -> None:
        session = self.session
        consumer = session.live.consume(self.deliverer, ConsumerSpec(auto_settle=True))
        self._consumers[session.live.name] = consumer
        consumer.unsent = self.terms.output.unsent
        self.deliverer.attach(consumer)
        if session.stored is not None and self._stored_sink is not None:
            stored = session.stored.consume(self._stored_sink, self._spec())
            stored.unsent = self.terms.output.unsent
            self._consumers[session.stored.name] = stored

    def _spec(self, tag: str = "") -> ConsumerSpec:
        """Tells how a queue that is stored for subscriptions is consumed."""
        return ConsumerSpec(
            tag=tag, credit=self._credit, shared=self._shared_credit, origin=self.terms.origin
        )

    async def start(self) -> None:
        """Goes on after CONNACK: with messages that were in flight [MQTT-4.4.0-1], then with the
        queues."""
        if losses := self._subscribing.losses():  # rights that went since the last time
            await self._revoke(losses)
            return
        if self._stored_sink is not None:
            self._stored_sink.resume()
        for subscription in list(self.session.subscriptions.values()):
            if subscription.queue is not None:
                try:
                    await self._queue_topics.consume(subscription)
                except CoreError as error:
                    self._context.counters.lost_subscriptions += 1
                    log.warning("'%s' cannot go on: %s", subscription.address, error)
                else:
                    self._queue_topics.wake(subscription.address)
        self._on_subscriptions_changed()
        for consumer in list(self._consumers.values()):
            consumer.wake()

    def _on_subscriptions_changed(self) -> None:
        self._notice_wishes()
        self.on_shared_changed()

    def _notice_wishes(self) -> None:
        subscriptions = self.session.subscriptions.values()
        self.deliverer.is_plain = self.deliverer.aliases is None and not any(
            each.no_local or each.retain_as_published or each.identifier is not None
            for each in subscriptions
        )

    def on_shared_changed(self) -> None:
        """Consumes from the queues of all groups that the session is in, and from no others. A
        SUBSCRIBE may end, or another member may join, when this connection is over already: then it
        consumes from none, as nobody would end those consumers."""
        if self.is_closed:
            return
        session, vhost = self.session, self.session.vhost
        own = {session.live.name} | ({session.stored.name} if session.stored else set())
        wanted = set(session.shared)
        for name in [name for name in self._consumers if name not in own | wanted]:
            vhost.end_consumer(self._consumers.pop(name), RELEASED)
        for name in wanted - self._consumers.keys():
            queue = vhost.queue(name)
            sink = SharedSink(self.deliverer, session, session.shared_address(name))
            consumer = self._consumers[name] = queue.consume(sink, self._spec(name))
            consumer.unsent = self.terms.output.unsent
            consumer.wake()

    def review(self) -> None:
        """Looks through the subscriptions after permissions have changed."""
        if self.is_closed:
            return
        if self._stored_sink is not None:
            self._stored_sink.doubt()
        if losses := self._subscribing.losses():
            self._context.spawn(self._revoke(losses))

    async def _revoke(self, losses: dict[str, CoreError]) -> None:
        """Ends subscriptions that are not allowed any more, and the connection with them, as MQTT
        has no packet for the end of a subscription. The client comes back to the same session
        without them. Until all that is done, it gets nothing more."""
        self._is_held = True
        self.pause()
        try:
            await self._subscribing.take_back(list(losses))
        except CoreError as error:
            log.warning("subscriptions of '%s' stay: %s", self.session.client_id, error)
        self._link.fail(ReasonCode.NOT_AUTHORIZED, str(next(iter(losses.values()))))

    def pause(self) -> None:
        """Stops deliveries while the client's socket is full."""
        self.deliverer.hold_live(is_blocked=True)
        for name, consumer in self._consumers.items():
            if name != self.session.live.name:
                consumer.pause()
        self._queue_topics.pause()

    def resume(self) -> None:
        if self._is_held:
            return
        self.deliverer.hold_live(is_blocked=False)
        for name, consumer in list(self._consumers.items()):
            if name != self.session.live.name:
                consumer.resume()
        self._queue_topics.resume()

    # --- packets

    def receive(self, packet: Packet) -> None:
        HANDLERS[type(packet)](self, packet)

    def on_publish(self, packet: Publish) -> None:
        self.publishing.on_publish(packet)

    def on_acknowledgement(self, packet: PubAck | PubRec | PubComp) -> None:
        self.deliverer.acknowledge(packet)

    def on_pubrel(self, packet: PubRel) -> None:
        self.publishing.on_release(packet)

    def on_subscribe(self, packet: Subscribe) -> None:
        self._check_answer(len(packet.requests))
        self._link.follow_up(self._subscribing.subscribe(packet, self._send))

    def on_unsubscribe(self, packet: Unsubscribe) -> None:
        self._check_answer(len(packet.filters))
        self._link.follow_up(self._subscribing.unsubscribe(packet, self._send))

    def _check_answer(self, reasons: int) -> None:
        """Refuses a request whose answer does not fit into the client's packets [MQTT-3.1.2-24].
        Raises MqttError."""
        most = self._agreement.max_packet
        size = len(wire.varint(reasons + 3)) + reasons + 4  # without properties
        if size > most:
            raise MqttError(
                ReasonCode.PACKET_TOO_LARGE,
                f"an answer with {reasons} reasons does not fit into the {most} bytes that the "
                "client takes; name fewer filters at once, or raise its maximum packet size",
            )

    def on_pingreq(self, packet: PingReq) -> None:
        self._send(PingResp())  # [MQTT-3.12.4-1]

    def on_auth(self, packet: Auth) -> None:
        self._link.defer(self._link.authenticate(packet))

    def on_disconnect(self, packet: Disconnect) -> None:
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and self._agreement.expiry == 0:  # section 3.14.2.2.2
                raise violation("DISCONNECT asks for a session that CONNECT did not want")
            self.expiry = lifetime_of(expiry, self._context.settings.max_session_expiry)
        if packet.properties.server_reference is not None:
            raise violation("a client's DISCONNECT with a server reference")
        # [MQTT-3.14.4-3]: a client that says goodbye leaves no will, unless it asks for it.
        self.publishes_will = packet.reason != ReasonCode.SUCCESS
        self.end(is_clean=True)
        self._link.close()

    def _send(self, packet: Packet) -> None:
        frame = encode(packet, self.version)
        if len(frame) > self._agreement.max_packet:
            frame = encode(_shortened(packet), self.version)
        self.deliverer.put(frame)

    # --- the end

    def on_takeover(self) -> None:
        self._context.counters.takeovers += 1
        self.close(is_clean=False)
        self._link.fail(ReasonCode.SESSION_TAKEN_OVER, "another connection has this client id")

    def on_ended(self, reason: CoreError) -> None:
        self.close(is_clean=False)
        self._link.fail(ReasonCode.ADMINISTRATIVE_ACTION, str(reason))

    def close(self, *, is_clean: bool) -> None:
        """Ends the consumers; messages that they had go back to their queues."""
        if self.is_closed:
            return
        self.is_closed = True
        self.publishing.end_of_chunk()
        self.deliverer.settle()
        if self._stored_sink is not None:
            self._stored_sink.leave(list(self.deliverer.outbound.in_flight.values()))
        # Messages that one consumer gives back are not for another that is about to end.
        for consumer in self._consumers.values():
            consumer.pause()
        self._queue_topics.pause()
        self._return_unsent()
        for consumer in self._consumers.values():
            self.session.vhost.end_consumer(consumer, RELEASED)
        self._consumers.clear()
        self._queue_topics.close(is_clean=is_clean)

    def _return_unsent(self) -> None:
        """Gives back messages that were never sent, as if they had not been handed out."""
        line = [] if self._stored_sink is None else self._stored_sink.line
        for flight in (*self.deliverer.outbound.pending, *line):
            if flight.delivery is not None:
                flight.delivery.give_back()

    def end(self, *, is_clean: bool) -> None:
        """Ends the client with its connection, and detaches the session, which may live on."""
        if self._has_wish_to_end:
            return
        self._has_wish_to_end = True
        self.close(is_clean=is_clean)
        sessions = self._context.services.sessions
        self._context.spawn(
            sessions.detach(self.session, self.expiry, publish_will=self.publishes_will)
        )


def _shortened(packet: Packet) -> Packet:
    """Leaves out of a packet what may be left out where the client takes no more [MQTT-3.9.2-1]."""
    if isinstance(packet, SubAck | UnsubAck):
        return replace(packet, properties=NO_PROPERTIES)
    return packet


HANDLERS: Final[dict[type[Packet], Callable[[Client, Any], None]]] = {
    Publish: Client.on_publish,
    PubAck: Client.on_acknowledgement,
    PubRec: Client.on_acknowledgement,
    PubComp: Client.on_acknowledgement,
    PubRel: Client.on_pubrel,
    Subscribe: Client.on_subscribe,
    Unsubscribe: Client.on_unsubscribe,
    PingReq: Client.on_pingreq,
    Auth: Client.on_auth,
    Disconnect: Client.on_disconnect,
}
