"""The short way for the packets that come by the hundred thousand, in place in the chunk.

`take_hot` takes acknowledgements without a reason, and PUBLISH without flags to topics that were
published to before. It stops at the first packet that is anything else or in any way odd, and
leaves that to the codec, which knows every rule; a test holds both to the same vectors.

From the chunk to the output of one subscriber, 100-byte payloads, both on the same busy machine:
1.9 us a message at QoS 0 and 3.6 us at QoS 1, against 30 us and 39 us through codec and packets.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from protocols.mqtt.conversion.properties import FACTS, native_of
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.frames import KEYS_V3, KEYS_V5
from protocols.mqtt.deliver.send_window import LIVE_1, LIVE_2, LIVE_2_RECEIVED, Flight, Sent
from protocols.mqtt.publish.acknowledgements import Received
from protocols.mqtt.publish.run_publishing import publish_live_run, publish_queue_run
from protocols.mqtt.wire.reasons import MqttError, ReasonCode
from queue_core.message.message import TOPIC_EXCHANGE, Form, Message
from queue_core.outcomes import Published

if TYPE_CHECKING:
    from protocols.mqtt.publish.known_topics import KnownTopic
    from protocols.mqtt.publish.publishing import Publishing

PUBLISH_0: Final = 0x30
PUBLISH_1: Final = 0x32
PUBLISH_2: Final = 0x34
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
ACK: Final = Struct(">HH")  # kind and length, and the packet identifier
PUBACK_HEAD: Final = PUBACK << 8 | 2
MOST_ACKS: Final = 256  # that are looked at in one piece
AWAITS_PUBACK: Final = Sent.AWAITS_PUBACK
OVER: Final = Sent.OVER
SUCCESS: Final = ReasonCode.SUCCESS
REFUSED: Final = Published.REFUSED
FLAGGED_2: Final = native_of(b"", 2, False)
WORTH_SHARING: Final = 4096  # bytes: of larger packets a second copy costs more than it saves
MOST_WORK: Final = 256  # packets and deliveries, before somebody looks at the time


class PassingMessage(Message):
    """A message that says nothing but topic, payload and properties. Made in 0.5 us, where one that
    may say everything takes 1.2 us."""

    __slots__ = ()
    exchange = TOPIC_EXCHANGE
    priority = None
    expires_at = None
    not_before = None
    deaths = ()
    retain = False

    def __init__(
        self,
        body: bytes,
        topic: str,
        durable: bool,
        form: Form,
        native: bytes,
        publisher: str,
        encoded: dict[object, object] | None,
    ) -> None:
        self.body = body
        self.durable = durable
        self.form = form
        self.native = native
        self.publisher = publisher
        self.encoded = encoded
        self._topic = topic
        self._routing_key = None
        self._properties = None


def take_hot(
    publishing: Publishing, deliverer: Deliverer, data: bytes, position: int, limit: int
) -> int:
    """Handles the packets that it can, and returns where it stopped. One loop without calls but
    those that do the work: that is what makes it worth its length."""
    size = len(data)
    topics = publishing.topics
    publish_to = publishing.publish_to
    is_async, lane = publishing.is_async, publishing.lane
    routes = publishing.vhost.router.topic_routes
    form, client_id, is_5 = publishing.form, publishing.client_id, publishing.is_5
    key_0, key_1, key_2 = KEYS_V5 if is_5 else KEYS_V3
    most = PUBLISH_0 | publishing.max_qos << 1
    inbound = publishing.inbound
    opened, has_room = inbound.open, inbound.window.has_room
    is_stored = publishing.session.is_persistent
    in_flight = deliverer.outbound.in_flight
    received = work = 0
    known: KnownTopic | None = None
    acknowledgements: list[bytes] = []  # of messages that ended in memory
    pressed = publishing.pressed
    while position + 4 <= size and work < MOST_WORK and not pressed:
        head = data[position]
        length = data[position + 1]
        if head == PUBACK:
            until = take_pubacks(data, position, in_flight)
            if until == position:
                break
            work += (until - position) // ACK.size
            position = until
            continue
        if head > PUBACK:
            if length != 2 or head > PUBCOMP:
                break
            octets = data[position + 2 : position + 4]
            answer = _step_2(head, octets, publishing, in_flight)
            if answer is None:
                break
            position += 4
            work += 1
            if answer:
                acknowledgements.append(answer)
            continue
        if head & 1 or head < PUBLISH_0 or head > most:
            break
        start = position + 2
        if length >= 0x80:
            length = length & 0x7F | data[start] << 7
            if not 0 < data[start] < 0x80:
                break  # more than 16 KiB: the payload costs more than the way
            start += 1
        end = start + length
        if end > size or end - position > limit or length < 3:
            break
        at = start + 2 + (data[start] << 8 | data[start + 1])
        known = topics.get(data[start + 2 : at])
        if known is None:
            break
        if known.queue is None:
            route = routes.get(known.name)
            if route is not known.route:
                if route is None:
                    break
                known.look_at(route)
            if known.is_wide:
                lane = publishing.wide_lane()
                publish_to = lane.publish_to
            elif lane is not None and not is_async:
                if lane.is_busy:
                    break  # it would overtake what goes to many
                publish_to = publishing.publish_to
        else:
            route = known.route
            if known.queue.is_deleted:
                break
        packet_id = 0
        topic_end = at
        if head != PUBLISH_0:
            if at + 2 > end or (inbound.answers and not has_room()):
                break
            packet_id = data[at] << 8 | data[at + 1]
            at += 2
            if packet_id == 0 or (head == PUBLISH_2 and (packet_id in opened or not has_room())):
                break
        native = b""
        body_start = at
        if is_5:
            if at >= end:
                break
            until = at + 1 + data[at]
            if until > at + 1:
                if until - at > 0x80 or until > end:
                    break
                try:
                    facts = FACTS.of(data[at + 1 : until])
                except MqttError:
                    break
                if not facts.is_passing:
                    break
                native = facts.native
            at = until
        if at > end:
            break
        if known.queue is not None and head == PUBLISH_2:
            break
        if not known.is_live and acknowledgements:
            publishing.acknowledge(acknowledgements)
        # The next packet begins a run if its topic is the same, behind one byte of length or two.
        # Asked first: of 100 topics in turn, 1.6 us a message against 2.2.
        if (
            not known.is_live
            and len(route) == 1
            and end + 4 <= size
            and data[end] == head
            and head != PUBLISH_2
            and data.find(data[start:topic_end], end + 2, end + 3 + topic_end - start) > 0
        ):
            first = data, position, start, topic_end, end
            run = publish_queue_run(publishing, known, first, limit, at, native)
            if run is not None:
                received += len(run.marks)
                work += len(run.marks)
                position = run.end
                continue
        if known.queue is not None:
            position = end
            received += 1
            work += 1
            publishing.enqueue(known, data[at:end], packet_id, native)
            continue
        if (
            known.is_live
            and end + 4 <= size
            and data[end] == head
            and head != PUBLISH_2
            and not native
            and not inbound.answers
            and data.find(data[start:topic_end], end + 2, end + 3 + topic_end - start) > 0
        ):
            first = data, position, start, topic_end, end
            run = publish_live_run(publishing, known, first, limit)
            if run is not None:
                count = len(run.marks)
                received += count
                work += count if is_async or known.is_wide else count * len(route)
                if packet_id:
                    for mark in run.marks:
                        at = position + mark
                        acknowledgements.append(b"\x40\x02" + data[at : at + 2])
                position = run.end
                continue
        received += 1
        work += 2 if is_async or known.is_wide else 1 + len(route)
        if packet_id == 0:
            # A subscriber of the same version and QoS gets the very bytes that came.
            encoded: dict[object, object] | None = None
            if length < WORTH_SHARING:
                encoded = {key_0: data[position:end]}
            position = end
            message = PassingMessage(
                data[at:end], known.name, False, form, native, client_id, encoded
            )
            publish_to(message, route, None, 0, ())
            continue
        encoded = None
        is_2 = head == PUBLISH_2
        if length < WORTH_SHARING:
            halves = (data[position:topic_end], data[body_start:end])
            encoded = {key_2 if is_2 else key_1: halves}
        position = end
        if is_2:
            native = FLAGGED_2 + native
        message = PassingMessage(data[at:end], known.name, True, form, native, client_id, encoded)
        if known.is_live and route and not inbound.answers and not (is_2 and is_stored):
            if publish_to(message, route, None, 0, ()) is REFUSED:
                if acknowledgements:
                    publishing.acknowledge(acknowledgements)
                publishing.refuse_full(known, packet_id, 2 if is_2 else 1)
                continue
            if is_2:
                opened[packet_id] = Received.RECEIVED
            answer = b"\x50\x02" if is_2 else b"\x40\x02"
            acknowledgements.append(answer + data[topic_end : topic_end + 2])
            continue
        if acknowledgements:
            publishing.acknowledge(acknowledgements)
        publishing.publish_and_answer(message, known, packet_id, 2 if is_2 else 1)
    if acknowledgements:
        publishing.acknowledge(acknowledgements)
    if received:
        publishing.count_received(received, known)
    publishing.is_tired = work >= MOST_WORK
    return position


def take_pubacks(data: bytes, position: int, in_flight: dict[int, Flight]) -> int:
    """Takes acknowledgements without a reason, as many as come in a row, and returns where it
    stopped. Measured in rows of 256, of a queue's messages: 0.4 us each, against 0.75 one by
    one."""
    whole = min(len(data) - position, MOST_ACKS * ACK.size) // ACK.size * ACK.size
    for head, packet_id in ACK.iter_unpack(data[position : position + whole]):
        flight = in_flight.get(packet_id)
        if head != PUBACK_HEAD or flight is None or flight.state is not AWAITS_PUBACK:
            break
        del in_flight[packet_id]
        position += 4
        if flight is not LIVE_1:
            flight.state = OVER
            flight.owner.on_ended(flight, SUCCESS)
    return position


def _step_2(
    head: int, octets: bytes, publishing: Publishing, in_flight: dict[int, Flight]
) -> bytes | None:
    """Takes a step of a QoS 2 exchange after its PUBLISH, and returns what is answered at once;
    None: the packet is out of place, and the codec's to judge."""
    packet_id = octets[0] << 8 | octets[1]
    if head == PUBREL:
        return publishing.release_hot(packet_id, octets)
    flight = in_flight.get(packet_id)
    if flight is None:
        return None
    if head == PUBREC and flight.state is Sent.AWAITS_PUBREC:
        if flight is LIVE_2:
            in_flight[packet_id] = LIVE_2_RECEIVED
            return b"\x62\x02" + octets
        flight.state = Sent.AWAITS_PUBCOMP
        flight.owner.on_received(flight, ReasonCode.SUCCESS)
        return b""
    if head == PUBCOMP and flight.state is Sent.AWAITS_PUBCOMP:
        del in_flight[packet_id]
        if flight is not LIVE_2_RECEIVED:
            flight.state = Sent.OVER
            flight.owner.on_ended(flight, ReasonCode.SUCCESS)
        return b""
    return None
