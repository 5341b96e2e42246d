"""The canonical message as AMQP 0.9.1 writes it: the rules, as a table.

Written when the first 0.9.1 consumer asks for a message of another protocol, and kept with it.
`to_canonical` is the way back. Knows no socket and no channel.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from protocols.amqp091.conversion.to_canonical import (
    CLUSTER_ID,
    IDENTIFIERS,
    ROUTING_KEY,
    TIMESTAMP,
    headers_table,
    says_more,
)
from protocols.amqp091.wire.content import (
    MAX_EXPIRATION_MS,
    PERSISTENT,
    TRANSIENT,
    Contents,
    encode_properties,
    expiration_seconds,
    is_persistent,
)
from protocols.amqp091.wire.tables import time_of
from protocols.amqp091.wire.type_limits import fits_property, short_text
from queue_core.message.carried_headers import CREATED, PUBLISHER, Note, Pair, packed
from queue_core.message.conversion import Envelope, Writing, as_it_is
from queue_core.message.message import Message, Properties, Value
from queue_core.message.values_as_text import identifier_type, text_of


def nowhere(value: object) -> None:
    """Writes no property: the value always travels as a header."""


def seconds(value: datetime) -> datetime:
    return value  # the codec writes whole seconds


TOO_LONG: Final = "a header when it is over 255 bytes"
ID: Final = (
    "a uuid as `urn:uuid:...`, a number in decimal; a header when over 255 bytes or not text"
)

WRITING: Final = (
    #       canonical           property            conversion  otherwise the header
    Writing("content_type", "content_type", short_text, "x-content-type", TOO_LONG),
    Writing("content_encoding", "content_encoding", short_text, "x-content-encoding", TOO_LONG),
    Writing("message_id", "message_id", short_text, "x-message-id", ID),
    Writing("correlation_id", "correlation_id", short_text, "x-correlation-id", ID),
    Writing("reply_to", "reply_to", short_text, "x-reply-to", TOO_LONG),
    Writing("subject", "type", short_text, "x-subject", TOO_LONG),
    Writing("app_id", "app_id", short_text, "x-app-id", TOO_LONG),
    Writing("user_id", "user_id", short_text, "x-user-id", "a header when not text, or too long"),
    Writing("group_id", "", nowhere, "x-group-id"),
    Writing("created_at", "timestamp", seconds, CREATED, "the header has what seconds cannot say"),
)


def delivery_mode(durable: bool) -> int:
    return PERSISTENT if durable else TRANSIENT


def expiration(expires_at: float, now: float) -> str:
    """Whole milliseconds from now on."""
    return str(min(max(0, round((expires_at - now) * 1000)), MAX_EXPIRATION_MS))


ENVELOPE: Final = (
    Envelope("durable", "delivery-mode", is_persistent, delivery_mode, "2: durable; 1: not"),
    Envelope(
        "expires",
        "expiration",
        expiration_seconds,
        expiration,
        "milliseconds from now on, counted down for consumers of messages from other protocols",
    ),
    Envelope("priority", "priority", as_it_is, as_it_is),
    Envelope("publisher", f"header {PUBLISHER}", None, as_it_is, "a publisher's own is taken off"),
    Envelope("deaths", "headers x-death, x-first-death-*, x-last-death-*", None, as_it_is),
    Envelope("body", "body", as_it_is, as_it_is),
)


def build(message: Message) -> Contents:
    """The properties of a message that came from another protocol, but for its expiration."""
    said = message.properties
    contents: Contents = {}
    carried: dict[str, Value] = {}
    notes: list[Note] = []
    for rule in WRITING:
        value = getattr(said, rule.field)
        if value is None:
            continue
        written = rule.convert(value)
        if written is None:
            carried[rule.otherwise] = value
            continue
        contents[rule.place] = written
        if rule.field in IDENTIFIERS:
            kind = identifier_type(value)
            if kind is not None:
                notes.append({"field": rule.field, "type": kind})
    pairs = list(said.headers)
    if said.created_at is not None:
        _carry_time(said, pairs, carried)
    if message.publisher is not None:
        carried[PUBLISHER] = message.publisher
    if not fits_property(message.routing_key):
        carried[ROUTING_KEY] = message.routing_key
    _restore(pairs, contents)
    contents["headers"] = None
    if pairs or carried or notes:
        table = headers_table(contents, said.created_at)
        contents["headers"] = packed(pairs, table, carried, notes)
    contents["delivery_mode"] = delivery_mode(message.durable)
    contents["priority"] = message.priority
    return contents


def _carry_time(said: Properties, pairs: list[Pair], carried: dict[str, Value]) -> None:
    for place, (name, value) in enumerate(pairs):
        if name == CREATED and says_more(value, said.created_at):
            del pairs[place]
            carried[CREATED] = value
            return
    if said.created_at is not None and said.created_at.microsecond:
        carried[CREATED] = text_of(said.created_at)


def _restore(pairs: list[Pair], contents: Contents) -> None:
    """Restores what an earlier 0.9.1 publisher said, and another protocol only carried."""
    for place in range(len(pairs) - 1, -1, -1):
        name, value = pairs[place]
        if name == CLUSTER_ID and isinstance(value, str) and "cluster_id" not in contents:
            if short_text(value) is not None:
                contents["cluster_id"] = value
                del pairs[place]
        elif name == TIMESTAMP and "timestamp" not in contents and _is_time(value):
            contents["timestamp"] = value
            del pairs[place]


def _is_time(value: Value) -> bool:
    """One that no calendar holds; any other would come back as a time."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -(1 << 63) <= value < 1 << 63 and isinstance(time_of(value), int)


def encode(contents: Contents, expires_at: float | None, now: float) -> bytes:
    if expires_at is None:
        return encode_properties(contents)
    return encode_properties({**contents, "expiration": expiration(expires_at, now)})
