"""Messages that do not come in one piece: a publish, its content header, its body frame by frame.

Bounded: the header says how long the body is before any of it is kept, and a connection may have
only so much half published. Room for the whole body is reserved when its header has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.amqp091.consume.deliveries import BASIC_CLASS, CONTENT
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.content import facts_of
from protocols.amqp091.wire.frames import HEADER
from protocols.partial_input import add_piece

if TYPE_CHECKING:
    from protocols.amqp091.channel import Channel
    from protocols.amqp091.publish.publishing import Target


class Arrival:
    """A publish whose content is still coming in."""

    __slots__ = ("chunks", "length", "missing", "native", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.native: bytes | None = None  # until the content header comes
        self.length = 0  # bytes of the body
        self.missing = 0  # of these, those that have not come
        self.chunks: list[bytes] = []

    def is_complete(self) -> bool:
        return self.native is not None and not self.missing


class Arrivals:
    """The messages of one connection that have come in part, counted together."""

    __slots__ = ("_limit", "_longest", "declared", "size")

    def __init__(self, settings: Settings) -> None:
        self._longest = settings.max_message_size
        self._limit = settings.max_partial_size
        self.declared = 0  # bytes that the bodies will have which are not complete
        self.size = 0  # of these, those that have come

    def take(self, arrival: Arrival | None, kind: int, payload: bytes) -> Arrival:
        """Takes one more frame of content. Raises Amqp091Error where it is not due, or too
        large."""
        if arrival is None or (kind == HEADER) is (arrival.native is not None):
            what = "content header" if kind == HEADER else "content body"
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"a {what} where none was expected")
        if kind == HEADER:
            self._take_header(arrival, payload)
        else:
            self._take_body(arrival, payload)
        return arrival

    def _take_header(self, arrival: Arrival, payload: bytes) -> None:
        if len(payload) < CONTENT.size + 2:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, "a content header that ends too early")
        class_id, weight, length = CONTENT.unpack_from(payload)
        if class_id != BASIC_CLASS:
            raise Amqp091Error(
                ReplyCode.UNEXPECTED_FRAME, f"a content header of class {class_id} instead of 60"
            )
        if weight:
            raise Amqp091Error(
                ReplyCode.UNEXPECTED_FRAME, f"a content header with the weight {weight}: it is 0"
            )
        if length > self._longest:
            raise Amqp091Error(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {length} is larger than the configured maximum {self._longest}",
            )
        arrival.native = payload[CONTENT.size :]
        facts_of(arrival.native)  # what is wrong with it is better said before the body comes
        arrival.length = arrival.missing = length
        self.declared += length

    def _take_body(self, arrival: Arrival, payload: bytes) -> None:
        if len(payload) > arrival.missing:
            raise Amqp091Error(
                ReplyCode.UNEXPECTED_FRAME, "more content than the header has announced"
            )
        if self.size + len(payload) > self._limit:
            raise Amqp091Error(
                ReplyCode.RESOURCE_ERROR,
                f"messages of more than {self._limit} bytes are half published on this "
                "connection; finish one before the next, or raise amqp091.max_partial_size",
            )
        self.size += len(payload)
        add_piece(arrival.chunks, payload)
        arrival.missing -= len(payload)

    def end(self, channel: Channel) -> None:
        """Counts a channel's message out: it is complete, or will never be."""
        if channel.arrival is not None:
            arrival, channel.arrival = channel.arrival, None
            self.size -= arrival.length - arrival.missing
            self.declared -= arrival.length
