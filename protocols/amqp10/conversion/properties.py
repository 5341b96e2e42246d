"""The properties of messages on their way in and out, converted when somebody first asks.

What becomes of each property is told in `to_canonical` and `from_canonical`. No socket, no link:
the store reads messages back with this.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from protocols.amqp10.conversion.from_canonical import Built, build, section, to_wire
from protocols.amqp10.conversion.to_canonical import VALUE_TYPE, canonical, contents_of
from protocols.amqp10.wire.annotations import Pairs, pairs_of, with_pairs
from protocols.amqp10.wire.sections import shape_of
from queue_core.message.carried_headers import PUBLISHER
from queue_core.message.conversion_cache import Writings
from queue_core.message.memo import Memo
from queue_core.message.message import NO_PROPERTIES, Message, Properties

__all__ = [
    "FORM",
    "PUBLISHER",
    "VALUE_TYPE",
    "annotated",
    "contents_of",
    "native_of",
    "section",
    "to_wire",
    "written",
]

MAX_KEPT_PROPERTIES: Final = 4096
MAX_KEPT_BYTES: Final = 1024


class Amqp10Form:
    """Implements the core's `AmendingForm`."""

    code = 4

    def __init__(self) -> None:
        self._kept: Memo[bytes, Properties] = Memo(MAX_KEPT_PROPERTIES)

    def properties(self, native: bytes) -> Properties:
        if not native:
            return NO_PROPERTIES
        known = self._kept.get(native)
        if known is None:
            known = canonical(shape_of(native))
            if len(native) <= MAX_KEPT_BYTES:
                self._kept.keep(native, known)
        return known

    def amended(self, message: Message, amendment: bytes) -> Message:
        """Adds what receivers added to the message: see `modified_outcome`."""
        return annotated(message, pairs_of(amendment, 1))


FORM: Final = Amqp10Form()


def annotated(message: Message, pairs: Pairs) -> Message:
    """The message with more annotations, in AMQP 1.0's form whichever it had."""
    native = native_of(message)
    sections = shape_of(native).sections
    prefix = native[: len(native) - len(sections)]
    return Message(
        message.body,
        message.exchange,
        routing_key=message.routing_key,
        durable=message.durable,
        form=FORM,
        native=prefix + with_pairs(sections, pairs),
        priority=message.priority,
        expires_at=message.expires_at,
        not_before=message.not_before,
        publisher=message.publisher,
        deaths=message.deaths,
        retain=message.retain,
    )


def written(message: Message, queues: Container[str] | None = None) -> Built:
    """Encodes the sections of a message from another protocol, once, and keeps them. `queues` are
    the names of the queues there are: an address may mean a queue or a topic."""
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    known = encoded.get(FORM)
    if known is None:
        known = encoded[FORM] = build(message, queues)
    assert isinstance(known, Built)
    return known


WRITINGS: Final = Writings(lambda message: build(message).native)


def native_of(message: Message, queues: Container[str] | None = None) -> bytes:
    """The sections and how the body is written: the sender's own bytes, or ours."""
    if message.form is FORM:
        return message.native
    shared = WRITINGS.of(message)
    return written(message, queues).native if shared is None else shared
