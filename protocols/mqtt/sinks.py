"""Sinks of a session's stored and shared queues: deliveries that are settled by acknowledgements.

QoS 2 from a stored queue is sent after its packet identifier is committed, and settled in one
commit with its PUBREC: so it is neither lost nor repeated when this process dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.mqtt.delivering import Deliverer, Plan, plan_of
from protocols.mqtt.outbound import Flight, Sent
from protocols.mqtt.properties import published_qos
from queue_core.errors import CoreError
from queue_core.outcomes import ACCEPTED, REJECTED

if TYPE_CHECKING:
    from queue_core.consumers import Consumer, Delivery
    from queue_core.session import Session
    from queue_core.subscriptions import Subscription

QueuePlace = tuple[int, int]  # queue id and offset


class StoredSink:
    """Of the queue that a session keeps while its client is away. Also the owner of its flights."""

    __slots__ = ("_deliverer", "_line", "_resumed", "_session", "_unrecorded")

    def __init__(self, deliverer: Deliverer, session: Session) -> None:
        self._deliverer = deliverer
        self._session = session
        self._line: list[Flight] = []  # not sent, because one before it is not recorded yet
        self._unrecorded: set[Flight] = set()
        self._resumed: dict[QueuePlace, int] = {}  # sent before, on an earlier connection

    def resume(self) -> None:
        """What an earlier connection left in flight: its packet identifiers are taken up again
        [MQTT-4.4.0-1]."""
        outbound = self._deliverer.outbound
        for (is_outgoing, packet_id), packet in sorted(self._session.packets.items()):
            if not is_outgoing:
                continue
            if packet.state == Sent.AWAITS_PUBCOMP:
                flight = Flight(self, Sent.AWAITS_PUBCOMP)
                flight.packet_id = packet_id
                outbound.in_flight[packet_id] = flight
                self._deliverer.release(flight)
            elif packet.queue_id is not None and packet.offset is not None:
                self._resumed[packet.queue_id, packet.offset] = packet_id
                outbound.reserved[packet_id] = Sent(packet.state)

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._deliver(delivery)

    def _deliver(self, delivery: Delivery) -> None:
        deliverer, message = self._deliverer, delivery.message
        options: tuple[Subscription, ...] = delivery.entry.options or ()  # type: ignore[assignment]
        plan = plan_of(message, options, self._session.client_id)
        if plan is None or plan.qos == 0:
            if plan is not None:
                deliverer.send_0(message, plan)
            self._session.vhost.settle((delivery,), ACCEPTED)
            return
        flight = Flight(
            self,
            Sent.AWAITS_PUBACK if plan.qos == 1 else Sent.AWAITS_PUBREC,
            message,
            plan,
            delivery,
        )
        place = (delivery.consumer.cursor.queue_id, delivery.offset)
        earlier = self._resumed.pop(place, None)
        if earlier is not None:
            deliverer.outbound.reserved.pop(earlier, None)
            flight.packet_id = earlier
        # Where the gateway died in between, nobody knows whether it was sent [MQTT-3.3.1-1].
        flight.is_dup = earlier is not None or delivery.failures > 0
        if plan.qos == 2 and earlier is None:
            flight.packet_id = deliverer.outbound.take_id()
            deliverer.outbound.reserved[flight.packet_id] = Sent.AWAITS_PUBREC
            records = self._session.note(True, flight.packet_id, Sent.AWAITS_PUBREC, *place)
            self._unrecorded.add(flight)
            self._line.append(flight)
            deliverer.commit_first(flight, records)
        elif self._line:
            self._line.append(flight)
        else:
            deliverer.send(flight)

    def on_recorded(self, flight: Flight) -> None:
        """Sent in the order of the queue, also those that waited for nothing themselves."""
        self._unrecorded.discard(flight)
        line = self._line
        while line and line[0] not in self._unrecorded:
            self._deliverer.send(line.pop(0))

    def deliver_direct(self, consumer: Consumer, message: object, options: object) -> None:
        raise TypeError("a stored queue delivers what can be settled")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """The session ended, and its queue with it."""

    # --- how flights end

    def on_received(self, flight: Flight, reason: int) -> None:
        session, delivery = self._session, flight.delivery
        records = session.note(True, flight.packet_id, flight.state)
        if delivery is None:  # PUBREC again: it was settled before
            self._deliverer.release(flight)
        elif flight.state is Sent.AWAITS_PUBCOMP:
            flight.delivery = None
            session.vhost.settle((delivery,), ACCEPTED)
            self._deliverer.commit_first(flight, records)
        else:
            session.vhost.settle((delivery,), ACCEPTED, records=records)

    def on_ended(self, flight: Flight, reason: int) -> None:
        if flight.delivery is not None:
            self._deliverer.settle_later(flight.delivery)
        if flight.state is not Sent.OVER or flight.plan is None or is_qos_2(flight):
            self._end_packet(flight)

    def _end_packet(self, flight: Flight) -> None:
        records = self._session.note(True, flight.packet_id, Sent.OVER)
        if records:
            self._session.vhost.settle((), ACCEPTED, records=records)

    def leave(self, flights: list[Flight]) -> None:
        """The connection ended: what was sent keeps its packet identifier for the next one."""
        for flight in flights:
            delivery = flight.delivery
            if flight.owner is not self or delivery is None:
                continue
            if flight.state is Sent.AWAITS_PUBACK:
                place = (delivery.consumer.cursor.queue_id, delivery.offset)
                self._session.remember(True, flight.packet_id, flight.state, *place)


def is_qos_2(flight: Flight) -> bool:
    return isinstance(flight.plan, Plan) and flight.plan.qos == 2


class SharedSink:
    """Of a queue that the members of a group compete on."""

    __slots__ = ("_address", "_deliverer", "_session")

    def __init__(
        self,
        deliverer: Deliverer,
        session: Session,
        address: str,
    ) -> None:
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
        state = Sent.AWAITS_PUBACK if plan.qos == 1 else Sent.AWAITS_PUBREC
        flight = Flight(self, state, message, plan, delivery)
        flight.is_dup = delivery.failures > 0
        self._deliverer.send(flight)

    def deliver_direct(self, consumer: Consumer, message: object, options: object) -> None:
        raise TypeError("a shared queue delivers what can be settled")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """The group has nobody left, or got a queue of another kind."""

    def on_received(self, flight: Flight, reason: int) -> None:
        if flight.state is not Sent.OVER:
            self._deliverer.release(flight)
        self._end(flight, reason)

    def on_ended(self, flight: Flight, reason: int) -> None:
        self._end(flight, reason)

    def leave(self, flights: list[Flight]) -> None:
        """The connection ended: what the client has received goes on with PUBREL in the next one
        [MQTT-4.4.0-1]; the rest goes to others of the group."""
        for flight in flights:
            if flight.owner is self and flight.state is Sent.AWAITS_PUBCOMP:
                self._session.remember(True, flight.packet_id, flight.state)

    def on_recorded(self, flight: Flight) -> None:
        """Never: a group's queue remembers."""

    def _end(self, flight: Flight, reason: int) -> None:
        delivery, flight.delivery = flight.delivery, None
        if delivery is None or not delivery.is_open:
            return
        if reason >= 0x80:  # discarded, and offered to no other member [MQTT-4.8.2-6]
            self._session.vhost.settle((delivery,), REJECTED)
        else:
            self._deliverer.settle_later(delivery)
