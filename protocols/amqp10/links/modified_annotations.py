"""`modified` with message annotations: what a receiver adds to a message that it gives back.

The message at its place in that one queue has them from then on. Its row stays as it was published:
the annotations are written to the journal, and put on again when the row is read back.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp10.conversion.properties import FORM, PUBLISHER, annotated
from protocols.amqp10.errors import RESOURCE_LIMIT, Amqp10Error
from protocols.amqp10.wire.annotations import Pairs, encode_pairs, pairs_of
from protocols.amqp10.wire.types import MOST_VALUES, Malformed, is_crowded
from queue_core.message.message import Message

MAX_ANNOTATION_BYTES: Final = 65_536  # that one receiver may add


class Annotating:
    """Annotations that a receiver adds to a message. Implements the core's `Amendment`."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def apply(self, message: Message) -> Message:
        return annotated(message, self._pairs)

    def encode(self, before: bytes | None) -> bytes:
        known = {} if before is None else pairs_of(before, 1)
        return bytes((FORM.code,)) + encode_pairs([*(known | self._pairs).values()])


def amendment_of(data: bytes) -> Annotating | None:
    """Makes an amendment of the annotations in a `modified`; None when there are none. Raises
    Amqp10Error."""
    if len(data) > MAX_ANNOTATION_BYTES:
        raise Amqp10Error(
            RESOURCE_LIMIT,
            f"{len(data)} bytes of annotations on a message that is given back; "
            f"{MAX_ANNOTATION_BYTES} are the most: add less",
        )
    if is_crowded(data):
        raise Amqp10Error(
            RESOURCE_LIMIT,
            f"more than {MOST_VALUES} values on a message that is given back; add fewer",
        )
    try:
        pairs = pairs_of(data) if data else {}
    except Malformed:
        return None
    pairs.pop(PUBLISHER, None)  # who published is ours to say
    return Annotating(pairs) if pairs else None
