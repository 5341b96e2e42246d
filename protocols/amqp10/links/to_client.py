"""Links that take from a queue: a consumer for each, its credit that of the link.

The hot half of delivering works on whole lists and builds nothing that nobody keeps. What the
receiver says of a delivery comes back through `client`, by the delivery's handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocols.amqp10.addressing.filters import ORIGINS
from protocols.amqp10.addressing.nodes import Supply
from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import SECOND, Attach
from protocols.amqp10.errors import (
    INTERNAL_ERROR,
    RESOURCE_DELETED,
)
from protocols.amqp10.links.sending_link import SendingLink
from protocols.amqp10.wire.delivery_sections import header_of, whole
from queue_core.delivery.consumer import UNLIMITED_CREDIT, Consumer, Delivery
from queue_core.errors import CoreError, DeliveryFailed
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, RELEASED, Outcome, Verdict

if TYPE_CHECKING:
    from protocols.amqp10.client import Client

UNBOUNDED_SIZE: Final = 1 << 62
MAX_WAITING_BYTES: Final = 1 << 20  # in the engine, for a session whose window is closed


class NoSink:
    """The sink of a consumer whose link is about to be made. The consumer has no credit until
    then, so nothing is delivered."""

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Does nothing: a consumer without credit is given nothing."""

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        """Does nothing: a consumer without credit is given nothing."""

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Does nothing: the consumer is closed, and `attach` sees that."""


NO_SINK: Final = NoSink()


class OutgoingLink(SendingLink):
    """A link that takes messages from a queue for its receiver. Implements the core's `Sink`."""

    def __init__(
        self,
        client: Client,
        asked: Attach,
        supply: Supply,
        consumer: Consumer,
        test: Callable[[Message], bool] | None,
        *,
        is_stream: bool,
        default: Verdict | None = None,
    ) -> None:
        super().__init__(client, asked, supply, test)
        self.settles = consumer.auto_settle  # sent settled: at most once
        self.is_second = asked.receiver_mode == SECOND
        self.consumer = consumer
        consumer.sink = self
        self.default = default  # of what it settles without an outcome, or leaves behind
        self.no_local = False
        # a larger message is looked at twice
        self._large = min(self._max_size or UNBOUNDED_SIZE, self._frame or UNBOUNDED_SIZE)
        self._is_stream = is_stream
        self._is_capped = False
        self._is_draining = False
        self.is_stalled = False

    # --- credit

    def on_flow(self) -> None:
        """Takes the receiver's credit, and drains if it asks for that."""
        self.sync_credit()
        if engine.is_draining(self.handle) and not self._is_draining:
            self._is_draining = True
            self.consumer.drain(self._on_drained)

    def sync_credit(self) -> None:
        """Tells the core the credit, which the engine knows, up to the core's own bound."""
        if not self.is_open:
            return
        consumer = self.consumer
        credit = engine.credit_of(self.handle)
        room = UNLIMITED_CREDIT - len(consumer.unsettled)
        self._is_capped = credit > room
        if consumer.credit != min(credit, room):
            consumer.set_credit(min(credit, room))

    def _on_drained(self) -> None:
        self._is_draining = False
        if not self.is_open:
            return
        if not engine.is_draining(self.handle):  # it has thought better of it
            self.sync_credit()
            return
        if self._is_capped and len(self.consumer.unsettled) < UNLIMITED_CREDIT:
            self.on_flow()
            return
        self.consumer.credit = 0
        self._drain()

    # --- deliveries

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        # Measured on 100-byte bodies: see docs/conformance/amqp10.md.
        client, handle, settles = self.client, self.handle, self.settles
        outgoing, send, now = client.outgoing, engine.send, self._clock()
        test, large = self._test, self._large
        is_stream, queues = self._is_stream, self._vhost.queues
        unwanted: list[Delivery] = []
        number = self._next
        for delivery in deliveries:
            message = delivery.message
            if test is not None and not test(message):
                unwanted.append(delivery)
                continue
            header = header_of(message, now, not delivery.redelivered, delivery.failures)
            data = whole(message, header, delivery.offset if is_stream else None, queues)
            if len(data) > large and not self._fits(len(data)):
                self._refuse(delivery, len(data))
                continue
            self._next = number = number + 1
            sent = send(handle, number, data)
            if settles:
                engine.settle(sent)
            else:
                outgoing[sent] = delivery
        client.wake()
        if unwanted:
            self._drop(unwanted)
        if engine.waiting_bytes(self.session) > MAX_WAITING_BYTES:
            client.stall(self)

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        if self._test is not None and not self._test(message):
            return
        header = header_of(message, self._clock(), True, 0)
        data = whole(message, header, None, self._vhost.queues)
        if len(data) > self._large and not self._fits(len(data)):
            self._vhost.counters.dropped_rejected += 1
            return
        consumer.credit -= 1
        self._next = number = self._next + 1
        engine.settle(engine.send(self.handle, number, data))
        self.client.wake()
        if engine.waiting_bytes(self.session) > MAX_WAITING_BYTES:
            self.client.stall(self)

    def _fits(self, size: int) -> bool:
        self.client.echoing.count_frames(self.session)
        return not self._max_size or size <= self._max_size

    def _drop(self, unwanted: list[Delivery]) -> None:
        """Drops messages that a subscription's filter did not let through: they were for nobody
        else."""
        self._vhost.settle([each for each in unwanted if each.is_open], ACCEPTED)
        self.sync_credit()

    def _refuse(self, delivery: Delivery, size: int) -> None:
        reason = f"{size} bytes are more than the receiver's max-message-size of {self._max_size}"
        if delivery.is_open:
            self._vhost.settle([delivery], Verdict(Outcome.REJECTED, reason=reason))
        self.sync_credit()

    def on_settled(self) -> None:
        if self._is_capped:
            self.sync_credit()

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        """Ends the link: the queue is gone, or the gateway has a bug."""
        if self.is_open:
            is_ours = isinstance(reason, DeliveryFailed)
            condition = INTERNAL_ERROR if is_ours else RESOURCE_DELETED
            self.client.fail_link(self.handle, condition, str(reason))

    # --- the socket

    def pause(self) -> None:
        self.consumer.pause()

    def resume(self) -> None:
        if self.is_open and not self.is_stalled and not self.client.is_blocked:
            self.consumer.resume()

    def close(self, *, is_lost: bool, is_closed: bool = True) -> None:
        """Ends the link. The receiver's messages come back, counted as failed if its connection was
        lost."""
        if not self.is_open:
            return
        self.is_open = False
        if self.no_local:
            ORIGINS.askers -= 1
        outgoing = self.client.outgoing
        for sent in [h for h, d in outgoing.items() if d.consumer is self.consumer]:
            del outgoing[sent]
        consumer, verdict = self.consumer, self.default or (FAILED if is_lost else RELEASED)
        held = set(self.client.coordinator.held(consumer))
        if not held:
            self._vhost.end_consumer(consumer, verdict)
            return
        self._vhost.end_consumer(consumer, None)
        rest = [each for each in consumer.unsettled.values() if each not in held]
        self._vhost.settle(rest, verdict)
