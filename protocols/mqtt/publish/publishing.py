"""Messages from the client: checked, turned into the core's, published, and answered.

Nothing is acknowledged here before the core says that it is safe. `queue_topics` tells what a
publish to a queue topic means, `run_publishing` how messages that came in a row are published.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from protocols.mqtt.conversion.properties import (
    FACTS,
    MQTT3,
    MQTT5,
    QUEUE_PREFIX,
    PublishFacts,
    is_text,
    native_of,
)
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.publish.acknowledgements import PUBCOMP_HEAD, Inbound, Received
from protocols.mqtt.publish.fan_out import WIDE_SUBSCRIBERS, Lane
from protocols.mqtt.publish.known_topics import KnownTopic
from protocols.mqtt.publish.topic_aliases import IncomingAliases
from protocols.mqtt.queue_topics.queue_topics import QueueTopics
from protocols.mqtt.wire.packets import Publish, PubRel
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, publish_refusal, reason_of
from queue_core.access.auth import Action, Identity, Resource
from queue_core.errors import AccessRefused, CoreError, InvalidArgument, QueueFull
from queue_core.message.message import TOPIC_EXCHANGE, Message
from queue_core.message.topic_forms import dotted
from queue_core.outcomes import ACCEPTED, Published
from queue_core.routing.route import MAX_KEPT_KEY_CHARACTERS, Match
from queue_core.routing.topics import levels_of

if TYPE_CHECKING:
    from protocols.mqtt.negotiated_terms import Terms
    from queue_core.commit.unit import Record
    from queue_core.queues.queue import Queue
    from queue_core.routing.route import Route
    from queue_core.sessions.session import Session

log = logging.getLogger(__name__)

MOST_LOOKED_AT_QUEUES: Final = 32  # in the search for a subscriber that is behind
LOGGED_TOPIC_CHARACTERS: Final = 80
RESERVED_PREFIXES: Final = ("$SYS/", "$share/", "$session/", "$live/")


def check_claims(facts: PublishFacts, identity: Identity) -> None:
    """Checks that a message names its own user as its publisher, or nobody: consumers over AMQP
    read it as a user-id, which is proven there. Raises AccessRefused."""
    for name in facts.claimed_users:
        if not identity.may_speak_for(name):
            raise AccessRefused(
                f"the user property user-id is '{name[:LOGGED_TOPIC_CHARACTERS]}' but the "
                f"authenticated user is '{identity.name}'; leave it out"
            )


class Publishing:
    __slots__ = (
        "_acknowledged",
        "_aliases",
        "_auth",
        "_clock",
        "_counters",
        "_fail",
        "_fan_out",
        "_has_complained",
        "_identity",
        "_last",
        "_put",
        "_queue_topics",
        "_releases",
        "_retained",
        "_revision",
        "_settings",
        "client_id",
        "form",
        "inbound",
        "is_5",
        "is_async",
        "is_tired",
        "lane",
        "max_qos",
        "pressed",
        "publish_to",
        "session",
        "topics",
        "vhost",
    )

    def __init__(self, terms: Terms, inbound: Inbound, queue_topics: QueueTopics) -> None:
        context, session = terms.context, terms.session
        self._fail = terms.link.fail
        self._put = terms.output.put
        self.session = session
        self.vhost = session.vhost
        self.pressed = session.vhost.pressed  # queues that were found full in this turn
        self.client_id = session.client_id
        self.is_5 = terms.is_5
        self.form = MQTT5 if self.is_5 else MQTT3
        self._identity = terms.identity
        self._auth = terms.auth
        self._retained = context.services.sessions.retained
        self.inbound = inbound
        self._acknowledged = 0  # by the hot path, past `inbound`
        self._queue_topics = queue_topics
        self._fan_out = context.fan_out
        self.lane: Lane | None = None  # for messages handed over later; most need none
        self.is_async = (
            context.fan_out.is_async
        )  # publishes are answered before their fan-out begins
        self.publish_to = session.vhost.publish_to
        if self.is_async:
            self.publish_to = self.wide_lane().publish_to
        self._settings = terms.settings
        self.max_qos = terms.settings.max_qos
        self._counters = terms.counters
        self._clock = terms.clock
        self._aliases = IncomingAliases(terms.settings.topic_alias_maximum)
        # An idle client has 12 KiB: parts that only stored sessions need, only they have.
        self._releases = _Releases(inbound) if session.is_persistent else None
        self._has_complained = False
        self._last: KnownTopic | None = None
        self.is_tired = False  # the hot path stopped for nothing but to look at the time
        self._revision = terms.auth.revision
        # Ordinary topics that this client may publish to, by their bytes. The hot path looks here:
        # a plain dictionary, not a Memo.
        self.topics: dict[bytes, KnownTopic] = {}

    def begin_chunk(self) -> None:
        """Forgets rights that were revoked since the last chunk, and queues that others found
        full."""
        self.pressed.clear()  # others found these full, before this turn
        if self.lane is not None and self.lane.held_by:
            self.pressed += self.lane.held_by
        if self._revision != self._auth.revision:
            self._revision = self._auth.revision
            self.topics.clear()

    # --- PUBLISH

    def on_publish(self, packet: Publish) -> None:
        self._counters.messages_received += 1
        facts = FACTS.of(packet.raw_properties)
        topic = packet.topic
        if facts.alias is not None:
            topic = self._aliases.resolve(facts.alias, topic)
        if packet.qos > self._settings.max_qos:  # [MQTT-3.2.2-11]
            raise MqttError(
                ReasonCode.QOS_NOT_SUPPORTED, f"QoS {self._settings.max_qos} is the most here"
            )
        if packet.retain and not self._settings.retained_messages:  # section 3.2.2.3.5
            raise MqttError(ReasonCode.RETAIN_NOT_SUPPORTED, "nothing is retained here")
        if packet.qos == 2 and packet.packet_id in self.inbound.open:
            self.inbound.repeat(packet.packet_id)
            return
        if packet.qos:
            self.inbound.window.check_room()
        try:
            self._check_text(packet, facts)
            if facts.claimed_users:
                check_claims(facts, self._identity)
            self._publish(packet, topic, facts)
        except CoreError as error:
            self.refuse(packet, topic, error)

    def _check_text(self, packet: Publish, facts: PublishFacts) -> None:
        if facts.is_text and not is_text(packet.payload):
            raise PayloadInvalid("the payload is not the UTF-8 it claims to be")

    def _publish(self, packet: Publish, topic: str, facts: PublishFacts) -> None:
        if topic.startswith(QUEUE_PREFIX):
            self._queue_topics.publish(packet, topic, facts, self)
            return
        self.check_allowed(topic)
        message = self.message(packet, topic, facts)
        records: tuple[Record, ...] = ()
        if packet.retain:
            records = (self._retained.record(self.vhost.name, message, packet.qos),)
        route = self.vhost.router.route_topic(
            topic, lambda: message.properties.header_map(), message.deciding_property
        )
        self.publish_packet(packet, message, route, records)
        self.remember(KnownTopic(topic))

    def message(self, packet: Publish, topic: str, facts: PublishFacts) -> Message:
        return Message(
            packet.payload,
            topic=topic,
            durable=packet.qos > 0,
            form=self.form,
            native=native_of(facts.native, packet.qos, packet.retain),
            priority=facts.priority,
            expires_at=None if facts.expiry is None else self._clock() + facts.expiry,
            publisher=self.client_id,
            retain=packet.retain,
        )

    def enqueue_packet(
        self, packet: Publish, routing_key: str, facts: PublishFacts, queue: Queue
    ) -> None:
        """Publishes into one queue, which a queue topic names. Raises CoreError."""
        message = Message(
            packet.payload,
            "",
            routing_key=routing_key,
            durable=packet.qos > 0,
            form=self.form,
            native=native_of(facts.native, packet.qos, False),
            priority=facts.priority,
            expires_at=None if facts.expiry is None else self._clock() + facts.expiry,
            publisher=self.client_id,
        )
        self.publish_packet(packet, message, (Match(queue, ()),), ())

    def publish_packet(
        self, packet: Publish, message: Message, route: Route[Queue], records: tuple[Record, ...]
    ) -> None:
        """Publishes a message to all queues of the route, and answers when that is safe. Raises
        CoreError."""
        publish_to = self.publish_to
        if len(route) > WIDE_SUBSCRIBERS:
            publish_to = self.wide_lane().publish_to
        qos, packet_id = packet.qos, packet.packet_id
        if qos == 0:
            publish_to(message, route, None, 0, records)
            return
        inbound = self.inbound
        if qos == 2:
            records += self.session.note(False, packet_id, 1)
        outcome = publish_to(message, route, inbound, inbound.next_token, records)
        if outcome is Published.PENDING or outcome is Published.REMEMBERED:
            inbound.expect(qos, packet_id)
            return
        if outcome is Published.REFUSED:
            if qos == 2:
                self.forget(packet_id)
            raise full()
        reason = ReasonCode.SUCCESS
        if outcome is Published.NOWHERE:
            reason = ReasonCode.NO_MATCHING_SUBSCRIBERS
        inbound.answer(qos, packet_id, reason)

    # --- for the hot path

    def wide_lane(self) -> Lane:
        """Returns the lane of messages that are handed over in slices."""
        if self.lane is None:
            self.lane = self._fan_out.lane(self.vhost, self.client_id)
        return self.lane

    def publish_and_answer(
        self, message: Message, known: KnownTopic, packet_id: int, qos: int
    ) -> None:
        """Publishes a QoS 1 or 2 message, and answers at once or after its commit."""
        inbound = self.inbound
        records = self.session.note(False, packet_id, 1) if qos == 2 else ()
        outcome = self.publish_to(message, known.route, inbound, inbound.next_token, records)
        if outcome is Published.PENDING or outcome is Published.REMEMBERED:
            inbound.expect(qos, packet_id)
        elif outcome is Published.REFUSED:
            if qos == 2:
                self.forget(packet_id)
            self.refuse_full(known, packet_id, qos)
        elif known.route:
            inbound.answer(qos, packet_id)
        else:
            inbound.answer(qos, packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS)

    def refuse_full(self, known: KnownTopic, packet_id: int, qos: int) -> None:
        """Refuses a message as a queue on its route has no room."""
        self.refuse(Publish(known.name, qos=qos, packet_id=packet_id), known.name, full())

    def release_hot(self, packet_id: int, octets: bytes) -> bytes | None:
        """Takes the PUBREL of a message that was received, and returns what is answered now; None:
        it belongs to no such message."""
        opened = self.inbound.open
        if opened.get(packet_id) is not Received.RECEIVED:
            return None
        if self._releases is not None:
            opened[packet_id] = Received.RELEASED
            self._releases.add(packet_id)
            return b""
        del opened[packet_id]
        self.session.forget_packet(False, packet_id)
        return PUBCOMP_HEAD + octets

    def enqueue(self, known: KnownTopic, body: bytes, packet_id: int, native: bytes) -> None:
        """Publishes into the queue that a queue topic names. Hot."""
        message = Message(
            body,
            "",
            routing_key=known.routing_key,
            durable=packet_id != 0,
            form=self.form,
            native=native,
            publisher=self.client_id,
        )
        if packet_id:
            self.publish_and_answer(message, known, packet_id, 1)
        else:
            self.vhost.publish_to(message, known.route, None, 0, ())

    def acknowledge(self, frames: list[bytes]) -> None:
        """Sends the answers that the hot path gives at once, and empties the list."""
        self._acknowledged += len(frames)
        self._put(b"".join(frames))
        frames.clear()

    @property
    def confirmed(self) -> int:
        """Counts the publishes of this connection that were answered."""
        return self._acknowledged + self.inbound.answered

    def count_received(self, count: int, last: KnownTopic | None) -> None:
        self._counters.messages_received += count
        self._last = last

    def laggard(self) -> Deliverer | None:
        """Finds a subscriber of the last published message that is behind. Asked once a chunk, it
        looks at a few of them."""
        last, self._last = self._last, None
        if last is None:
            return None
        for queue, _ in last.route[:MOST_LOOKED_AT_QUEUES]:
            consumer = queue.first_consumer() if queue.is_ephemeral else None
            if consumer is not None:
                sink = consumer.sink
                if isinstance(sink, Deliverer) and sink.is_behind:
                    return sink
        return None

    def forget(self, packet_id: int) -> None:
        """Frees a QoS 2 identifier that was written down with a message that was refused after
        all."""
        records = self.session.note(False, packet_id, 0)
        if records:
            self.vhost.settle((), ACCEPTED, records=records)

    # --- who may publish where

    def check_allowed(self, topic: str) -> None:
        """Checks that the client may publish to the topic. Raises AccessRefused and
        InvalidTopic."""
        if topic.startswith(RESERVED_PREFIXES):
            raise AccessRefused(f"topics under {topic.partition('/')[0]} are the gateway's own")
        levels_of(topic, self._settings.max_topic_levels)
        resource = Resource("topic", self.vhost.name, TOPIC_EXCHANGE, dotted(topic))
        self._auth.require(self._identity, Action.WRITE, resource)

    def remember(self, known: KnownTopic) -> None:
        """Lets the next publish to this topic take the hot path. A long topic is not remembered: a
        thousand of 64 KiB would be more than a connection may hold."""
        if len(known.name) > MAX_KEPT_KEY_CHARACTERS:
            return
        if len(self.topics) >= self._settings.max_topics_remembered:
            self.topics.clear()
        self.topics[known.name.encode()] = known

    @property
    def must_wait(self) -> bool:
        """Tells whether the fan-out has more to do for this publisher than it should be given."""
        return self.lane is not None and self.lane.must_wait

    def refuse(self, packet: Publish, topic: str, error: CoreError) -> None:
        """Refuses a publish in the words of the version. 3.x has none for QoS 1 and 2 but to end
        the connection [MQTT-3.3.5-2]; QoS 0 asks for no answer."""
        self._counters.refused_publishes += 1
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "publish of '%s' to '%s' refused (more are counted only): %s",
                self.client_id,
                topic[:LOGGED_TOPIC_CHARACTERS],
                error,
            )
        if packet.qos == 0:
            return
        if self.is_5:
            reason = publish_refusal(error)
            if isinstance(error, PayloadInvalid):
                reason = ReasonCode.PAYLOAD_FORMAT_INVALID
            self.inbound.reject(packet.qos, packet.packet_id, reason, str(error))
        else:
            self._fail(reason_of(error), str(error))

    # --- PUBREL

    def on_release(self, packet: PubRel) -> None:
        """Ends a QoS 2 message: PUBCOMP leaves when its identifier is free in the store, where a
        session keeps it."""
        if not self.inbound.release(packet.packet_id):
            return
        if self._releases is not None:
            self._releases.add(packet.packet_id)
        else:
            self.session.forget_packet(False, packet.packet_id)
            self.inbound.complete(packet.packet_id)

    def end_of_chunk(self) -> None:
        """Writes down together all QoS 2 messages that ended in the chunk."""
        if self._releases is not None:
            self._releases.commit(self.session)


def full() -> QueueFull:
    return QueueFull("a queue that it goes to is full; consume from it, or raise its limit")


class PayloadInvalid(InvalidArgument):
    """The payload is not the text that its format indicator promises."""


class _Releases:
    """Ends QoS 2 messages of a session that is stored: PUBCOMP leaves when their identifiers are
    free in the store, too. All ends that one chunk brought are one commit."""

    __slots__ = ("_committing", "_inbound", "_released", "_token")

    def __init__(self, inbound: Inbound) -> None:
        self._inbound = inbound
        self._released: list[int] = []
        self._committing: dict[int, list[int]] = {}  # by token
        self._token = 0

    def add(self, packet_id: int) -> None:
        self._released.append(packet_id)

    def commit(self, session: Session) -> None:
        if not self._released:
            return
        released, self._released = self._released, []
        self._token += 1
        self._committing[self._token] = released
        records = [record for each in released for record in session.note(False, each, 0)]
        session.vhost.settle((), ACCEPTED, self, self._token, tuple(records))

    def on_committed(self, tokens: list[int]) -> None:
        for token in tokens:
            for packet_id in self._committing.pop(token):
                self._inbound.complete(packet_id)

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        for token in tokens:
            del self._committing[token]
        self._inbound.refuse(error)
