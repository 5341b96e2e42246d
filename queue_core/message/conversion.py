"""The shape of the tables that say what becomes of a message's properties.

Each adapter has two: what it reads into the canonical properties, and what it writes of them. They
are what runs; docs/interop.md is made from them. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """Converts from a protocol: what stands at `place` becomes the canonical `field`. A field that
    begins with `x-` is a header of that name."""

    place: str
    field: str
    convert: Callable[[Any], Any]  # None: it does not fit there
    otherwise: str = ""  # the header that it becomes then
    note: str = ""


class Writing(NamedTuple):
    """Converts to a protocol: the canonical `field` is written at `place`."""

    field: str
    place: str
    convert: Callable[..., Any]  # None: it does not fit there
    otherwise: str = ""  # the name under which it travels then
    note: str = ""


class Envelope(NamedTuple):
    """Describes something that is no property but concerns the message as a whole, both ways: what
    the gateway acts on (`read`), and what it writes for each delivery (`write`)."""

    field: str
    place: str
    read: Callable[..., Any] | None
    write: Callable[..., Any] | None
    note: str = ""


def as_it_is(value: Any) -> Any:
    return value


def text_only(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


# What the canonical fields hold, in the order of the page.
MEANING = {
    "durable": "survives a restart of the gateway",
    "expires": "when it is of no use any more",
    "priority": "0 to 255, the highest first",
    "content_type": "what the body is",
    "content_encoding": "how the body is packed",
    "correlation_id": "which request this answers; text, bytes, a number or a uuid",
    "reply_to": "where an answer goes: a queue's name, or a topic's key",
    "message_id": "text, bytes, a number or a uuid",
    "subject": "what it is about; 0.9.1 calls it type",
    "app_id": "which application published it",
    "user_id": "who says to have published it",
    "group_id": "which messages belong together",
    "created_at": "when it was made",
    "headers": "the application's own names and values",
    "x-payload-format": "the body is text",
    "body": "the payload",
    "publisher": "who published, stamped by the gateway",
    "deaths": "which queues it died in, and why",
}
