"""The properties of messages on their way in and out, converted when somebody first asks.

What becomes of each property is told in `to_canonical` and `from_canonical`. No socket, no channel:
the store reads messages back with this.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp091.conversion import from_canonical
from protocols.amqp091.conversion.to_canonical import canonical
from protocols.amqp091.wire.content import MAX_KEPT_BYTES, MAX_KEPT_PROPERTIES, decode_properties
from protocols.amqp091.wire.type_limits import fitting
from queue_core.message.conversion_cache import Writings
from queue_core.message.memo import Memo
from queue_core.message.message import Message, Properties

__all__ = ["FORM", "fitting", "native_of"]

NO_PROPERTIES: Final = b"\0\0"


class Amqp091Form:
    """Implements the core's `Form`."""

    code = 3

    def __init__(self) -> None:
        self._kept: Memo[bytes, Properties] = Memo(MAX_KEPT_PROPERTIES)

    def properties(self, native: bytes) -> Properties:
        known = self._kept.get(native)
        if known is None:
            known = canonical(decode_properties(native) if native else {})
            if len(native) <= MAX_KEPT_BYTES:
                self._kept.keep(native, known)
        return known


FORM: Final = Amqp091Form()
WRITINGS: Final = Writings(
    lambda message: from_canonical.encode(from_canonical.build(message), None, 0.0)
)
SURELY_FITTING_CHARACTERS: Final = 63  # of a routing key; a longer one may have to be carried


def shared_native(message: Message) -> bytes | None:
    """The properties of a message from elsewhere, if all that say the same have the same."""
    if message.expires_at is None and len(message.routing_key) <= SURELY_FITTING_CHARACTERS:
        return WRITINGS.of(message)
    return None


def native_of(message: Message, now: float) -> bytes:
    """The properties as a 0.9.1 consumer gets them: the publisher's own bytes, or built once. What
    expires is written for each delivery, with the time that is left."""
    if message.form is FORM:
        return message.native or NO_PROPERTIES
    shared = shared_native(message)
    if shared is not None:
        return shared
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    known = encoded.get(FORM)
    if known is None:
        contents = from_canonical.build(message)
        if message.expires_at is None:
            known = from_canonical.encode(contents, None, now)
        else:
            known = contents
        encoded[FORM] = known
    if isinstance(known, dict):
        return from_canonical.encode(known, message.expires_at, now)
    assert isinstance(known, bytes)
    return known
