"""Messages on their way out: the header of this delivery, what the gateway annotates, the rest as
it came.

The bare message (properties, application properties, body) is the sender's, byte for byte. All that
repeats is built once and kept by what it is made of.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, datetime
from typing import Final

from protocols.amqp10.conversion.from_canonical import priority, ttl
from protocols.amqp10.conversion.properties import FORM, PUBLISHER, native_of, section, to_wire
from protocols.amqp10.wire.annotations import OPENING, merged
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    HEADER,
    OPENED,
    data_opening,
    shape_of,
    written_body,
)
from protocols.amqp10.wire.types import Symbol, UInt, skip
from queue_core.message.memo import Memo
from queue_core.message.message import Death, Message

MAX_KEPT_PROPERTIES: Final = 4096
MAX_KEPT_BYTES: Final = 512
DEATHS: Final = Symbol("x-opt-deaths")
EXCHANGE: Final = Symbol("x-exchange")
ROUTING_KEY: Final = Symbol("x-routing-key")
OFFSET: Final = Symbol("x-stream-offset")

UNANNOTATED: Final = frozenset((b"", b"\x00\x53\x73", b"\x00\x53\x74"))

_headers: Final[Memo[tuple[bool, int | None, bool, int], bytes]] = Memo(MAX_KEPT_PROPERTIES)
_annotations: Final[Memo[tuple[str | None, str, str], bytes]] = Memo(MAX_KEPT_PROPERTIES)
# Annotations of the sender and of the gateway.
_merged: Final[Memo[tuple[bytes, str | None, str, str], bytes]] = Memo(MAX_KEPT_PROPERTIES)


def header_of(message: Message, now: float, first: bool, failures: int) -> bytes:
    """durable, priority, ttl counted down, first-acquirer, delivery-count."""
    if message.expires_at is not None:
        left = ttl(message.expires_at, now)
        return _header(message.durable, message.priority, left, first, failures)
    key = (message.durable, message.priority, first, failures)
    known = _headers.get(key)
    if known is None:
        header = _header(message.durable, message.priority, None, first, failures)
        return _headers.keep(key, header)
    return known


def _header(durable: bool, rank: int | None, left: UInt | None, first: bool, count: int) -> bytes:
    fields = [
        durable,
        None if rank is None else priority(rank),
        left,
        first,
        UInt(count),
    ]
    return section(HEADER, fields)


def whole(
    message: Message, header: bytes, offset: int | None, queues: Container[str] | None = None
) -> bytes:
    """A delivery's payload. `offset` is its place in a stream; `queues`: see `written`."""
    # Measured on 100-byte bodies from a 1.0 sender: 1.3 us; 14 us when every section is built anew.
    native = message.native if message.form is FORM else native_of(message, queues)
    if not native or native[0] == 0:
        sections, body = native, message.body
        opening = data_opening(len(body))
        if offset is None and not message.deaths and native[:3] in UNANNOTATED:
            return b"".join((header, stamp(message), sections, opening, body))
        return b"".join((header, annotated(message, sections, offset), opening, body))
    if native[0] == OPENED:  # likewise, with an opening of the sender's own
        start = 2 + native[1]
        sections = native[start:]
        if offset is None and not message.deaths and sections[:3] in UNANNOTATED:
            return b"".join((header, stamp(message), sections, native[2:start], message.body))
    shape = shape_of(native)
    return b"".join(
        (
            header,
            annotated(message, shape.sections, offset),
            written_body(shape, message.body),
        )
    )


def stamp(message: Message) -> bytes:
    """The annotations of a message that has none of its own."""
    key = (message.publisher, message.exchange, message.routing_key)
    known = _annotations.get(key)
    if known is None:
        known = section(ANNOTATIONS, _facts(message))
        if len(known) <= MAX_KEPT_BYTES:
            _annotations.keep(key, known)
    return known


def _facts(message: Message) -> dict[object, object]:
    facts: dict[object, object] = {EXCHANGE: message.exchange, ROUTING_KEY: message.routing_key}
    if message.publisher is not None:
        facts[Symbol(PUBLISHER)] = message.publisher
    return facts


def annotated(message: Message, sections: bytes, offset: int | None) -> bytes:
    """The sections with the gateway's annotations after the sender's, which stay as they were
    written."""
    if offset is None and not message.deaths and sections[:3] == OPENING:
        # Senders repeat their annotations: 1.1 us a message, against 9 when they are merged anew.
        end = skip(sections, 3)
        key = (sections[:end], message.publisher, message.exchange, message.routing_key)
        known = _merged.get(key)
        if known is None:
            known = merged(sections[:end], _facts(message))
            if len(known) <= 2 * MAX_KEPT_BYTES:
                _merged.keep(key, known)
        return known + sections[end:]
    facts = _facts(message)
    if message.deaths:
        facts[DEATHS] = [_death(death) for death in message.deaths]
    if offset is not None:
        facts[OFFSET] = offset
    return merged(sections, facts)


def _death(death: Death) -> dict[object, object]:
    return {
        Symbol("queue"): death.queue,
        Symbol("reason"): Symbol(death.reason),
        Symbol("count"): UInt(death.count),
        Symbol("time"): datetime.fromtimestamp(death.time, UTC),
        Symbol("exchange"): death.exchange,
        Symbol("routing-keys"): to_wire(list(death.routing_keys)),
    }
