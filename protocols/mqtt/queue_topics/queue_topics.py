"""Queue topics: publish into a queue, compete on it, settle by PUBACK or by settle topics.

Receive Maximum is the prefetch: all consumers of a connection share one window. This module decides
what an acknowledgement means for the queue; the rules of the queue are the core's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from protocols.mqtt.conversion.properties import PublishFacts
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.publish.known_topics import KnownTopic
from protocols.mqtt.queue_topics.addresses import (
    COMMIT,
    SETTLES,
    QueueAddress,
    is_number,
    parse_message_id,
    parse_position,
    parse_queue_address,
)
from protocols.mqtt.queue_topics.sink import QueueSink
from protocols.mqtt.wire.packets import Publish
from queue_core.access.auth import Action, Resource
from queue_core.delivery.consumer import Consumer, ConsumerSpec, SharedCredit
from queue_core.errors import CoreError, InvalidArgument, NotSupported, SessionNotFound
from queue_core.outcomes import FAILED, RELEASED, Verdict
from queue_core.queues.spec import QueueSpec
from queue_core.routing.topics import filter_tokens
from queue_core.sessions.subscription import Subscription

if TYPE_CHECKING:
    from protocols.mqtt.negotiated_terms import Terms
    from protocols.mqtt.publish.acknowledgements import Inbound
    from protocols.mqtt.publish.publishing import Publishing
    from queue_core.queues.queue import Queue

log = logging.getLogger(__name__)

LONGEST_DELAY_SECONDS: Final = 30 * 86_400.0


class QueueConsumer(NamedTuple):
    """One `$queue/...` subscription that competes on its queue."""

    sink: QueueSink
    consumer: Consumer


class QueueTopics:
    __slots__ = (
        "_auth",
        "_clock",
        "_consumers",
        "_counters",
        "_credit",
        "_defer",
        "_deliverer",
        "_identity",
        "_is_closed",
        "_joining",
        "_origin",
        "_session",
        "_shared",
        "_vhost",
    )

    def __init__(
        self, terms: Terms, deliverer: Deliverer, shared: SharedCredit, credit: int
    ) -> None:
        self._session = terms.session
        self._vhost = terms.vhost
        self._identity = terms.identity
        self._auth = terms.auth
        self._deliverer = deliverer
        self._shared = shared  # the window of all consumers of the connection
        self._credit = credit
        self._origin = terms.origin
        self._counters = terms.counters
        self._defer = terms.link.defer
        self._clock = terms.clock
        self._consumers: dict[str, QueueConsumer] = {}  # by the subscription's address
        self._joining: dict[str, QueueConsumer] = {}  # a SUBSCRIBE under way asks for them
        self._is_closed = False

    def _require(self, action: Action, name: str) -> None:
        self._auth.require(self._identity, action, Resource("queue", self._vhost.name, name))

    def consumers(self) -> list[Consumer]:
        """Lists the consumers of queues that the client subscribed to by name."""
        return [consumer for _, consumer in self._consumers.values()]

    # --- publishing

    def publish(
        self, packet: Publish, topic: str, facts: PublishFacts, publishing: Publishing
    ) -> None:
        """Puts a message into the queue that its topic names, or settles the one it speaks of.
        Raises CoreError."""
        address = parse_queue_address(topic)
        if address.is_command:
            self._command(packet, address, facts, publishing.inbound)
            return
        self._require(Action.WRITE, address.name)
        queue = self._vhost.queues.get(address.name)
        if queue is None:
            self._require(Action.CONFIGURE, address.name)
            self._defer(self._publish_first(packet, topic, facts, publishing))
        else:
            # Anybody may publish into an exclusive queue: it is its owner's to consume, and where
            # the owner waits for answers.
            publishing.enqueue_packet(packet, address.routing_key, facts, queue)
            publishing.remember(KnownTopic(topic, queue, address.routing_key))

    async def _publish_first(
        self, packet: Publish, topic: str, facts: PublishFacts, publishing: Publishing
    ) -> None:
        """Makes the queue on first use, and puts the message into it."""
        address = parse_queue_address(topic)
        try:
            queue = await self._declare(address.name)
            publishing.enqueue_packet(packet, address.routing_key, facts, queue)
        except CoreError as error:
            publishing.refuse(packet, topic, error)

    async def _declare(self, name: str) -> Queue:
        return await self._vhost.declare_queue(
            QueueSpec.parse(name), created_by=self._identity.name
        )

    # --- settling by publishing

    def _command(
        self, packet: Publish, address: QueueAddress, facts: PublishFacts, inbound: Inbound
    ) -> None:
        said = dict(reversed(facts.user))
        try:
            if address.rest == COMMIT:
                self._commit(address.name, said)
            else:
                self._settle(address, said)
        except CoreError:
            self._counters.bad_settlements += 1
            raise
        if packet.qos:
            inbound.answer(packet.qos, packet.packet_id)
            if packet.qos == 2:
                self._session.remember(False, packet.packet_id, 1)

    def _settle(self, address: QueueAddress, said: Mapping[str, str]) -> None:
        self._require(Action.READ, address.name)
        message_id = said.get("message-id")
        if message_id is None:
            raise InvalidArgument(f"{address.rest} needs the user property message-id")
        offset = parse_message_id(message_id, address.name)
        group = said.get("group-id")
        verdict = Verdict(SETTLES[address.rest], _delay(said), said.get("reason"))
        for sink, _ in self._consumers.values():
            if sink.name == address.name and group in (None, sink.group):
                delivery = sink.take(offset)
                if delivery is not None:
                    self._vhost.settle((delivery,), verdict)
                    return
        raise InvalidArgument(
            f"message '{message_id}' is not in the hands of this connection; it was settled, or "
            "its subscription has no user property ack=manual"
        )

    def _commit(self, name: str, said: Mapping[str, str]) -> None:
        self._require(Action.READ, name)
        queue = self._vhost.queue(name)
        if not queue.is_stream:
            raise NotSupported(f"queue '{name}' is no stream: settle with $ack instead")
        group = said.get("group-id") or said.get("consumer-group")
        offset = said.get("offset")
        if offset is None and "message-id" in said:
            offset = str(parse_message_id(said["message-id"], name))
        if group is None or offset is None or not is_number(offset):
            raise InvalidArgument(
                "$commit needs the user properties group-id, and offset or message-id"
            )
        queue.commit_cursor(group, int(offset))

    # --- consuming

    def parse(
        self, topic_filter: str, qos: int, identifier: int | None, user: Mapping[str, str]
    ) -> Subscription:
        """Reads what a SUBSCRIBE asks for. Raises CoreError."""
        address = parse_queue_address(topic_filter)
        if address.is_command:
            raise InvalidArgument(f"'{topic_filter}' is for publishing: it settles messages")
        if address.rest:
            filter_tokens(address.rest)
        self._require(Action.READ, address.name)
        if user.get("ack", "auto") not in ("auto", "manual"):
            raise InvalidArgument(f"ack={user['ack'][:20]} is unknown; use auto or manual")
        if "offset" in user:
            parse_position(user["offset"])
        wishes = {key: user[key] for key in ("ack", "offset", "consumer-group") if key in user}
        return Subscription(
            topic_filter,
            qos,
            identifier=identifier,
            queue=address.name,
            extra=dict(wishes) or None,
        )

    async def provide(self, subscription: Subscription) -> None:
        """Makes sure that the queue is there, and can be consumed as asked. Raises CoreError."""
        name = subscription.queue or ""
        queue = self._vhost.queues.get(name)
        if queue is None:
            self._require(Action.CONFIGURE, name)
            queue = await self._declare(name)
        wishes = subscription.extra or {}
        is_stream = queue.is_stream
        if subscription.qos == 0 and not is_stream:
            raise NotSupported(
                f"queue '{name}' is {queue.spec.kind}: subscribe with QoS 1 or 2, so that messages "
                "are settled by their PUBACK"
            )
        if not is_stream and ("offset" in wishes or "consumer-group" in wishes):
            raise NotSupported(f"queue '{name}' is no stream: it has no positions and no groups")

    async def consume(self, subscription: Subscription) -> None:
        """Joins the competition; deliveries begin with the consumer's `wake`. Raises CoreError."""
        await self.line_up(subscription)
        self.step_in()

    async def line_up(self, subscription: Subscription) -> None:
        """Prepares a consumer that takes nothing yet: the client's earlier one under the same
        address goes on until `step_in`, or for good after `stand_back` [MQTT-3.8.4-3]. Raises
        CoreError: the queue is in somebody's exclusive use, or has no such place or group."""
        address = subscription.address
        name = subscription.queue or ""
        wishes = subscription.extra or {}
        sink = QueueSink(self._deliverer, self._session, subscription, self._on_lost)
        offset = wishes.get("offset")
        spec = ConsumerSpec(
            tag=address,
            credit=self._credit,
            auto_settle=subscription.qos == 0,
            group=wishes.get("consumer-group"),
            start=None if offset is None else parse_position(offset),
            shared=self._shared,
            accepts=sink.accepts,
            origin=self._origin,
            arguments=wishes,
        )
        consumer = await self._vhost.consume(name, sink, spec)
        if self._is_closed:  # the connection ended meanwhile, and nobody would end the consumer
            self._vhost.end_consumer(consumer, RELEASED)
            raise SessionNotFound(f"the connection of '{self._session.client_id}' is over")
        self._end(self._joining.pop(address, None), RELEASED)  # one packet asked twice
        self._joining[address] = QueueConsumer(sink, consumer)

    def step_in(self) -> None:
        """Puts all consumers that are lined up into the places of those before them."""
        joining, self._joining = self._joining, {}
        for address, joined in joining.items():
            self.cancel(address, is_clean=True)
            self._consumers[address] = joined

    def stand_back(self) -> None:
        """Undoes a SUBSCRIBE that was not stored: the session keeps its earlier consumers."""
        joining, self._joining = self._joining, {}
        for each in joining.values():
            self._end(each, RELEASED)

    def _on_lost(self, sink: QueueSink, reason: CoreError) -> None:
        """Counts a subscription whose queue was deleted: MQTT has no packet to tell its client."""
        for consumers in (self._consumers, self._joining):
            found = consumers.get(sink.address)
            if found is not None and found.sink is sink:
                del consumers[sink.address]
        self._counters.lost_subscriptions += 1
        log.warning(
            "subscription '%s' of '%s' is over: %s", sink.address, self._session.client_id, reason
        )

    def wake(self, address: str) -> None:
        """Begins the deliveries of one subscription."""
        found = self._consumers.get(address)
        if found is not None:
            found.consumer.wake()

    def cancel(self, address: str, *, is_clean: bool) -> None:
        """Ends one subscription; what its client has goes back to the queue."""
        self._end(self._consumers.pop(address, None), RELEASED if is_clean else FAILED)

    def _end(self, ended: QueueConsumer | None, verdict: Verdict) -> None:
        if ended is not None:
            self._vhost.end_consumer(ended.consumer, verdict)

    def close(self, *, is_clean: bool) -> None:
        """Ends all subscriptions with the connection."""
        self._is_closed = True
        self.stand_back()
        for address in list(self._consumers):
            self.cancel(address, is_clean=is_clean)

    def pause(self) -> None:
        """Stops deliveries while the client's socket is full."""
        for _, consumer in self._consumers.values():
            consumer.pause()

    def resume(self) -> None:
        """Goes on with deliveries when the client's socket has room again."""
        for _, consumer in list(self._consumers.values()):
            consumer.resume()


def _delay(said: Mapping[str, str]) -> float:
    text = said.get("delay", "0")
    try:
        delay = float(text)
    except ValueError:
        delay = -1.0
    if not 0 <= delay <= LONGEST_DELAY_SECONDS:
        raise InvalidArgument(f"delay '{text[:20]}' is no number of seconds from 0 to 30 days")
    return delay
