"""Turns the canonical message into the properties of an MQTT 5 PUBLISH: the rules are a table.

Properties are written when the first MQTT subscriber asks for a message of another protocol, and
are kept with it. `to_canonical` is the way back. No socket and no session is known here.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from protocols.mqtt.conversion.to_canonical import (
    CARRIED,
    ORDER,
    QUEUE_PREFIX,
    TOPIC_SCHEME,
    USER,
    correlation,
    needs_address,
    reply_address,
    user_priority,
)
from protocols.mqtt.wire import primitives as wire
from protocols.mqtt.wire.property_set import PropertySet, encode_property_bytes
from queue_core.message.carried_headers import (
    CREATED,
    PUBLISHER,
    REPLY_ADDRESS,
    TEXT_FLAG,
    TYPES,
    Note,
    Pair,
    notes_text,
    read_notes,
    says_utf8,
)
from queue_core.message.conversion import Envelope, Writing, as_it_is
from queue_core.message.message import Message, Properties, Scalar, Value, type_of_id
from queue_core.message.topic_forms import slashed
from queue_core.message.values_as_text import (
    Dialect,
    identifier_type,
    json_text,
    separated,
    text_of,
    time_of,
)

DEATHS: Final = "x-death"


def octets(value: type_of_id) -> bytes:
    return value if isinstance(value, bytes) else text_of(value).encode()


WRITING: Final = (
    #       canonical           property            conversion  otherwise the user property
    Writing("content_type", "content_type", as_it_is, CARRIED["content_type"]),
    Writing(
        "reply_to",
        "response_topic",
        slashed,
        CARRIED["reply_to"],
        "`$queue/NAME` for a queue, else the topic with slashes",
    ),
    Writing(
        "correlation_id",
        "correlation_data",
        octets,
        CARRIED["correlation_id"],
        "text as UTF-8, a uuid as `urn:uuid:...`, a number in decimal",
    ),
)
USER_WRITING: Final = (
    #       canonical           user property       conversion
    Writing("content_encoding", "content-encoding", text_of),
    Writing(
        "message_id",
        "message-id",
        text_of,
        note="a uuid as `urn:uuid:...`, a number in decimal, bytes as text or as `\\x` and hex",
    ),
    Writing("subject", "subject", text_of),
    Writing("app_id", "app-id", text_of),
    Writing("user_id", "user-id", text_of),
    Writing("group_id", "group-id", text_of),
    Writing("created_at", "created", text_of, note="ISO 8601, in UTC"),
)


def _keeps(value: Scalar) -> bool:
    return isinstance(value, str) and "\0" not in value


ROUNDING_SECONDS: Final = 0.00001  # times since 1970 are exact to less than that
DIALECT: Final = Dialect(_keeps, lambda _: True, nests=False)


class Entry(NamedTuple):
    """A user property to be written."""

    name: str
    value: Value
    kind: object = None  # a type that stands beside its text
    field: str = ""  # the canonical field that it stands for


def seconds_left(expires_at: float, now: float) -> int:
    """Returns the rest of a message's life in seconds: what its publisher gave it, less the whole
    seconds that it has waited [MQTT-3.3.2-6]. A message that is sent at once has all of it: rounded
    down, a second would be none, and the subscriber would take the message for expired."""
    return min(max(0, ceil(expires_at - now - ROUNDING_SECONDS)), 0xFFFF_FFFF)


def qos(durable: bool) -> int:
    """Returns the QoS of a message that another protocol brought."""
    return 1 if durable else 0


ENVELOPE: Final = (
    Envelope("durable", "QoS", bool, qos, "QoS 1 and 2: durable. From elsewhere: QoS 1, or 0"),
    Envelope(
        "expires",
        "message-expiry-interval",
        as_it_is,
        seconds_left,
        "seconds from now on, counted down",
    ),
    Envelope("priority", "user property priority", user_priority, str),
    Envelope(
        "publisher", f"user property {PUBLISHER}", None, as_it_is, "a publisher's own is taken off"
    ),
    Envelope("deaths", f"user property {DEATHS}", None, json_text, "as JSON"),
    Envelope("body", "payload", as_it_is, as_it_is),
)


def built_properties(message: Message, is_queue: bool) -> bytes:
    """Builds the properties of a message that came from another protocol, without its expiry.
    `is_queue`: its reply address is the name of a queue."""
    return encode_property_bytes(property_set(message, is_queue))


def property_set(message: Message, is_queue: bool) -> PropertySet:
    said = message.properties
    headers = list(said.headers)
    notes: list[Note] = []
    found: dict[str, Any] = {"payload_format": _text_flag(said, headers, message.body, notes)}
    too_long: list[Entry] = []
    for rule in WRITING:
        value = getattr(said, rule.field)
        if value is None:
            continue
        written, note = _property(rule, value, headers, is_queue)
        size = len(written if isinstance(written, bytes) else written.encode())
        if size > wire.MAX_FIELD_BYTES:
            too_long.append(_carried(rule, value))
            continue
        found[rule.place] = written
        if note is not None:
            notes.append({"field": rule.field, **note})
    entries = _entries(message, said, headers) + too_long
    user = _user(entries, notes)
    if message.publisher is not None:
        user += _parts(PUBLISHER, message.publisher.replace("\0", "\ufffd"))
    if notes:
        user += _parts(TYPES, notes_text(notes))
    return PropertySet(user=tuple(user), **found)


def _text_flag(said: Properties, headers: list[Pair], body: bytes, notes: list[Note]) -> int | None:
    """Returns the payload format indicator, and takes it off the headers where it is there. A body
    that is no text is not said to be one [MQTT-3.3.2-4]."""
    for place, (name, value) in enumerate(headers):
        if name != TEXT_FLAG or not isinstance(value, int) or value not in (0, 1):
            continue
        if value == 0 or is_text(body):
            del headers[place]
            return None if value is False else int(value)
    if not says_utf8(said.content_type):
        return None
    if is_text(body):
        return 1
    notes.append({"field": TEXT_FLAG})  # it is not left open, but cannot be said
    return None


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _property(
    rule: Writing, value: Any, headers: list[Pair], is_queue: bool
) -> tuple[str | bytes, Note | None]:
    """Returns the value to write, and the note that goes with it."""
    if rule.field == "reply_to":
        is_told = any(name == REPLY_ADDRESS for name, _ in headers)
        topic = _response_topic(value, headers, is_queue)
        if reply_address(topic) != value:
            return topic, {"was": value}
        is_whole = is_told or not needs_address(topic)
        return topic, None if is_whole else {}  # nobody wrote more of it than the key
    if rule.field == "correlation_id":
        data = octets(value)
        return data, None if correlation(data) == value else {"type": _id_type(value)}
    text, kind = separated(value, DIALECT)
    return str(text), None if kind is None else {"type": kind}


def _id_type(value: type_of_id) -> str:
    return identifier_type(value) or "string"


def _response_topic(key: str, headers: list[Pair], is_queue: bool) -> str:
    for place, (name, value) in enumerate(headers):
        if name == REPLY_ADDRESS and value in (QUEUE_PREFIX + key, TOPIC_SCHEME + slashed(key)):
            topic = str(value).removeprefix(TOPIC_SCHEME)
            if "\0" not in topic and reply_address(topic) == key:
                if needs_address(topic):  # else our reader would not say it again
                    del headers[place]
                return topic
    if is_queue and "/" not in key and "\0" not in key:
        return QUEUE_PREFIX + key
    return slashed(key)


def _carried(rule: Writing, value: Any) -> Entry:
    kind = identifier_type(value) if rule.field == "correlation_id" else None
    return Entry(rule.otherwise, text_of(value), kind, rule.field)


def _entries(message: Message, said: Properties, headers: list[Pair]) -> list[Entry]:
    entries: list[Entry] = []
    for rule in USER_WRITING:
        value = getattr(said, rule.field)
        if value is None:
            continue
        text: str = rule.convert(value)
        if rule.field == "created_at":
            text = _spelled(value, headers) or text
        kind = None
        if rule.field == "message_id":
            kind = identifier_type(value)
        elif isinstance(value, bytes):
            kind = "binary"
        entries.append(Entry(rule.place, text, kind, rule.field))
    if message.priority is not None:
        entries.append(Entry("priority", str(message.priority), None, "priority"))
    order = _order(headers)
    entries += [Entry(name, value) for name, value in headers]
    if order is not None:
        entries = _ordered(entries, order)
    if message.deaths:
        entries.append(Entry(DEATHS, msgspec.json.encode(message.deaths).decode()))
    return entries


def _spelled(time: datetime, headers: list[Pair]) -> str | None:
    """Takes the time as an MQTT publisher wrote it off the headers."""
    for place, (name, value) in enumerate(headers):
        if name == CREATED and isinstance(value, str) and "\0" not in value:
            try:
                is_same = time_of(value) == time
            except ValueError:
                continue
            if is_same:
                del headers[place]
                return value
    return None


def _order(headers: list[Pair]) -> list[str] | None:
    for place, (name, value) in enumerate(headers):
        if name == ORDER and isinstance(value, list):
            names = [each for each in value if isinstance(each, str)]
            if len(names) == len(value):
                del headers[place]
                return names
    return None


def _ordered(entries: list[Entry], order: list[str]) -> list[Entry]:
    """Puts user properties into the listed order. Properties of one name stay in their order, and
    those that the list does not know come last."""
    by_name: dict[str, list[Entry]] = {}
    for entry in reversed(entries):
        by_name.setdefault(entry.name, []).append(entry)
    first = [by_name[name].pop() for name in order if by_name.get(name)]
    taken = {id(entry) for entry in first}
    return first + [entry for entry in entries if id(entry) not in taken]


def _user(entries: list[Entry], notes: list[Note]) -> list[tuple[str, str]]:
    """Returns the user properties, and adds to the notes. A publisher's own property that is named
    as the notes are keeps its name where there are no notes."""
    own = [str(entry.value) for entry in entries if entry.name == TYPES]
    if own and not notes and read_notes("".join(own)) is None:
        user, added = _written(entries, (PUBLISHER,))
        if not added:
            return user
    user, added = _written(entries, (PUBLISHER, TYPES))
    notes += added
    return user


def _written(
    entries: list[Entry], gateway_names: tuple[str, ...]
) -> tuple[list[tuple[str, str]], list[Note]]:
    user: list[tuple[str, str]] = []
    notes: list[Note] = []
    counts: dict[str, int] = {}
    for entry in entries:
        value, kind = separated(entry.value, DIALECT)
        text, kind = str(value), kind if kind is not None else entry.kind
        name = entry.name
        note: Note = {} if kind is None else {"type": kind}
        if name in gateway_names:
            note["was"], name = name, f"{name}-header"
        elif "\0" in name or len(name.encode()) > wire.MAX_FIELD_BYTES:
            note["was"], name = name, _holdable(name)
        parts = _parts(name, text)
        nth = counts.get(name, 0)
        if len(parts) > 1:
            note["parts"] = len(parts)
        if not entry.field and _looks_like_field(name, text, nth):
            note["header"] = True
        if entry.field in CARRIED:
            note["field"] = entry.field
        if note:
            notes.append({"name": name, **({"nth": nth} if nth else {}), **note})
        counts[name] = nth + len(parts)
        user += parts
    return user, notes


def _holdable(name: str) -> str:
    """Cuts a name down to as much as MQTT can write."""
    name = name.replace("\0", "\ufffd")
    return name.encode()[: wire.MAX_FIELD_BYTES].decode(errors="ignore")


def _looks_like_field(name: str, text: str, nth: int) -> bool:
    rule = USER.get(name)
    return rule is not None and nth == 0 and rule.convert(text) is not None


def _parts(name: str, text: str) -> list[tuple[str, str]]:
    """Cuts a value that is too long for one user property into several of the same name."""
    if len(text) <= wire.MAX_FIELD_BYTES // 4:
        return [(name, text)]
    raw, parts = text.encode(), []
    while len(raw) > wire.MAX_FIELD_BYTES:
        part = raw[: wire.MAX_FIELD_BYTES].decode(errors="ignore")
        parts.append((name, part))
        raw = raw[len(part.encode()) :]
    return [*parts, (name, raw.decode())]
