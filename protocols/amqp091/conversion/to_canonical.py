"""AMQP 0.9.1's properties as the canonical message has them: the rules, as a table.

Read when the first consumer of another protocol, the database or a headers exchange asks, and kept
by the properties' bytes. `from_canonical` is the way back. Knows no socket and no channel.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from protocols.amqp091.wire.content import Contents
from protocols.amqp091.wire.type_limits import fits_property, holds_name, short_text, table_keeps
from queue_core.message.carried_headers import (
    CREATED,
    REPEATED,
    TYPES,
    Note,
    Pair,
    Table,
    identified,
    unpacked,
)
from queue_core.message.conversion import Reading, as_it_is
from queue_core.message.message import Properties, Value
from queue_core.message.values_as_text import Dialect, identifier, text_of, time_of


def _calendar_time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


CLUSTER_ID: Final = "x-amqp091-cluster-id"
TIMESTAMP: Final = "x-amqp091-timestamp"

READING: Final = (
    #       property            canonical           conversion
    Reading("content_type", "content_type", as_it_is),
    Reading("content_encoding", "content_encoding", as_it_is),
    Reading("message_id", "message_id", identifier, note="`urn:uuid:...` is a uuid"),
    Reading("correlation_id", "correlation_id", identifier, note="`urn:uuid:...` is a uuid"),
    Reading("reply_to", "reply_to", as_it_is, note="a queue's name, or the key of a topic"),
    Reading("type", "subject", as_it_is),
    Reading("app_id", "app_id", as_it_is),
    Reading("user_id", "user_id", as_it_is, note="refused unless it is the login's own"),
    Reading(
        "timestamp",
        "created_at",
        _calendar_time,
        TIMESTAMP,
        "seconds; a number that no calendar holds travels as it is",
    ),
    Reading("cluster_id", CLUSTER_ID, as_it_is),
)
BY_PLACE: Final = {rule.place: rule for rule in READING}

# Headers that carry what has no property, or did not fit into it: header -> field, property.
CARRIED: Final = {
    "x-content-type": ("content_type", "content_type"),
    "x-content-encoding": ("content_encoding", "content_encoding"),
    "x-message-id": ("message_id", "message_id"),
    "x-correlation-id": ("correlation_id", "correlation_id"),
    "x-reply-to": ("reply_to", "reply_to"),
    "x-subject": ("subject", "type"),
    "x-app-id": ("app_id", "app_id"),
    "x-user-id": ("user_id", "user_id"),
    "x-group-id": ("group_id", ""),
}
IDENTIFIERS: Final = ("message_id", "correlation_id")
BINARY: Final = frozenset((*IDENTIFIERS, "user_id"))  # fields that may be bytes
ROUTING_KEY: Final = "x-routing-key"  # written by the gateway: a key too long for its place, whole
CLAIMABLE: Final = frozenset((*CARRIED, CREATED, ROUTING_KEY, TYPES, REPEATED))

DIALECT: Final = Dialect(table_keeps, holds_name)


def headers_table(present: Collection[str], created: object) -> Table:
    """Makes the table by which headers are read beside these properties: one that could stand in a
    property of its own, or has one already, is an ordinary header, whatever its name."""

    def is_claimed(name: str, value: Value) -> bool:
        if name == ROUTING_KEY:
            return isinstance(value, str) and not fits_property(value)
        if name == CREATED:
            return says_more(value, created)
        if name not in CARRIED:
            return False
        field, place = CARRIED[name]
        if not place:
            return isinstance(value, str)
        is_possible = isinstance(value, str | bytes if field in BINARY else str)
        return is_possible and place not in present and short_text(value) is None

    return Table(DIALECT, is_claimed, CLAIMABLE)


def says_more(value: object, created: object) -> bool:
    """Whether a text is that time, more exactly than in seconds or as somebody else writes it."""
    if not isinstance(value, str) or not isinstance(created, datetime):
        return False
    try:
        time = time_of(value)
    except ValueError:
        return False
    return whole_seconds(time) == whole_seconds(created) and (
        time.microsecond != 0 or value != text_of(time)
    )


def whole_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)


def canonical(contents: Contents) -> Properties:
    """Reads the wire's properties into no protocol's terms."""
    found = contents.get("headers")
    headers: list[Pair] = []
    claimed: dict[str, Value] = {}
    notes: list[Note] = []
    if found:
        assert isinstance(found, dict)
        table = headers_table(contents, contents.get("timestamp"))
        headers, claimed, notes = unpacked(found, table)
    values: dict[str, object] = {}
    for place, value in contents.items():
        rule = BY_PLACE.get(place)
        if rule is None:
            continue
        read = rule.convert(value)
        if read is None:
            headers.append((rule.otherwise, value))  # type: ignore[arg-type]
        elif rule.field.startswith("x-"):
            headers.append((rule.field, read))
        else:
            values[rule.field] = read
    for field in IDENTIFIERS if notes else ():
        if field in contents:
            values[field] = identified(str(contents[field]), field, notes)
    if claimed:
        headers += _take_claimed(claimed, values)
    return Properties(headers=tuple(headers), **values)  # type: ignore[arg-type]


def _take_claimed(claimed: dict[str, Value], values: dict[str, object]) -> list[Pair]:
    """Puts into `values` what headers carried; gives back what is a header besides."""
    left: list[Pair] = []
    for name, value in claimed.items():
        if name in CARRIED:
            values[CARRIED[name][0]] = value
        elif name == CREATED:
            time = time_of(str(value))
            values["created_at"] = time
            if text_of(time) != value:
                left.append((name, value))  # another way to write it, which MQTT gets back
    return left
