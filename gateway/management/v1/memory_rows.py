"""Messages of queues in memory as rows, like those that `howdah.browse` gives of stored ones, and a
look at them by condition."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from queue_core.delivery.consumer import Entry
from queue_core.message.condition import Condition, Field
from queue_core.message.condition_evaluation import holds
from queue_core.message.message import Message, utc
from queue_core.store.operator.browsing import BrowsedMessage
from queue_core.store.write.rows import RICH, property_columns

COLUMNS: Final = RICH[RICH.index("content_type") :]
MOST_COMPARED_BYTES: Final = 1024 * 1024  # of a body; a longer one is unknown to conditions
PROTOCOLS: Final = {0: "SQL", 1: "MQTT 3", 2: "MQTT 5", 3: "AMQP 0.9.1", 4: "AMQP 1.0"}


def row_of(entry: Entry, now: float) -> BrowsedMessage:
    """Describes an entry; its body is whole. When it entered its queue, nobody has noted."""
    message = entry.message
    columns: dict[str, Any] = dict(zip(COLUMNS, property_columns(message.properties), strict=True))
    headers = columns.pop("headers")
    return BrowsedMessage(
        offset=entry.offset,
        state=_state(entry, now),
        enqueued_at=None,
        not_before=_time(entry.not_before),
        expires_at=_time(entry.expires_at),
        delivery_count=0,
        failed_because=None,
        priority=message.priority,
        durable=message.durable,
        exchange=message.exchange,
        routing_key=message.routing_key,
        topic=message.topic if message.exchange == "amq.topic" else None,
        headers=None if headers is None else msgspec.json.decode(str(headers)),
        publisher=message.publisher,
        protocol=_protocol(message),
        deaths=[msgspec.to_builtins(death) for death in message.deaths] or None,
        failure=None,
        body_bytes=len(message.body),
        body=bytes(message.body),
        **columns,
    )


def _state(entry: Entry, now: float) -> str:
    if entry.expires_at is not None and entry.expires_at <= now:
        return "expired"
    return "delayed" if entry.not_before is not None and entry.not_before > now else "ready"


def _time(time: float | None) -> datetime | None:
    return None if time is None else utc(time)


def _protocol(message: Message) -> str | None:
    return None if message.form is None else PROTOCOLS.get(message.form.code)


def is_chosen(row: BrowsedMessage, condition: Condition) -> bool:
    """Tells whether a condition holds for a row, as it would in SQL."""
    return holds(condition, lambda field: _value(row, field))


def _value(row: BrowsedMessage, field: Field) -> object:
    match field.name:
        case "header":
            return (row.headers or {}).get(field.path[0])
        case "json":
            return _member(row.body, field.path)
        case "body":
            return _text(row.body)
        case "died_in" | "reason":
            last: dict[str, Any] = (row.deaths or [{}])[0]
            return last.get("queue" if field.name == "died_in" else "reason")
        case "deaths_in_all":
            return sum(death.get("count", 1) for death in row.deaths) if row.deaths else None
        case "died_at":
            return _time(row.deaths[0]["time"]) if row.deaths else None
        case "age":
            return None
        case name:
            return getattr(row, name)


def _text(body: bytes) -> str | None:
    if len(body) > MOST_COMPARED_BYTES:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _member(body: bytes, path: tuple[str, ...]) -> object:
    if len(body) > MOST_COMPARED_BYTES:
        return None
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for name in path:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
