"""One AMQP 0.9.1 channel: its consumers, its unacked deliveries, its confirms or transaction.

Owns no socket. What its methods do beyond that is in `publishing`, `consuming` and `definitions`,
which work on this state; which of them is called when, `machine` decides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from protocols.amqp091.errors import Amqp091Error, ReplyCode, reply_text
from protocols.amqp091.publish.confirms import Confirms
from protocols.amqp091.states import ChannelState
from protocols.amqp091.wire.frames import FRAME_OVERHEAD_BYTES
from protocols.amqp091.wire.methods import ChannelClose, Method
from queue_core.delivery.consumer import UNLIMITED_CREDIT, Consumer, Delivery, SharedCredit
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import Verdict
from queue_core.transaction import Transaction

if TYPE_CHECKING:
    from protocols.amqp091.negotiated_terms import Terms
    from protocols.amqp091.publish.partial_messages import Arrival
    from protocols.amqp091.publish.publishing import Target
    from protocols.amqp091.wire.content import Facts

log = logging.getLogger(__name__)


class Work:
    """A transaction under way: what tx.select began and tx.commit or tx.rollback ends."""

    __slots__ = ("acked", "mandatory", "size", "timed", "transaction", "unroutable")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.size = 0  # bytes held until the end
        self.acked: list[tuple[int, Delivery]] = []  # a rollback gives them back to the client
        # Mandatory: they are returned at commit if no queue takes them then.
        self.mandatory: list[tuple[Message, Target]] = []
        self.unroutable: list[Message] = []  # of these, those that no queue was bound for
        self.timed: list[tuple[Message, Facts]] = []  # with times that begin at commit


class Channel:
    """Implements the core's `Publisher`: tokens are the numbers of its confirms."""

    __slots__ = (
        "arrival",
        "clock",
        "confirms",
        "consumers",
        "delivered",
        "delivery_tag",
        "empty_gets",
        "got",
        "got_settled",
        "is_confirming",
        "is_flowing",
        "largest_body",
        "last_queue",
        "number",
        "output",
        "prefetch",
        "published",
        "rejected",
        "reply_queue",
        "returned",
        "shared",
        "shared_limit",
        "state",
        "terms",
        "unacked",
        "unroutable",
        "user",
        "vhost",
        "work",
    )

    def __init__(self, number: int, terms: Terms) -> None:
        self.number = number
        self.terms = terms
        self.vhost = terms.vhost
        self.user = terms.identity.name
        self.output = terms.output
        self.clock = terms.clock
        self.largest_body = terms.tuning.frame_max - FRAME_OVERHEAD_BYTES  # in one frame
        self.state = ChannelState.OPEN
        self.arrival: Arrival | None = None  # a publish whose content is still coming
        self.confirms: Confirms | None = None
        self.is_confirming = False  # stands in the output's list of those with confirms to tell
        self.work: Work | None = None
        self.delivery_tag = 0  # of the last message that it was delivered, or got
        # Counted for people; see `reports`.
        self.published = 0
        self.returned = 0
        self.unroutable = 0
        self.delivered = 0  # of these, those to acknowledge
        self.got = 0  # likewise
        self.got_settled = 0
        self.empty_gets = 0
        self.rejected = 0  # deliveries that ended without an ack
        self.unacked: dict[int, Delivery] = {}  # in the order of their tags
        self.consumers: dict[str, Consumer] = {}
        self.prefetch = UNLIMITED_CREDIT  # of consumers to come
        self.shared: SharedCredit | None = None
        self.shared_limit = 0  # 0: none
        self.is_flowing = True
        self.last_queue = ""  # what an empty queue name means
        self.reply_queue = ""  # where direct replies to this channel go

    def send(self, method: Method) -> None:
        self.output.send(self.number, method)

    # --- confirms

    def on_committed(self, tokens: list[int]) -> None:
        if self.confirms is not None and self.state is ChannelState.OPEN:
            self.confirms.accept_all(tokens)
            self.tell_confirms()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        log.warning(
            "vhost '%s': %d messages of a publisher were not stored: %s",
            self.vhost.name,
            len(tokens),
            error,
        )
        self.terms.counters.nacked_publishes += len(tokens)
        if self.confirms is not None and self.state is ChannelState.OPEN:
            self.confirms.refuse(tokens)
            self.tell_confirms()

    def tell_confirms(self) -> None:
        """Has confirms sent at the end of the turn, together with those that are still to come in
        it."""
        if not self.is_confirming:
            self.output.confirm(self)
            self.is_confirming = True

    def take_confirms(self) -> bytes:
        self.is_confirming = False
        if self.confirms is None or self.state is not ChannelState.OPEN:
            return b""
        return self.confirms.take(self.number)

    # --- deliveries

    def take_one(self, tag: int) -> Delivery:
        """The delivery with that tag, out of the client's hands."""
        delivery = self.unacked.pop(tag, None)
        if delivery is None:
            raise _unknown_tag(tag)
        return delivery

    def take_unacked(self, tag: int, *, multiple: bool) -> list[Delivery]:
        """Deliveries up to a tag, or the one with it, out of the client's hands."""
        unacked = self.unacked
        if not multiple:
            return [self.take_one(tag)]
        if tag == 0:
            taken = list(unacked.values())
            unacked.clear()
            return taken
        if tag not in unacked:  # as in RabbitMQ, though there may be earlier ones
            raise _unknown_tag(tag)
        tags = []
        for each in unacked:
            if each > tag:
                break
            tags.append(each)
        return [unacked.pop(each) for each in tags]

    def forget(self, consumer_tag: str) -> Consumer | None:
        return self.consumers.pop(consumer_tag, None)

    def pause(self) -> None:
        """The client's socket is full."""
        for consumer in self.consumers.values():
            consumer.pause()

    def resume(self) -> None:
        if self.is_flowing and not self.output.is_blocked:
            for consumer in list(self.consumers.values()):
                consumer.resume()

    # --- the end

    def time_out(self) -> None:
        """A delivery was not acknowledged in time, and has gone back: as in RabbitMQ, that is the
        end of the channel, and not of the connection."""
        if self.state is ChannelState.OPEN:
            self.terms.counters.timed_out_channels += 1
            self.terms.fail_channel(
                self.number, Amqp091Error(ReplyCode.PRECONDITION_FAILED, TIMED_OUT_TEXT)
            )

    def fail(self, error: Amqp091Error, index: int) -> None:
        """Closes the channel with an error; the client has to agree before its number is free."""
        class_id, method_id = divmod(index, 1 << 16)
        self._tell_rest()
        self.state = ChannelState.CLOSING
        text = reply_text(error.code, error.text)
        self.send(ChannelClose(error.code, text, class_id, method_id))

    def close(self) -> None:
        """The client closes it: what is known of its publishes is told first."""
        self._tell_rest()
        self.state = ChannelState.CLOSED

    def _tell_rest(self) -> None:
        if self.confirms is not None and (rest := self.confirms.take(self.number)):
            self.output.write(rest)

    def release(self, verdict: Verdict) -> None:
        """Everything that it held goes back."""
        self.pause()  # what one consumer gives back is not for another that is about to end
        self.rejected += len(self.unacked) + (0 if self.work is None else len(self.work.acked))
        if self.state is ChannelState.OPEN:
            self.state = ChannelState.CLOSED
        self.arrival = None
        if self.work is not None:
            self.terms.transactions.remove(self.work.size)
            self.work.transaction.rollback()
            self.unacked.update(self.work.acked)
            self.work = None
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            self.vhost.end_consumer(consumer, verdict)
        # those of basic.get, and of consumers that were cancelled
        rest = [delivery for delivery in self.unacked.values() if delivery.is_open]
        self.unacked.clear()
        if rest:
            self.vhost.settle(rest, verdict)


def _unknown_tag(tag: int) -> Amqp091Error:
    return Amqp091Error(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")


TIMED_OUT_TEXT: Final = (
    "delivery acknowledgement timed out: acknowledge sooner, or declare the queue with a longer "
    "x-consumer-timeout"
)
MODE_ERROR_TEXT: Final = "cannot switch from {} to {} mode: open another channel"
