"""Reads and writes SQL messages as documents: the arguments of howdah.publish, and the columns one
reads."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from gateway.message_files.document import (
    Document,
    MessageFileError,
    check_keys,
    flag,
    number,
    octets,
    section,
    text,
)
from queue_core.message.message import CANONICAL, Message
from queue_core.store.write.rows import RICH, properties_from_row, property_columns

COLUMNS: Final = RICH[RICH.index("content_type") :]
TEXTS: Final = tuple(name for name in COLUMNS if name not in ("created_at", "headers"))
KEYS: Final = (
    "exchange",
    "routing_key",
    "durable",
    "priority",
    "expires_in",
    *COLUMNS,
    "body",
    "publisher",
)


def read(found: Document, now: float) -> Message:
    check_keys(found, KEYS)
    row: dict[str, Any] = {name: text(found, name) for name in TEXTS}
    created = found.get("created_at")
    if created is not None and not hasattr(created, "timestamp"):
        raise MessageFileError("created_at: expected {'$timestamp': ...}")
    row["created_at"] = created
    row["headers"] = section(found, "headers") or None
    expires_in = found.get("expires_in")
    if expires_in is not None and not _is_span(expires_in):
        raise MessageFileError("expires_in: expected a number of seconds from 0 on")
    return Message(
        octets(found, "body", default=b""),
        text(found, "exchange", default=""),
        routing_key=text(found, "routing_key", default="key"),
        durable=flag(found, "durable", "", True),
        form=CANONICAL,
        native=CANONICAL.encode(properties_from_row(row)),
        priority=number(found, "priority", "", 255),
        expires_at=None if expires_in is None else now + expires_in,
        publisher=text(found, "publisher", default="publisher"),
    )


def _is_span(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def write(message: Message, now: float) -> Document:
    columns = dict(zip(COLUMNS, property_columns(message.properties), strict=True))
    if columns["headers"] is not None:
        columns["headers"] = msgspec.json.decode(str(columns["headers"]))
    document: Document = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "durable": message.durable,
        "priority": message.priority,
        "expires_in": None if message.expires_at is None else message.expires_at - now,
        **columns,
        "publisher": message.publisher,
        "body": message.body,
    }
    return {name: value for name, value in document.items() if value is not None}
