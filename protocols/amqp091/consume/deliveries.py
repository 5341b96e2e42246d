"""Messages on their way out: basic.deliver, basic.return and basic.get-ok with their content.

What the gateway has to add to a message (deaths, counts, offsets) is added here, as headers.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from protocols.amqp091.conversion.properties import fitting, native_of
from protocols.amqp091.wire.codec import encode_method, short_string
from protocols.amqp091.wire.content import (
    amended,
    decode_properties,
    encode_properties,
    with_headers,
)
from protocols.amqp091.wire.frames import (
    BODY,
    FRAME_END,
    FRAME_OVERHEAD_BYTES,
    FRAME_START,
    HEADER,
    METHOD,
    frame,
)
from protocols.amqp091.wire.methods import BasicDeliver, Method
from protocols.amqp091.wire.tables import LongInt
from queue_core.delivery.consumer import Delivery
from queue_core.memory_account import Piece
from queue_core.message.message import COPIES, Death, Message

log = logging.getLogger(__name__)

END: Final = FRAME_END.to_bytes()

BASIC_CLASS: Final = 60
CONTENT: Final = Struct(">HHQ")  # class, weight, size of the body

TAG: Final = Struct(">QB")
HEADER_REST: Final = Struct(">IHHQ")  # payload size, class, weight, size of the body
BODY_START: Final = Struct(">BBHI")  # end of the frame before, kind, channel, size

LARGEST_HEADERS_BYTES: Final = 131_072  # of properties: as large as the frames that are offered
TOO_LARGE: Final = "x-headers-too-large"  # with their size, in place of headers
OFFSET_HEADER: Final = "x-stream-offset"
COUNT_HEADER: Final = "x-delivery-count"


class Envelope:
    """The bytes that all deliveries to one consumer from one exchange with one key share: those
    before the delivery tag, and those between the redelivered flag and the content's size.

    Most messages in a row also have the same properties and length: what lies between the
    redelivered flag and the body is then the same, too, and kept as `middle`."""

    __slots__ = ("after", "before", "length", "middle", "native")

    def __init__(self, channel: int, consumer_tag: str, exchange: str, routing_key: str) -> None:
        tag = short_string(consumer_tag)
        rest = short_string(fitting(exchange)) + short_string(fitting(routing_key))
        size = 4 + len(tag) + TAG.size + len(rest)
        index = BasicDeliver.index.to_bytes(4)
        self.before = FRAME_START.pack(METHOD, channel, size) + index + tag
        self.after = rest + b"\xce" + HEADER.to_bytes() + channel.to_bytes(2)
        self.native = b""
        self.length = -1
        self.middle = b""

    def remember(self, channel: int, native: bytes, length: int) -> None:
        """Keeps the bytes before a body, for the next bodies of that length with these
        properties."""
        header = HEADER_REST.pack(CONTENT.size + len(native), BASIC_CLASS, 0, length)
        start = BODY_START.pack(FRAME_END, BODY, channel, length)
        self.middle = b"".join((self.after, header, native, start))
        self.native, self.length = native, length


def content_frames(channel: int, native: bytes, body: bytes, frame_max: int) -> list[Piece]:
    """Encodes a content header, and the body in as many frames as it needs. The body is not copied:
    many consumers may get the same."""
    step = frame_max - FRAME_OVERHEAD_BYTES
    if len(native) > LARGEST_HEADERS_BYTES:
        native = without_headers(native)
    pieces: list[Piece] = [frame(HEADER, channel, CONTENT.pack(BASIC_CLASS, 0, len(body)) + native)]
    whole = memoryview(body)
    for start in range(0, len(body), step):
        part = whole[start : start + step]
        pieces += (FRAME_START.pack(BODY, channel, len(part)), part, END)
    return pieces


def without_headers(native: bytes) -> bytes:
    """Encodes properties whose headers are too large without them. A content header is one frame,
    however large the headers, and may go beyond frame_max, as in RabbitMQ. Beyond what any
    publisher of this protocol can send (other protocols' can), a client gets the message, and a
    header that says what it cannot have."""
    log.warning("headers of %d bytes do not fit into any frame: left out", len(native))
    contents = decode_properties(native)
    return encode_properties({**contents, "headers": {TOO_LARGE: len(native)}})


def whole_message(
    channel: int, method: Method, native: bytes, body: bytes, frame_max: int
) -> bytes:
    """Encodes a method with its content, the general way."""
    head = frame(METHOD, channel, encode_method(method))
    return b"".join((head, *content_frames(channel, native, body, frame_max)))


def native_for(delivery: Delivery, now: float) -> bytes:
    """Encodes a delivery's properties, and the gateway's own headers: failures, a stream's
    offset."""
    message = delivery.message
    native = properties_of(message, now)
    extra: dict[str, object] = {}
    if delivery.failures:
        extra[COUNT_HEADER] = LongInt(delivery.failures)
    if delivery.consumer.is_stream:
        extra[OFFSET_HEADER] = LongInt(delivery.offset)
    return with_headers(native, extra) if extra else native


def properties_of(message: Message, now: float) -> bytes:
    """Encodes a message's properties, with the deaths it died. A message that died has no
    expiration of its own any more: the list of deaths remembers it."""
    native = native_of(message, now)
    if not message.deaths:
        return native
    expiration = decode_properties(native).get("expiration")
    # a queue's own dead-letter key has ended the copies
    ended = () if message.copies else (COPIES,)
    headers = _death_headers(message.deaths, expiration)
    return amended(native, headers, without=ended, expiration=None)


def _death_headers(deaths: tuple[Death, ...], expiration: object) -> dict[str, object]:
    first, last = deaths[-1], deaths[0]
    entries = [_death_table(death) for death in deaths]
    if expiration is not None:
        entries[-1]["original-expiration"] = str(expiration)
    return {
        "x-death": entries,
        "x-first-death-exchange": first.exchange,
        "x-first-death-queue": first.queue,
        "x-first-death-reason": first.reason,
        "x-last-death-exchange": last.exchange,
        "x-last-death-queue": last.queue,
        "x-last-death-reason": last.reason,
    }


def _death_table(death: Death) -> dict[str, object]:
    return {
        "count": LongInt(death.count),
        "exchange": death.exchange,
        "queue": death.queue,
        "reason": death.reason,
        "routing-keys": list(death.routing_keys),
        "time": datetime.fromtimestamp(death.time, UTC),
    }
