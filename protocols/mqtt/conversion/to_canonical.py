"""Turns the properties of a PUBLISH into the canonical message's: the rules are a table.

Properties are read when the first consumer of another protocol, the database or a headers exchange
asks, and are kept by their bytes. `from_canonical` is the way back. No socket and no session is
known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from queue_core.message.carried_headers import (
    CREATED,
    PUBLISHER,
    REPLY_ADDRESS,
    TEXT_FLAG,
    TYPES,
    Note,
    Pair,
    identified,
    read_notes,
    says_utf8,
)
from queue_core.message.conversion import Reading, as_it_is
from queue_core.message.message import NO_PROPERTIES as NOTHING_SAID
from queue_core.message.message import Properties, Value, type_of_id
from queue_core.message.topic_forms import dotted
from queue_core.message.values_as_text import (
    identifier,
    restored,
    text_of,
    time_of,
    typed_identifier,
)

QUEUE_PREFIX: Final = "$queue/"
TOPIC_SCHEME: Final = "topic://"
ORDER: Final = "x-user-property-order"  # lists names, where our own order would be another


def correlation(data: bytes) -> type_of_id:
    """Returns correlation data as text where it is text, which other protocols can compare. A
    counter may look like UTF-8, too, but has control characters in it."""
    text = _decoded(data)
    return data if text is None or _CONTROL.search(text) else identifier(text)


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def reply_address(topic: str) -> str:
    """Returns the routing key that leads to a response topic from the default exchange: a queue's
    name for a queue topic, else the topic in dot form."""
    name = topic.removeprefix(QUEUE_PREFIX)
    return name if name != topic and "/" not in name else dotted(topic)


def needs_address(topic: str) -> bool:
    """Tells whether the key of a response topic could be read as something else."""
    return topic.startswith(QUEUE_PREFIX) or "." in topic


def priority(text: str) -> int | None:
    if text.isascii() and text.isdecimal() and len(text) <= 3 and str(int(text)) == text:
        return int(text) if int(text) <= 255 else None
    return None


def moment(text: str) -> datetime | None:
    try:
        return time_of(text)
    except ValueError:
        return None


READING: Final = (
    #       property                canonical           conversion
    Reading(
        "payload_format",
        TEXT_FLAG,
        as_it_is,
        note="1: the payload is text, and checked; no header where the content type says UTF-8",
    ),
    Reading("content_type", "content_type", as_it_is),
    Reading(
        "response_topic",
        "reply_to",
        reply_address,
        note="`$queue/NAME` is the queue's name, any other topic its key, with dots; where the key "
        f"could be read as something else, the header `{REPLY_ADDRESS}` is the whole address",
    ),
    Reading(
        "correlation_data",
        "correlation_id",
        correlation,
        note="text when it is UTF-8 without control characters, a uuid when it is `urn:uuid:...`, "
        "else bytes",
    ),
)
USER_READING: Final = (
    # The first user property of such a name, if its value fits, in the order of our own writing.
    #       user property       canonical           conversion
    Reading("content-encoding", "content_encoding", as_it_is),
    Reading("message-id", "message_id", identifier, note="`urn:uuid:...` is a uuid"),
    Reading("subject", "subject", as_it_is),
    Reading("app-id", "app_id", as_it_is),
    Reading("user-id", "user_id", as_it_is, note="refused unless it is the login's own"),
    Reading("group-id", "group_id", as_it_is),
    Reading("created", "created_at", moment, note="a time in ISO 8601; without a zone it is UTC"),
    Reading("priority", "priority", priority, note="0 to 255"),
)
USER: Final = {rule.place: rule for rule in USER_READING}
RANKS: Final = {rule.place: rank for rank, rule in enumerate(USER_READING)}
HEADER_RANK: Final = len(RANKS)
UNTYPED: Final[Note] = {}


def canonical(found: PropertySet) -> Properties:
    """Reads a PUBLISH's properties into canonical ones, which are in no protocol's terms."""
    if found is NO_PROPERTIES:
        return NOTHING_SAID
    said = UserProperties(found.user)
    values, headers = said.values, said.headers
    for rule in READING:
        value = getattr(found, rule.place)
        if value is None:
            continue
        if rule.field == TEXT_FLAG:
            if value != 1 or not says_utf8(found.content_type):
                headers.append((TEXT_FLAG, value))
        else:
            values[rule.field] = rule.convert(value)
    if found.payload_format is None and says_utf8(found.content_type):
        headers += _left_open(said.notes or ())
    if said.notes:
        _apply_field_notes(found, values, said.notes)
    topic = found.response_topic
    if topic is not None and needs_address(topic):
        headers += _whole_address(topic, values["reply_to"], headers, said.notes or ())
    values.pop("priority", None)  # the message has it
    return Properties(headers=tuple(headers), **values)


def _left_open(notes: Sequence[Note]) -> list[Pair]:
    """Returns the header that says that the publisher left it open whether the payload is text,
    where the content type says that it is."""
    is_known = any(note.get("field") == TEXT_FLAG for note in notes)
    return [] if is_known else [(TEXT_FLAG, False)]


def _whole_address(topic: str, key: str, headers: list[Pair], notes: Sequence[Note]) -> list[Pair]:
    if any(name == REPLY_ADDRESS for name, _ in headers):
        return []
    if any(note.get("field") == "reply_to" for note in notes):
        return []
    return [(REPLY_ADDRESS, topic if key != dotted(topic) else TOPIC_SCHEME + topic)]


def _apply_field_notes(found: PropertySet, values: dict[str, Any], notes: Sequence[Note]) -> None:
    """Applies the notes about properties that are no user properties."""
    data = found.correlation_data
    for note in notes:
        field, was = note.get("field"), note.get("was")
        if field == "reply_to" and isinstance(was, str) and found.response_topic is not None:
            values["reply_to"] = was
        elif field == "content_type" and found.content_type is not None:
            values["content_type"] = _restored(found.content_type, note)
        elif field == "correlation_id" and data is not None:
            if note.get("type") == "binary":
                values["correlation_id"] = data
            elif (text := _decoded(data)) is not None:
                values["correlation_id"] = identified(text, "correlation_id", (note,))


class UserProperties:
    """Reads user properties: some are canonical fields of their own, the rest are headers."""

    def __init__(self, user: Sequence[tuple[str, str]]) -> None:
        self.values: dict[str, Any] = {}
        self.headers: list[Pair] = []
        self.notes: list[Note] | None = None
        if user:
            self._read(user)

    def _read(self, user: Sequence[tuple[str, str]]) -> None:
        types = "".join([text for name, text in user if name == TYPES])
        self.notes = read_notes(types) if types else None
        at = {} if self.notes is None else _by_place(user, self.notes)
        seen: set[str] = set()
        order: list[str] = []
        last, is_ordered, skipped = 0, True, 0
        for place, (name, text) in enumerate(user):
            if name == PUBLISHER or (name == TYPES and self.notes is not None):
                continue
            if skipped:  # this is a part of the value before it
                skipped -= 1
                continue
            note = at.get(place, UNTYPED)
            if "parts" in note:
                parts = _parts(user, place, note)
                skipped, text = len(parts) - 1, "".join(parts)
            rank = self._take(name, text, note, name in seen)
            seen.add(name)
            is_ordered, last = is_ordered and rank >= last, rank
            order.append(name)
        if not is_ordered:
            self.headers.append((ORDER, order))

    def _take(self, name: str, text: str, note: Note, is_known: bool) -> int:
        """Reads one user property, and returns the rank at which our own writer would put it."""
        field = note.get("field")
        if isinstance(field, str) and field in CARRIED:
            self.values[field] = _identified_or(field, _restored(text, note), note)
            return HEADER_RANK
        rule = USER.get(name)
        if rule is not None and not is_known and note.get("header") is not True:
            read = _read_field(rule, text, note)
            if read is not None:
                self.values[rule.field] = read
                if rule.field == "created_at" and text_of(read) != text:
                    self.headers.append((CREATED, text))
                return RANKS[name]
        was = note.get("was", name)
        self.headers.append((str(was), _restored(text, note)))
        return HEADER_RANK


# Canonical fields that may be too long for their property: the user property has them, in parts.
CARRIED: Final = {
    "content_type": "x-content-type",
    "reply_to": "x-reply-to",
    "correlation_id": "x-correlation-id",
}


def _by_place(user: Sequence[tuple[str, str]], notes: Sequence[Note]) -> dict[int, Note]:
    wanted = {(note["name"], note.get("nth", 0)): note for note in notes if "name" in note}
    counts: dict[str, int] = {}
    found: dict[int, Note] = {}
    for place, (name, _) in enumerate(user):
        nth = counts[name] = counts.get(name, -1) + 1
        note = wanted.get((name, nth))
        if note is not None:
            found[place] = note
    return found


def _parts(user: Sequence[tuple[str, str]], place: int, note: Note) -> list[str]:
    """Collects the parts of a value: as many as the note says, and no further than the name goes
    on."""
    count = note["parts"]
    parts: list[str] = []
    if not isinstance(count, int):
        return [user[place][1]]
    for name, text in user[place : place + max(1, count)]:
        if name != user[place][0]:
            break
        parts.append(text)
    return parts


def _read_field(rule: Reading, text: str, note: Note) -> object:
    kind = note.get("type")
    if kind is None:
        return rule.convert(text)
    value = _restored(text, note)
    if rule.field == "message_id":
        return _identified_or(rule.field, value, note)
    if isinstance(value, bytes if rule.field == "user_id" and kind == "binary" else str):
        return value
    return rule.convert(text)


def _identified_or(field: str, text: Value, note: Note) -> Value:
    if field not in ("message_id", "correlation_id") or not isinstance(text, str):
        return text
    try:
        return typed_identifier(text, note.get("type"))
    except ValueError:
        return identifier(text)


def _restored(text: str, note: Note) -> Value:
    try:
        return restored(text, note.get("type"))
    except ValueError:
        return text  # the text was changed on the way


def user_priority(user: Sequence[tuple[str, str]]) -> int | None:
    """Returns the priority that user properties ask for; None: they ask for none."""
    for name, text in user:
        if name == "priority":
            if any(other == TYPES for other, _ in user):
                found = UserProperties(user).values.get("priority")
                return found if isinstance(found, int) else None
            return priority(text)
    return None
