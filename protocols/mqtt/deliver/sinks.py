"""Sinks of a session's stored and shared queues: deliveries that are settled by acknowledgements.

The packet identifier of a message in a session's own queue follows from its offset, so it is the
same after a crash, and nothing is written before the message is sent. A QoS 2 message is settled in
one commit with its PUBREC: it is neither lost nor repeated when this process dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.mqtt.conversion.properties import published_qos
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.send_window import Flight, Sent
from protocols.mqtt.deliver.subscription_options import plan_of
from protocols.mqtt.subscribe.read_rights import WaitingRights
from protocols.mqtt.wire.reasons import ReasonCode
from queue_core.errors import CoreError
from queue_core.outcomes import ACCEPTED, REJECTED

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Consumer, Delivery, SharedCredit
    from queue_core.sessions.session import Session
    from queue_core.sessions.subscription import Subscription

QueuePlace = tuple[int, int]  # queue id and offset


class StoredSink:
    """The sink of the queue that a session keeps while its client is away, and the owner of its
    flights."""

    __slots__ = (
        "_credit",
        "_deliverer",
        "_left",
        "_resumed",
        "_rights",
        "_session",
        "_unrecorded",
        "line",
    )

    def __init__(
        self,
        deliverer: Deliverer,
        session: Session,
        credit: SharedCredit,
        rights: WaitingRights,
    ) -> None:
        self._deliverer = deliverer
        self._rights = rights
        self._credit = credit
        self._left: set[int] = set()  # identifiers of an earlier connection that await PUBCOMP
        self._session = session
        self.line: list[Flight] = []  # flights behind one that is not recorded yet
        self._unrecorded: set[Flight] = set()
        self._resumed: dict[QueuePlace, int] = {}  # identifiers of an earlier connection

    def doubt(self) -> None:
        """Has all messages that wait checked again: the client may not be allowed to read them any
        more."""
        if self._session.stored is not None:
            self._rights.doubt(self._session.stored)

    def resume(self) -> None:
        """Takes up the packet identifiers that an earlier connection left in flight
        [MQTT-4.4.0-1]."""
        outbound, session = self._deliverer.outbound, self._session
        # PUBRELs leave in the order of the PUBRECs [MQTT-4.6.0-4].
        for (is_outgoing, packet_id), packet in list(session.packets.items()):
            if not is_outgoing:
                continue
            if packet.state == Sent.AWAITS_PUBCOMP:
                flight = Flight(self, Sent.AWAITS_PUBCOMP)
                flight.packet_id = packet_id
                outbound.in_flight[packet_id] = flight
                self._left.add(packet_id)
                self._credit.free -= 1  # so that identifiers do not run out
                self._deliverer.release(flight)
            elif packet.queue_id is not None and packet.offset is not None:
                self._resumed[packet.queue_id, packet.offset] = packet_id
                outbound.reserved[packet_id] = Sent(packet.state)
            if packet.state == Sent.AWAITS_PUBACK:
                session.remember(True, packet_id, Sent.OVER)  # nothing of it was written down

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._deliver(delivery)
        self._deliverer.settle()  # settles messages that were too large for this client

    def _deliver(self, delivery: Delivery) -> None:
        deliverer, message = self._deliverer, delivery.message
        options: tuple[Subscription, ...] = delivery.entry.options or ()  # type: ignore[assignment]
        plan = plan_of(message, options, self._session.client_id)
        rights = self._rights
        if delivery.offset < rights.doubtful_below and not rights.allow(message, options):
            self._withhold(delivery, 0 if plan is None else plan.qos)
            return
        if plan is None or plan.qos == 0:
            if plan is not None:
                deliverer.send_0(message, plan)
            deliverer.settle_later(delivery)
            return
        state = Sent.AWAITS_PUBACK if plan.qos == 1 else Sent.AWAITS_PUBREC
        flight = Flight(self, state, message, plan, delivery)
        place = (delivery.consumer.queue_id, delivery.offset)
        outbound = deliverer.outbound
        earlier = self._resumed.pop(place, 0) if self._resumed else 0
        if earlier:
            outbound.reserved.pop(earlier, None)
        # Where the gateway died in between, nobody knows whether it was sent [MQTT-3.3.1-1].
        flight.is_dup = earlier != 0 or delivery.redelivered
        flight.packet_id = earlier or outbound.own_id(delivery.offset)
        must_last = plan.qos == 2 and delivery.entry.expires_at is not None
        if not flight.packet_id or (must_last and not earlier):
            # An identifier that does not follow from the offset, or a message that must not expire
            # once it is sent: a gateway that comes back after a crash must know.
            flight.packet_id = flight.packet_id or outbound.take_id()
            outbound.reserved[flight.packet_id] = state
            records = self._session.note(True, flight.packet_id, state, *place)
            self._unrecorded.add(flight)
            self.line.append(flight)
            deliverer.commit_first(flight, records)
        elif self.line or not outbound.has_room:
            outbound.reserved[flight.packet_id] = state
            if self.line:
                self.line.append(flight)
            else:
                deliverer.send(flight)
        else:
            deliverer.send(flight)

    def _withhold(self, delivery: Delivery, qos: int) -> None:
        """Drops a message that the client may not read any more. If the client has it already, with
        QoS 2, its identifier stays taken until PUBREL."""
        deliverer = self._deliverer
        deliverer.drop_forbidden(delivery.message)
        place = (delivery.consumer.queue_id, delivery.offset)
        earlier = self._resumed.pop(place, 0)
        deliverer.outbound.reserved.pop(earlier, None)
        packet_id = earlier or deliverer.outbound.own_id(delivery.offset)
        if qos < 2 or not packet_id or not (earlier or delivery.redelivered):
            deliverer.settle_later(delivery)
            return
        flight = Flight(self, Sent.AWAITS_PUBCOMP, delivery=delivery, packet_id=packet_id)
        deliverer.outbound.in_flight[packet_id] = flight
        self.on_received(flight, ReasonCode.SUCCESS)

    def on_recorded(self, flight: Flight) -> None:
        """Sends flights in the order of the queue, also those behind this one that waited for
        nothing themselves."""
        self._unrecorded.discard(flight)
        delivery = flight.delivery
        if delivery is not None and flight.state is Sent.AWAITS_PUBREC:
            delivery.mark_begun()  # [MQTT-4.3.3-7]
        line = self.line
        while line and line[0] not in self._unrecorded:
            self._deliverer.send(line.pop(0))

    def deliver_direct(self, consumer: Consumer, message: object, options: object) -> None:
        raise TypeError("a stored queue delivers what can be settled")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Hears that the session ended, and its queue with it."""
        self._deliverer.on_cancel(consumer, reason)

    def on_launch(self, flight: Flight) -> None:
        """Is never called: messages in this queue are the client's own, and await no claim."""

    # --- how flights end

    def on_received(self, flight: Flight, reason: int) -> None:
        delivery, flight.delivery = flight.delivery, None
        if delivery is not None:
            self._deliverer.settle_later(delivery)
        if flight.state is not Sent.AWAITS_PUBCOMP:
            self._end_packet(flight)
        elif delivery is None:  # PUBREC again: it was settled before, maybe just now
            self._deliverer.commit_later(flight, ())
        else:
            records = self._session.note(True, flight.packet_id, Sent.AWAITS_PUBCOMP)
            self._deliverer.commit_later(flight, records)

    def on_ended(self, flight: Flight, reason: int) -> None:
        if flight.delivery is not None:
            self._deliverer.settle_later(flight.delivery)
            flight.delivery = None
        self._end_packet(flight)

    def on_expired(self, flight: Flight) -> None:
        """Gives the message back: its queue deals with it as with any that expires."""
        delivery, flight.delivery = flight.delivery, None
        self._deliverer.outbound.reserved.pop(flight.packet_id, None)
        self._end_packet(flight)
        if delivery is not None:
            delivery.unmark_begun()
            delivery.give_back()

    def _end_packet(self, flight: Flight) -> None:
        """Writes down the end of a flight that was written down itself. Until that is committed,
        nothing else is sent under its identifier, or a restart would take the one for the other."""
        flight.state = Sent.OVER
        packets = self._session.packets
        if packets and (True, flight.packet_id) in packets:
            self._deliverer.outbound.reserved[flight.packet_id] = Sent.OVER
            records = self._session.note(True, flight.packet_id, Sent.OVER)
            self._deliverer.commit_later(flight, records)
        if self._left and flight.packet_id in self._left:
            self._left.remove(flight.packet_id)
            self._credit.grant(1)

    def leave(self, flights: list[Flight]) -> None:
        """Leaves to the next connection which messages were sent on this one, which has ended."""
        for flight in flights:
            delivery = flight.delivery
            if flight.owner is self and delivery is not None:
                place = (delivery.consumer.queue_id, delivery.offset)
                self._session.remember(True, flight.packet_id, flight.state, *place)


class SharedSink:
    """The sink of a queue that the members of a group compete on. A QoS 2 message becomes its
    member's own before it is sent: it is completed with that member when it comes back, or
    discarded with its session, and goes to nobody else [MQTT-4.8.2-4] [MQTT-4.8.2-5]."""

    __slots__ = ("_address", "_deliverer", "_session")

    def __init__(self, deliverer: Deliverer, session: Session, address: str) -> None:
        self._deliverer = deliverer
        self._session = session
        self._address = address

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        subscription = self._session.subscriptions.get(self._address)  # this member's own
        for delivery in deliveries:
            self._deliver(delivery, subscription)

    def _deliver(self, delivery: Delivery, subscription: Subscription | None) -> None:
        message = delivery.message
        plan = None
        if subscription is not None:
            plan = plan_of(message, (subscription,), self._session.client_id)
        if plan is None or not min(plan.qos, published_qos(message)):
            if plan is not None:
                self._deliverer.send_0(message, plan)
            if delivery.is_open:
                self._session.vhost.settle((delivery,), ACCEPTED)
            return
        state = Sent.AWAITS_PUBACK if plan.qos == 1 else Sent.AWAITS_CLAIM
        flight = Flight(self, state, message, plan, delivery)
        flight.is_dup = delivery.failures > 0 and plan.qos == 1
        self._deliverer.send(flight)

    def deliver_direct(self, consumer: Consumer, message: object, options: object) -> None:
        raise TypeError("a shared queue delivers what can be settled")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Hears that the group has nobody left, or got a queue of another kind."""
        self._deliverer.on_cancel(consumer, reason)

    # --- QoS 2: out of the group's queue first

    def on_launch(self, flight: Flight) -> None:
        delivery, session = flight.delivery, self._session
        subscription = session.subscriptions.get(self._address)
        if delivery is None or not delivery.is_open or subscription is None:
            return
        flight.delivery = None
        if session.is_persistent:  # comes back to this client from its own queue
            session.claim(delivery, subscription)
            return
        outbound = self._deliverer.outbound
        flight.packet_id = outbound.take_id()
        outbound.in_flight[flight.packet_id] = flight
        if delivery.is_stored:
            self._deliverer.commit_first(flight)
        else:
            self.on_recorded(flight)
        # Settled in the same commit; last, because the credit given back may bring the next one.
        session.vhost.settle((delivery,), ACCEPTED)

    def on_recorded(self, flight: Flight) -> None:
        """Sends a message that has left the group's queue. From here on it is as any message of a
        clean session."""
        del self._deliverer.outbound.in_flight[flight.packet_id]
        flight.owner = self._deliverer
        flight.state = Sent.AWAITS_PUBREC
        self._deliverer.launch(flight)

    # --- QoS 1

    def on_received(self, flight: Flight, reason: int) -> None:
        """Is never called: a QoS 2 message is the client's own by then."""

    def on_ended(self, flight: Flight, reason: int) -> None:
        delivery, flight.delivery = flight.delivery, None
        if delivery is None or not delivery.is_open:
            return
        if reason >= 0x80:  # discarded, and offered to no other member [MQTT-4.8.2-6]
            self._session.vhost.settle((delivery,), REJECTED)
        else:
            self._deliverer.settle_later(delivery)

    def on_expired(self, flight: Flight) -> None:
        delivery, flight.delivery = flight.delivery, None
        if delivery is not None:
            delivery.give_back()
