"""Messages on their way to the client: written, sent, held back, acknowledged.

The deliverer is the sink of the session's live queue, which has the short way for QoS 0 and clean
sessions; sinks of stored, shared and named queues hand their deliveries to it as flights. It owns
no socket: what is to be sent is appended to the connection's output.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from protocols.mqtt.conversion.properties import MQTT3, MQTT5, published_qos
from protocols.mqtt.deliver.frames import (
    DUP,
    KEYS_V3,
    KEYS_V5,
    PUBLISH,
    expiry_octets,
    frame_0,
    halves,
    identifier_octets,
    property_octets,
    special_halves,
    topic_octets,
)
from protocols.mqtt.deliver.send_window import (
    ACKNOWLEDGED,
    LIVE_1,
    LIVE_2,
    LIVE_2_RECEIVED,
    MAX_ID,
    NOBODY,
    Flight,
    Outbound,
    Sent,
)
from protocols.mqtt.deliver.subscription_options import Plan, plan_of
from protocols.mqtt.publish.topic_aliases import OutgoingAliases
from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import PubAck, PubComp, PubRec, PubRel
from protocols.mqtt.wire.reasons import ReasonCode, violation
from queue_core.errors import ConsumerStalled, CoreError, DeliveryFailed
from queue_core.outcomes import ACCEPTED

if TYPE_CHECKING:
    from protocols.mqtt.negotiated_terms import Terms
    from queue_core.commit.unit import PacketRecord
    from queue_core.delivery.consumer import Consumer, Delivery
    from queue_core.message.message import Form, Message

log = logging.getLogger(__name__)

BACKLOG_MESSAGES: Final = 1000  # wait for a client before its publishers are slowed down
CATCH_UP_SECONDS: Final = 0.5  # a publisher waits so long for one that is behind
# The packet identifier follows: 0.1 us against 1.9 us by the encoder.
PUBREL_HEAD: Final = b"\x62\x02"


class Deliverer:
    """Implements the core's `Sink` and `RunSink` for the live queue, and `Publisher` for what must
    be committed before it is sent."""

    __slots__ = (
        "_client_id",
        "_clock",
        "_commits",
        "_counters",
        "_fail",
        "_form",
        "_has_dropped",
        "_has_withheld",
        "_is_blocked",
        "_keys",
        "_live",
        "_most_unacknowledged",
        "_next_token",
        "_output",
        "_pieces",
        "_recorded",
        "_settled",
        "_stuck_at",
        "_version",
        "_vhost",
        "_waiters",
        "aliases",
        "is_5",
        "is_plain",
        "max_packet",
        "outbound",
        "progress",
        "put",
    )

    def __init__(
        self, terms: Terms, outbound: Outbound, credit: int, aliases: OutgoingAliases | None
    ) -> None:
        self._output = terms.output
        self._pieces = terms.output.pieces
        self.put = terms.output.put
        self._fail = terms.link.fail
        self._vhost = terms.vhost
        self._client_id = terms.session.client_id
        self._version = terms.version
        self.is_5 = terms.is_5
        self._form = MQTT5 if self.is_5 else MQTT3
        self._keys = KEYS_V5 if self.is_5 else KEYS_V3
        self.max_packet = terms.agreement.max_packet
        self._most_unacknowledged = credit  # messages, sent or pending
        self._counters = terms.counters
        self._has_dropped = False  # messages that were too large, and the log says so
        self._has_withheld = (
            False  # messages that the user may not read any more, and the log says so
        )
        self._clock = terms.clock
        self._live: Consumer | None = None
        self._is_blocked = False
        self._stuck_at = -1
        self._waiters: list[asyncio.Future[None]] = []
        self.progress = 0  # times that the live queue went on after it was held back
        self._settled: list[Delivery] = []  # deliveries accepted in this chunk
        # Flights of this chunk, and the records to be written down about each.
        self._recorded: list[tuple[Flight, tuple[PacketRecord, ...]]] = []
        self._commits: dict[int, list[Flight]] = {}
        self._next_token = 0
        self.outbound = outbound
        self.aliases = aliases
        self.is_plain = aliases is None  # no subscription wants anything but topic, QoS and payload

    def attach(self, live: Consumer) -> None:
        self._live = live
        live.run_sink = self

    # --- the live queue

    def deliver_direct(self, consumer: Consumer, message: Message, options: Any) -> None:
        """Sends a message of the live queue to this one subscriber. Hot: at QoS 0, 0.6 us against
        2.4 us through `_write`."""
        if (
            self.is_plain
            and len(options) == 1
            and options[0].extra is None
            and (message.expires_at is None or not self.is_5)
        ):
            qos = options[0].qos if message.durable else 0
            if qos == 2:
                qos = published_qos(message)
            if qos == 0:
                encoded = message.encoded
                frame: Any = None if encoded is None else encoded.get(self._keys[0])
                if frame is None:
                    frame = frame_0(message, self.is_5, self._vhost.queues)
                if len(frame) <= self.max_packet:
                    out = self._pieces
                    if not out:
                        self._output.wake()
                    out.append(frame)
                    self._counters.messages_sent += 1
                    return
            else:
                outbound = self.outbound
                if len(outbound.in_flight) < outbound.window and not outbound.pending:
                    self._send_live(consumer, message, outbound, qos)
                    return
        self._deliver(consumer, message, options)

    def _send_live(
        self, consumer: Consumer, message: Message, outbound: Outbound, qos: int
    ) -> None:
        """Sends a QoS 1 or 2 message within the window that has nothing special about it. Hot."""
        encoded = message.encoded
        made: Any = None if encoded is None else encoded.get(self._keys[qos])
        if made is None:
            made = halves(message, self.is_5, qos, self._vhost.queues)
        front, back = made
        if len(front) + len(back) + 2 > self.max_packet:
            self._drop_too_large(message)
            return
        packet_id = outbound.take_id()
        in_flight = outbound.in_flight
        in_flight[packet_id] = LIVE_1 if qos == 1 else LIVE_2
        out = self._pieces
        if not out:
            self._output.wake()
        out += (front, packet_id.to_bytes(2, "big"), back)
        self._counters.messages_sent += 1
        if len(in_flight) >= self._most_unacknowledged:
            consumer.pause()

    def run_room(self, form: Form, is_durable: bool, options: tuple[Any, ...]) -> int:
        """Tells how many messages of a run this client takes now as they came: those of its own
        version, to a subscription that asks for nothing special, within the window."""
        if form is not self._form or not self.is_plain or len(options) != 1:
            return 0
        option = options[0]
        if option.extra is not None or (is_durable and not option.qos):
            return 0
        if not is_durable:
            return MAX_ID
        outbound = self.outbound
        return 0 if outbound.pending else outbound.window - len(outbound.in_flight)

    def deliver_run(self, consumer: Consumer, run: Any) -> None:
        """Sends messages as they came, one behind the other, within `run_room`. Hot. At QoS 1 each
        gets an identifier at its mark."""
        out = self._pieces
        if not out:
            self._output.wake()
        marks = run.marks
        self._counters.messages_sent += len(marks)
        if not run.is_durable:
            out.append(run.octets)
            return
        outbound = self.outbound
        in_flight, octets = outbound.in_flight, bytearray(run.octets)
        for mark in marks:
            packet_id = outbound.take_id()
            in_flight[packet_id] = LIVE_1
            octets[mark] = packet_id >> 8
            octets[mark + 1] = packet_id & 0xFF
        out.append(bytes(octets))
        if len(in_flight) >= self._most_unacknowledged:
            consumer.pause()

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Sends the messages that the queue kept while the socket or the window was full."""
        for delivery in deliveries:
            self.deliver_direct(consumer, delivery.message, delivery.entry.options or ())
        self._output.flush_if_large()

    def hold_live(self, is_blocked: bool | None = None) -> None:
        """Lets the live queue wait while the socket or the window is full, and go on when they are
        not. A queue that settles on delivery has no credit to run out of."""
        if is_blocked is not None:
            self._is_blocked = is_blocked
        live, outbound = self._live, self.outbound
        if live is None:
            return
        unacknowledged = len(outbound.in_flight) + len(outbound.pending)
        if self._is_blocked or unacknowledged >= self._most_unacknowledged:
            live.pause()
        elif live.is_paused:
            self.progress += 1
            live.resume()
            if self._waiters and not self.is_behind:
                for waiter in self._waiters:
                    if not waiter.done():
                        waiter.set_result(None)
                self._waiters.clear()

    @property
    def is_behind(self) -> bool:
        """Tells whether more waits for this client than should, while it does take some: its
        publishers may well slow down. A client that takes nothing at all is not waited for."""
        live = self._live
        if live is None or not live.is_paused or self.progress == self._stuck_at:
            return False
        return live.backlog() > BACKLOG_MESSAGES

    async def catch_up(self) -> None:
        """Returns when this client is not behind any more, or has had its time."""
        progress = self.progress
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=CATCH_UP_SECONDS)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        if not waiter.done() and progress == self.progress:
            self._stuck_at = progress

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Hears that the live queue ended with the session, or that delivering to it failed by a
        bug: then the connection ends, as a client without its queue would wait for ever."""
        if isinstance(reason, DeliveryFailed):
            self._fail(ReasonCode.UNSPECIFIED_ERROR, str(reason))
        elif isinstance(reason, ConsumerStalled):
            self._fail(ReasonCode.QUOTA_EXCEEDED, str(reason))

    def _deliver(self, consumer: Consumer, message: Message, options: Any) -> None:
        plan = plan_of(message, options, self._client_id)
        if plan is None:
            return
        if plan.qos == 0:
            self.send_0(message, plan)
            return
        state = Sent.AWAITS_PUBACK if plan.qos == 1 else Sent.AWAITS_PUBREC
        self.send(Flight(self, state, message, plan))
        self.hold_live()

    # --- sending

    def send_0(self, message: Message, plan: Plan) -> None:
        """Sends a message with QoS 0, and forgets it."""
        self._write(message, plan, 0, False)

    def send(self, flight: Flight) -> None:
        """Sends a QoS 1 or 2 message now, or when the window has room."""
        if self.outbound.has_room:
            self.launch(flight)
        else:
            self.outbound.pending.append(flight)

    def launch(self, flight: Flight) -> None:
        """Sends a flight that the window has room for."""
        outbound = self.outbound
        if flight.state is Sent.AWAITS_CLAIM:
            flight.owner.on_launch(flight)
            return
        message, plan = flight.message, flight.plan
        assert message is not None
        assert isinstance(plan, Plan)
        if flight.packet_id:
            outbound.reserved.pop(flight.packet_id, None)
        else:
            flight.packet_id = outbound.take_id()
        if self._write(message, plan, flight.packet_id, flight.is_dup):
            outbound.in_flight[flight.packet_id] = flight
            flight.message = None  # sent once on a connection; from now on its queue has it
        else:
            flight.owner.on_ended(flight, ReasonCode.PACKET_TOO_LARGE)

    def _write(self, message: Message, plan: Plan, packet_id: int, is_dup: bool) -> bool:
        """Writes a PUBLISH for this client. False: the packet is too large for the client, and
        dropped [MQTT-3.1.2-25]."""
        head = PUBLISH | plan.qos << 1 | plan.retain | (DUP if is_dup else 0)
        name = message.topic if plan.topic is None else plan.topic
        try:
            topic = topic_octets(name)
        except wire.TooLong:  # the key of another protocol, which no topic can hold
            self._drop_too_large(message)
            return False
        properties: bytes | None = None
        if self.is_5:
            alias = b""
            if self.aliases is not None:
                topic, alias = self.aliases.write(name)
            properties = b"".join(
                (
                    expiry_octets(message, self._clock()),
                    property_octets(message, self._vhost.queues),
                    identifier_octets(plan.identifiers),
                    plan.user,
                    alias,
                )
            )
        front, back = special_halves(message, head, topic, properties)
        if len(front) + len(back) + (2 if plan.qos else 0) > self.max_packet:
            if self.aliases is not None:
                self.aliases.take_back(name)
            self._drop_too_large(message)
            return False
        self.put(front + packet_id.to_bytes(2, "big") + back if plan.qos else front + back)
        self._counters.messages_sent += 1
        return True

    def count_sent(self, count: int) -> None:
        self._counters.messages_sent += count

    def _drop_too_large(self, message: Message) -> None:
        self._counters.dropped_too_large += 1
        if not self._has_dropped:
            self._has_dropped = True
            log.warning(
                "a message of %d bytes on '%s' is too large for '%s', which takes packets of %d "
                "(more are counted only)",
                len(message.body),
                message.topic,
                self._client_id,
                self.max_packet,
            )

    def drop_forbidden(self, message: Message) -> None:
        self._counters.dropped_forbidden += 1
        if not self._has_withheld:
            self._has_withheld = True
            log.warning(
                "a message on '%s' waited for '%s', which may not read it any more: dropped (more "
                "are counted only)",
                message.topic,
                self._client_id,
            )

    def commit_first(self, flight: Flight, records: tuple[PacketRecord, ...] = ()) -> None:
        """Commits the records, with what was settled; then the flight goes on as its state says."""
        self._commit((), [flight], records)

    def commit_later(self, flight: Flight, records: tuple[PacketRecord, ...]) -> None:
        """Commits the records at the end of this chunk, with all others of it; then the flight goes
        on as its state says."""
        self._recorded.append((flight, records))

    def _commit(
        self,
        settled: Sequence[Delivery],
        flights: list[Flight],
        records: tuple[PacketRecord, ...],
    ) -> None:
        self._next_token += 1
        self._commits[self._next_token] = flights
        self._vhost.settle(settled, ACCEPTED, self, self._next_token, records)

    def on_committed(self, tokens: list[int]) -> None:
        for token in tokens:
            for flight in self._commits.pop(token):
                if flight.state is Sent.AWAITS_PUBCOMP:
                    self.release(flight)
                elif flight.state is Sent.OVER:
                    self.outbound.reserved.pop(flight.packet_id, None)
                else:
                    flight.owner.on_recorded(flight)
        self.settle()  # settles messages that were too large for this client after all

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        for token in tokens:
            self._commits.pop(token, None)
        self._fail(ReasonCode.SERVER_UNAVAILABLE, f"in-flight state was not stored: {error}")

    def release(self, flight: Flight) -> None:
        """Sends PUBREL [MQTT-4.3.3-4]."""
        self.put(PUBREL_HEAD + flight.packet_id.to_bytes(2, "big"))

    # --- acknowledgements

    def acknowledge(self, packet: PubAck | PubRec | PubComp) -> None:
        """Takes an acknowledgement. Raises MqttError where a packet of that kind cannot be the
        answer [MQTT-4.13.1-1]."""
        held = self.outbound.in_flight.get(packet.packet_id)
        if held is None:
            self._stray(packet)
            return
        state = ACKNOWLEDGED.get((held.state, type(packet)))
        if state is None:
            raise violation(
                f"{type(packet).__name__} for packet identifier {packet.packet_id}, which "
                f"{held.state.name.replace('_', ' ').lower()}"
            )
        if held.owner is NOBODY:
            self._acknowledge_live(state, packet)
            return
        flight = self.outbound.acknowledge(packet)
        assert flight is held
        if isinstance(packet, PubRec):
            flight.owner.on_received(flight, packet.reason)
        else:
            flight.owner.on_ended(flight, packet.reason)

    def _acknowledge_live(self, state: Sent, packet: PubAck | PubRec | PubComp) -> None:
        """Takes the acknowledgement of a shared flight: another shared one takes its place."""
        if state is Sent.OVER or packet.reason >= 0x80:
            del self.outbound.in_flight[packet.packet_id]
        else:
            self.outbound.in_flight[packet.packet_id] = LIVE_2_RECEIVED
            self.put(PUBREL_HEAD + packet.packet_id.to_bytes(2, "big"))

    def _stray(self, packet: PubAck | PubRec | PubComp) -> None:
        """Answers an acknowledgement under whose identifier nothing is in flight."""
        self._counters.stray_acknowledgements += 1
        if isinstance(packet, PubRec) and packet.reason < 0x80:
            # It waits for a PUBREL, and would for ever. One that refused the message does not.
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self.put(encode(PubRel(packet.packet_id, reason), self._version))

    def settle_later(self, delivery: Delivery) -> None:
        """Accepts a delivery; its queue is told with the others of this chunk."""
        self._settled.append(delivery)

    def settle(self) -> None:
        settled, self._settled = self._settled, []
        if self._recorded:
            recorded, self._recorded = self._recorded, []
            records = tuple(record for _, each in recorded for record in each)
            self._commit(settled, [flight for flight, _ in recorded], records)
        elif settled:
            self._vhost.settle(settled)

    def end_of_chunk(self) -> None:
        """Gives back credit and sends what waited, once everything that one read brought is
        handled."""
        self.settle()
        while (flight := self.outbound.next_pending()) is not None:
            if self._is_too_late(flight):
                flight.owner.on_expired(flight)
            else:
                self.launch(flight)
            self.settle()
        if self._live is not None and self._live.is_paused:
            self.hold_live()

    def _is_too_late(self, flight: Flight) -> bool:
        """Tells whether a message's life was over before the window had room for it [MQTT-3.3.2-5].
        One that may have been sent before is sent to its end."""
        delivery, message = flight.delivery, flight.message
        if delivery is not None:
            expires_at = delivery.entry.expires_at
        else:
            expires_at = None if message is None else message.expires_at
        return expires_at is not None and not flight.is_dup and expires_at <= self._clock()

    # --- flights of the live queue: nothing of them outlives the connection

    def on_received(self, flight: Flight, reason: int) -> None:
        if flight.state is not Sent.OVER:
            self.release(flight)

    def on_ended(self, flight: Flight, reason: int) -> None:
        """Does nothing: `end_of_chunk` looks whether the live queue may go on."""

    def on_expired(self, flight: Flight) -> None:
        self._vhost.counters.dropped_expired += 1

    def on_launch(self, flight: Flight) -> None:
        """Is never called: flights of the live queue are this client's own, and await no claim."""

    def on_recorded(self, flight: Flight) -> None:
        """Is never called: nothing of a flight of the live queue is written down."""
