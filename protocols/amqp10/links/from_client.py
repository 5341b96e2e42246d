"""Links into the gateway: from transfers to routed messages, and what the sender hears of them.

accepted after the commit and not before; released when no queue is bound; rejected, with the queue
and the reason, when one refuses. A sender has credit for as many messages as may be on their way to
the database at once, and gets more as they are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.amqp10.addressing.filters import ORIGINS
from protocols.amqp10.addressing.nodes import Place, publishable, relayed_place
from protocols.amqp10.conversion.properties import FORM
from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import (
    ACCEPTED,
    RELEASED,
    TRANSACTIONAL,
    Handle,
    is_aborted,
    is_partial,
    is_readable,
    is_settled,
)
from protocols.amqp10.errors import (
    INVALID_FIELD,
    RESOURCE_LIMIT,
    TOO_LARGE,
    TRANSFER_LIMIT,
    Amqp10Error,
    answer,
)
from protocols.amqp10.links.dynamic_nodes import Lifetime
from protocols.amqp10.wire.routing_facts import (
    TO,
    annotation_facts,
    check_user,
    expiry_of,
    header_facts,
    malformed,
    property_field,
    without_forgery,
)
from protocols.amqp10.wire.sections import split
from protocols.amqp10.wire.types import Malformed
from protocols.partial_input import add_piece
from queue_core.errors import CoreError
from queue_core.message.memo import Memo
from queue_core.message.message import NO_PROPERTIES, Message
from queue_core.outcomes import Published

if TYPE_CHECKING:
    from protocols.amqp10.client import Client

MAX_PLACES: Final = 1024  # addresses of an anonymous relay that are kept
MAX_PLACE_CHARACTERS: Final = 1024  # of an address that is kept


class IncomingLink:
    """A link on which the client sends. Implements the core's `Publisher`. `place` is None for the
    anonymous relay."""

    sent_count = delivery_count = 0  # nothing is sent on it

    def __init__(self, client: Client, handle: Handle, place: Place | None) -> None:
        self.client = client
        self.handle = handle
        self.place = place
        self.made: tuple[str, Lifetime] | None = None  # the dynamic node that it is the target of
        self._terms = client.terms
        self._vhost = client.terms.vhost
        self._user = client.terms.identity.name
        self._limit = client.terms.settings.max_message_size
        self._window = client.terms.settings.link_credit
        self._chunks: list[bytes] = []
        self._size = 0
        self._next = 0
        self._pending: dict[int, Handle] = {}
        self._places: Memo[str, Place] = Memo(MAX_PLACES)
        self._revision = client.terms.auth.revision
        self._exchange_changes = self._vhost.router.exchange_changes
        self.is_open = True
        # Counted for people.
        self.published = 0
        self.accepted = 0
        self.released = 0  # no queue took them

    @property
    def unanswered(self) -> int:
        """Counts the messages that are on their way to the database."""
        return len(self._pending)

    # --- credit

    def replenish(self) -> None:
        """Grants the sender so much credit that, with what is on its way to the database, it fills
        the window."""
        if not self.is_open:
            return
        credit = engine.credit_of(self.handle)
        if credit < 0:
            self.client.fail_link(
                self.handle, TRANSFER_LIMIT, f"{-credit} transfers more than the credit allowed"
            )
            return
        used = credit + len(self._pending)
        if used <= self._window // 2:
            if self._vhost.writer.is_congested or self.client.memory.is_short:
                self.client.starve(self)
            else:
                engine.grant(self.handle, self._window - used)
                self.client.wake()

    # --- transfers

    def on_delivery(self, delivery: Handle) -> None:
        """Handles a frame of a message, or a disposition of one that we have answered."""
        if not is_readable(delivery):
            return  # the sender settles what we shall answer when it is committed
        if is_aborted(delivery):
            self._forget_chunks()
            engine.settle(delivery)
            return
        data = engine.read(self.handle, delivery)
        if is_partial(delivery) or self._chunks:
            if not self._keep_chunk(data) or is_partial(delivery):
                return
            data = b"".join(self._chunks)
            self._forget_chunks()
        elif len(data) > self._limit:
            self._fail_size()
            return
        engine.advance(self.handle)
        self._receive(delivery, data)

    def _keep_chunk(self, data: bytes) -> bool:
        """Keeps a part of a message. False: it was too much, and the link has ended."""
        client = self.client
        add_piece(self._chunks, data)
        self._size += len(data)
        client.add_partial(len(data))
        if self._size > self._limit:
            self._fail_size()
            return False
        most = max(self._limit, self._terms.settings.max_partial_size)
        if client.partial_bytes > most:
            client.fail_link(
                self.handle,
                RESOURCE_LIMIT,
                f"more than {most} bytes of unfinished messages on one connection; finish some "
                "before beginning others",
            )
            return False
        return True

    def _forget_chunks(self) -> None:
        if self._size:
            self.client.add_partial(-self._size)
        self._chunks.clear()
        self._size = 0

    def _fail_size(self) -> None:
        self.client.fail_link(
            self.handle,
            TOO_LARGE,
            f"a message is larger than max-message-size, which is {self._limit} bytes here; send "
            "less at once, or raise broker.max_message_size",
        )

    def _receive(self, delivery: Handle, data: bytes) -> None:
        try:
            if self._terms.auth.revision != self._revision or (
                self._vhost.router.exchange_changes != self._exchange_changes
            ):
                self._check_again()
            message = self._message(data)
            if engine.remote_state(delivery) == TRANSACTIONAL:
                self.client.coordinator.publish(delivery, message)
                return
            self._publish(delivery, message)
        except Malformed as error:
            self._refuse(delivery, malformed(error))
        except Amqp10Error as error:
            self._refuse(delivery, error)
        except CoreError as error:
            self._refuse(delivery, answer(error))

    def _message(self, data: bytes) -> Message:
        header, native, annotations, properties, body = split(data)
        durable, priority, ttl = header_facts(header)
        place = self.place
        canonical = NO_PROPERTIES
        expires_at = not_before = None
        if native:
            canonical = FORM.properties(native)
            if annotations:
                is_forged, delay, not_before = annotation_facts(annotations)
                if is_forged:
                    native = without_forgery(native, annotations)
                if delay is not None:
                    not_before = self._terms.clock() + delay
            if properties:
                check_user(properties, self._user)
                expires_at = expiry_of(properties)
        if ttl is not None and expires_at is None:
            expires_at = self._terms.clock() + ttl
        if place is None:
            place = self._relayed(properties)
        if ORIGINS.askers:
            native = ORIGINS.mark(native, self.client.origin)
        return Message(  # by place: names would take a fifth longer
            body,
            place.exchange,
            place.key,
            None,
            durable,
            FORM,
            native,
            canonical,
            priority,
            expires_at,
            not_before,
            self._user,
        )

    def _publish(self, delivery: Handle, message: Message) -> None:
        self.published += 1
        if is_settled(delivery):
            engine.settle(delivery)
            self._vhost.publish(message)
            return
        token = self._next = self._next + 1
        outcome = self._vhost.publish(message, self, token)
        if outcome is Published.PENDING or outcome is Published.REMEMBERED:
            self._pending[token] = delivery
        elif outcome is Published.DONE:
            self.accepted += 1
            self._answer(delivery, ACCEPTED)
        elif outcome is Published.NOWHERE:
            self.released += 1
            self._answer(delivery, RELEASED)
        else:
            self.client.counters.rejected_transfers += 1
            engine.reject(delivery, RESOURCE_LIMIT, str(self._vhost.why_refused(message)))
            engine.settle(delivery)

    def _check_again(self) -> None:
        """Checks the sender's rights again: users, permissions or exchanges were changed since this
        link was attached. Raises AccessRefused, and again for the next message."""
        self._places.clear()
        if self.place is not None:
            publishable(self._terms, self.place)
        self._revision = self._terms.auth.revision
        self._exchange_changes = self._vhost.router.exchange_changes

    def _relayed(self, properties: bytes) -> Place:
        to = property_field(properties, TO)
        if not isinstance(to, str):
            raise Amqp10Error(
                INVALID_FIELD, "a message on the anonymous relay needs an address in its 'to'"
            )
        place = self._places.get(to)
        if place is None or (not place.exchange and place.key not in self._vhost.queues):
            place = relayed_place(self._terms, str(to))
            if len(to) <= MAX_PLACE_CHARACTERS:
                self._places.keep(to, place)
        elif place.exchange and to in self._vhost.queues:
            place = self._places[to] = relayed_place(self._terms, str(to))
        return place

    # --- answers

    def on_committed(self, tokens: list[int]) -> None:
        if not self.is_open:
            return
        pending = self._pending
        update, settle = engine.update, engine.settle
        for token in tokens:
            delivery = pending.pop(token)
            update(delivery, ACCEPTED)
            settle(delivery)
        self.accepted += len(tokens)
        self.client.wake()
        self.replenish()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        if not self.is_open:
            return
        for token in tokens:
            self._refuse(self._pending.pop(token), answer(error))
        self.replenish()

    def _answer(self, delivery: Handle, outcome: int) -> None:
        engine.update(delivery, outcome)
        engine.settle(delivery)

    def _refuse(self, delivery: Handle, error: Amqp10Error) -> None:
        if is_settled(delivery):  # nobody listens: say it where somebody looks
            self.client.count_dropped(error)
            if engine.remote_state(delivery) == TRANSACTIONAL:
                self.client.coordinator.doom(delivery, error.text)
            engine.settle(delivery)
            return
        self.client.counters.rejected_transfers += 1
        engine.reject(delivery, error.condition, error.text)
        engine.settle(delivery)
        self.client.wake()

    def close(self, *, is_lost: bool, is_closed: bool = True) -> None:
        """Ends the link: nothing more comes, and its sender is not told of anything any more."""
        self.is_open = False
        self._pending.clear()
        self._forget_chunks()
