"""`modified` with message annotations: what a receiver adds to a message that it gives back.

The message at its place in that one queue gets them, for as long as it is in memory; what the
database holds stays as it was published.
"""

from __future__ import annotations

from protocols.amqp10.delivery_sections import merged
from protocols.amqp10.properties import FORM, PUBLISHER, native_of
from protocols.amqp10.sections import shape_of
from queue_core.consumers import Delivery
from queue_core.message import Message


def annotate(delivery: Delivery, annotations: object) -> None:
    """Call it before the delivery is settled."""
    if not isinstance(annotations, dict):
        return
    said = {name: value for name, value in annotations.items() if str(name) != PUBLISHER}
    if not said:
        return
    entry = delivery.entry
    before = entry.message
    entry.message = after = _annotated(before, said)
    cursor = delivery.consumer.cursor
    if cursor.queue_id:  # of a stored queue: it answers for its memory
        cursor.budget.used += after.size() - before.size()


def _annotated(message: Message, said: dict[object, object]) -> Message:
    native = native_of(message)
    shape = shape_of(native)
    prefix = native[: len(native) - len(shape.sections)]
    return Message(
        message.body,
        message.exchange,
        routing_key=message.routing_key,
        durable=message.durable,
        form=FORM,
        native=prefix + merged(shape.sections, said),
        priority=message.priority,
        expires_at=message.expires_at,
        not_before=message.not_before,
        publisher=message.publisher,
        deaths=message.deaths,
        retain=message.retain,
    )
