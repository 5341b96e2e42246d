"""Between AMQP 0.9.1's properties and the canonical ones, both ways.

What has no place of its own here travels as a header with a name from `CARRIED`, and is put back
where it came from on the way out. No socket, no channel: the store reads messages back with this.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

from protocols.amqp091.content import (
    MAX_KEPT,
    MAX_KEPT_BYTES,
    PERSISTENT,
    PUBLISHER,
    Contents,
    decode_properties,
    encode_properties,
)
from queue_core.message import Message, Properties, Value

MAX_TEXT_BYTES: Final = 255

CARRIED: Final = {  # canonical field -> the header that carries what a short string cannot
    "content_type": "x-content-type",
    "content_encoding": "x-content-encoding",
    "message_id": "x-message-id",
    "correlation_id": "x-correlation-id",
    "reply_to": "x-reply-to",
    "subject": "x-subject",
    "app_id": "x-app-id",
    "user_id": "x-user-id",
    "group_id": "x-group-id",
}
PLACES: Final = {  # canonical field -> basic's property
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "message_id": "message_id",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "subject": "type",
    "app_id": "app_id",
    "user_id": "user_id",
}
CLUSTER_ID: Final = "x-cluster-id"
TIMESTAMP: Final = "x-timestamp"  # one that no calendar holds
ROUTING_KEY: Final = "x-routing-key"  # one that is too long for a short string, whole
REPEATED: Final = "x-repeated-headers"  # all names and values in order, when a name is repeated


class Amqp091Form:
    """Implements the core's `Form`."""

    code = 3

    def __init__(self) -> None:
        self._kept: dict[bytes, Properties] = {}

    def properties(self, native: bytes) -> Properties:
        known = self._kept.get(native)
        if known is None:
            known = canonical(decode_properties(native) if native else {})
            if len(native) <= MAX_KEPT_BYTES:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[native] = known
        return known


FORM: Final = Amqp091Form()


def canonical(contents: Contents) -> Properties:
    """What the wire's properties say, in no protocol's terms."""
    headers = contents.get("headers") or {}
    assert isinstance(headers, dict)
    values: dict[str, object] = {
        field: contents[place] for field, place in PLACES.items() if place in contents
    }
    pairs = _pairs(headers)
    for field, header in CARRIED.items():
        if header in headers and field not in values and _fits(field, headers[header]):
            values[field] = headers[header]
            pairs = [pair for pair in pairs if pair[0] != header]
    created = contents.get("timestamp")
    if isinstance(created, datetime):
        values["created_at"] = created
    elif created is not None:
        pairs.append((TIMESTAMP, int(created)))  # type: ignore[call-overload]
    if "cluster_id" in contents:
        pairs.append((CLUSTER_ID, str(contents["cluster_id"])))
    return Properties(headers=tuple(pairs), **values)  # type: ignore[arg-type]


def _fits(field: str, value: object) -> bool:
    if field in ("message_id", "correlation_id"):
        return isinstance(value, str | bytes | int) and not isinstance(value, bool)
    if field == "user_id":
        return isinstance(value, str | bytes)
    return isinstance(value, str)


def _pairs(headers: dict[str, Value]) -> list[tuple[str, Value]]:
    repeated = headers.get(REPEATED)
    if isinstance(repeated, list):
        pairs = [tuple(pair) for pair in repeated if isinstance(pair, list) and len(pair) == 2]
        if len(pairs) == len(repeated) and all(isinstance(name, str) for name, _ in pairs):
            names = {name for name, _ in pairs}
            rest = [(n, v) for n, v in headers.items() if n not in names and n != REPEATED]
            return [*pairs, *rest]
    return list(headers.items())


def build(message: Message, now: float) -> bytes:
    """The content header's properties of a message that came from another protocol."""
    properties = message.properties
    headers: dict[str, object] = {}
    for name, value in properties.headers:
        headers.setdefault(name, value)
    if len(headers) < len(properties.headers):
        headers[REPEATED] = [[name, value] for name, value in properties.headers]
    contents: Contents = {}
    for field, header in CARRIED.items():
        value = getattr(properties, field)
        if value is None:
            continue
        text = _text(value)
        place = PLACES.get(field)
        if place is None or text is None:
            headers[header] = value
        else:
            contents[place] = text
    _restore(headers, contents)
    if properties.created_at is not None:
        contents["timestamp"] = properties.created_at
    if message.publisher is not None:
        headers[PUBLISHER] = message.publisher
    if fitting(message.routing_key) != message.routing_key:
        headers[ROUTING_KEY] = message.routing_key
    contents["headers"] = headers or None
    contents["delivery_mode"] = PERSISTENT if message.durable else 1
    contents["priority"] = message.priority
    if message.expires_at is not None:
        contents["expiration"] = str(max(0, round((message.expires_at - now) * 1000)))
    return encode_properties(contents)


def _restore(headers: dict[str, object], contents: Contents) -> None:
    """What an earlier 0.9.1 publisher said, and another protocol only carried."""
    timestamp = headers.get(TIMESTAMP)
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        contents["timestamp"] = headers.pop(TIMESTAMP)
    cluster_id = headers.get(CLUSTER_ID)
    if isinstance(cluster_id, str) and _text(cluster_id) is not None:
        contents["cluster_id"] = headers.pop(CLUSTER_ID)


def fitting(name: str) -> str:
    """As much of a name as a short string holds."""
    if len(name) <= MAX_TEXT_BYTES // 4:
        return name
    return name.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")


def _text(value: object) -> str | None:
    """As a short string may hold it; None where it cannot."""
    write: Callable[[object], str] | None = _WRITE.get(type(value))
    if write is None:
        return None
    try:
        text = write(value)
        return text if len(text.encode()) <= MAX_TEXT_BYTES else None
    except UnicodeError:
        return None


_WRITE: Final[dict[type, Callable[[object], str]]] = {
    str: lambda value: str(value),
    bytes: lambda value: value.decode(),  # type: ignore[attr-defined]
    int: lambda value: str(value),
    UUID: lambda value: f"urn:uuid:{value}",
}


def native_of(message: Message, now: float) -> bytes:
    """The properties as a 0.9.1 consumer gets them: the publisher's own bytes, or built once."""
    if message.form is FORM:
        return message.native or NO_PROPERTIES
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    native = encoded.get(FORM)
    if native is None:
        native = encoded[FORM] = build(message, now)
    assert isinstance(native, bytes)
    return native


NO_PROPERTIES: Final = b"\0\0"
