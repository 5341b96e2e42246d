"""AMQP 1.0's sections as the canonical message has them: the rules, as a table.

Read when the first consumer of another protocol, the database or a headers exchange asks, and kept
by the sections' bytes. `from_canonical` is the way back. Knows no socket and no link.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from protocols.amqp10.addressing.addresses import reply_address_of, reply_key
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    ENCODED,
    MANY_SECTIONS,
    PROPERTIES,
    Shape,
    section_at,
    value_of,
)
from protocols.amqp10.wire.types import Char, Described, Malformed, Opaque, Symbol, skip
from queue_core.message.carried_headers import (
    CREATED,
    PUBLISHER,
    REPEATED,
    REPLY_ADDRESS,
    TEXT_FLAG,
    TYPES,
    Pair,
    Table,
    says_utf8,
    unpacked,
)
from queue_core.message.conversion import Reading, text_only
from queue_core.message.message import Properties, Scalar, Value, type_of_id
from queue_core.message.values_as_text import Dialect, text_of, time_of

VALUE_TYPE: Final = "application/vnd.howdah.amqp-value"  # a body that is encoded sections
TEXT_TYPE: Final = "text/plain;charset=utf-8"
BODY: Final = "x-amqp10-body"  # "value": text that was an amqp-value string
DATA: Final = "x-amqp10-data"  # the sizes of several data sections
FOOTER: Final = "x-amqp10-footer"
CONTENT_TYPE: Final = "x-amqp10-content-type"  # of a body that travels as VALUE_TYPE
PLACES: Final = "x-amqp10-places"  # names that stand in another section than such names usually do
ADDED: Final = "x-content-type-added"  # TEXT_TYPE is ours: the publisher named none
APP_ID: Final = "x-app-id"
STAMPED: Final = frozenset((PUBLISHER, "x-exchange", "x-routing-key"))  # anew for each delivery

FIELDS: Final = (  # of the properties section, in the order of the wire
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)


def identifier(value: object) -> type_of_id | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, bytes | UUID) else None


def user(value: object) -> str | bytes | None:
    """Text where it is text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return text_only(value)


def reply_address(value: object) -> str | None:
    return reply_key(str(value)) if isinstance(value, str) else None


def time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


def sequence(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        return None
    return int(value)


ID_NOTE: Final = "typed: string, binary, ulong or uuid"

READING: Final = (
    #       property                canonical           conversion      otherwise the header
    Reading("message-id", "message_id", identifier, "x-message-id", ID_NOTE),
    Reading("user-id", "user_id", user, "x-user-id", "refused unless it is the login's own"),
    Reading("to", "x-to", text_only, "x-to"),
    Reading("subject", "subject", text_only, "x-subject"),
    Reading(
        "reply-to",
        "reply_to",
        reply_address,
        "x-reply-to",
        f"the queue's name or the topic's key; an address that says more travels as "
        f"`{REPLY_ADDRESS}` beside it",
    ),
    Reading("correlation-id", "correlation_id", identifier, "x-correlation-id", ID_NOTE),
    Reading("content-type", "content_type", text_only, "x-content-type"),
    Reading("content-encoding", "content_encoding", text_only, "x-content-encoding"),
    Reading(
        "absolute-expiry-time",
        "x-absolute-expiry-time",
        time,
        "x-absolute-expiry-time",
        "also when the message expires",
    ),
    Reading("creation-time", "created_at", time, "x-creation-time", "milliseconds"),
    Reading("group-id", "group_id", text_only, "x-group-id"),
    Reading("group-sequence", "x-group-sequence", sequence, "x-group-sequence"),
    Reading("reply-to-group-id", "x-reply-to-group-id", text_only, "x-reply-to-group-id"),
)
BY_PLACE: Final = {rule.place: rule for rule in READING}
# Headers that stand for a property: also those that another protocol's publisher wrote.
ALIASES: Final = {rule.field: rule for rule in READING if rule.field.startswith("x-")}


def keeps(value: Scalar) -> bool:
    """Whether AMQP 1.0 has a type that gives this value back as it was."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -(1 << 63) <= value < 1 << 64
    if isinstance(value, datetime):
        return value.microsecond % 1000 == 0
    return value is None or isinstance(value, bool | float | str | bytes | UUID)


DIALECT: Final = Dialect(keeps, lambda _: True)


def is_annotation(name: str) -> bool:
    """Whether a header of that name is written as an annotation: `x-` names are, whose keys are
    symbols; all others are application properties."""
    return name.startswith("x-") and name.isascii()


def headers_table(
    in_annotations: Callable[[str], bool], present: Collection[str], created: object
) -> Table:
    """Makes the table by which headers are read beside these properties."""

    def is_claimed(name: str, value: Value) -> bool:
        if name not in CLAIMS or not in_annotations(name):
            return False
        if name == CREATED:
            return says_more(value, created)
        if name == APP_ID:
            return isinstance(value, str)
        if name in ASCII_FIELDS:
            is_odd = isinstance(value, str) and not value.isascii()
            return is_odd and ASCII_FIELDS[name] not in present
        return True

    return Table(DIALECT, is_claimed, CLAIMABLE, lambda name: int(in_annotations(name)))


ASCII_FIELDS: Final = {"x-content-type": "content-type", "x-content-encoding": "content-encoding"}
CLAIMS: Final = frozenset((CREATED, APP_ID, ADDED, *ASCII_FIELDS, *STAMPED))
CLAIMABLE: Final = CLAIMS | {TYPES, REPEATED}


def says_more(value: object, created: object) -> bool:
    """Whether a text is that time, to less than a millisecond or as somebody else writes it."""
    if not isinstance(value, str) or not isinstance(created, datetime):
        return False
    try:
        found = time_of(value)
    except ValueError:
        return False
    is_finer = found.microsecond % 1000 != 0 or value != text_of(found)
    return is_finer and whole_milliseconds(found) == whole_milliseconds(created)


def whole_milliseconds(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=moment.microsecond // 1000 * 1000)


class Contents(NamedTuple):
    """The sections of a message, read."""

    annotations: dict[object, object]
    properties: dict[str, object]
    application: dict[object, object]


def contents_of(sections: bytes) -> Contents:
    """Raises Malformed."""
    found: dict[int, object] = {}
    position = 0
    while position < len(sections):
        code, value = section_at(sections, position)
        end = skip(sections, value)
        found[code] = value_of(sections[position:end])
        position = end
    fields = found.get(PROPERTIES) or []
    annotations = found.get(ANNOTATIONS) or {}
    application = found.get(APPLICATION_PROPERTIES) or {}
    if not (
        isinstance(fields, list) and isinstance(annotations, dict) and isinstance(application, dict)
    ):
        raise Malformed("properties that are no list, or annotations that are no map")
    return Contents(
        annotations,
        {n: v for n, v in zip(FIELDS, fields, strict=False) if v is not None},
        application,
    )


def canonical(shape: Shape) -> Properties:
    """Reads the sections into no protocol's terms."""
    contents = contents_of(shape.sections)
    values: dict[str, object] = {}
    carried: list[Pair] = []
    for field, value in contents.properties.items():
        rule = BY_PLACE[field]
        read = rule.convert(value)
        if read is None:
            carried.append((rule.otherwise, plain(value)))
        elif rule.field.startswith("x-"):
            carried.append((rule.field, read))
        else:
            values[rule.field] = read
    reply_to = contents.properties.get("reply-to")
    if isinstance(reply_to, str) and reply_address_of(str(values["reply_to"])) != reply_to:
        carried.append((REPLY_ADDRESS, str(reply_to)))
    headers: list[Pair] = []
    if contents.annotations or contents.application:
        headers = _headers(contents, values)
    headers += carried
    _read_body(shape, values, headers)
    return Properties(headers=tuple(headers), **values)  # type: ignore[arg-type]


def _headers(contents: Contents, values: dict[str, object]) -> list[Pair]:
    application = {str(name): plain(value) for name, value in contents.application.items()}
    annotations = {str(name): plain(value) for name, value in contents.annotations.items()}
    twice = application.keys() & annotations.keys() if application else ()
    found = {**application, **annotations} if annotations else application
    if not twice and CLAIMABLE.isdisjoint(found):
        plain_headers: list[Pair] = list(found.items())
        places = _unusual(application, annotations, plain_headers)
        return [*plain_headers, (PLACES, places)] if places else plain_headers
    for name in twice:
        found[name] = application[name]
    created = contents.properties.get("creation-time")

    def in_annotations(name: str) -> bool:
        return name in annotations or (name not in application and is_annotation(name))

    table = headers_table(in_annotations, contents.properties, created)
    headers, claimed, notes = unpacked(found, table)
    del notes  # all ids have their types here
    headers += [(name, annotations[name]) for name in twice]
    headers += _take_claimed(claimed, values)
    places = _unusual(application, annotations, headers)
    if places:
        headers.append((PLACES, places))
    return headers


def _unusual(
    application: Mapping[str, Value], annotations: Mapping[str, Value], headers: list[Pair]
) -> dict[str, Value]:
    """Names that we would write into another section, of those that are headers."""
    is_usual = not any(map(is_annotation, application)) and not any(map(_is_unusual, annotations))
    if is_usual and annotations.keys().isdisjoint(application):
        return {}
    places: dict[str, Value] = {}
    for name, value in dict(reversed(headers)).items():
        if name in application and name in annotations:
            places[name] = "both"
        elif name in application and is_annotation(name):
            places[name] = "application"
        elif name in annotations and (not is_annotation(name) or _is_alias(name, value)):
            places[name] = "annotations"
    return places


def _is_unusual(name: str) -> bool:
    return not is_annotation(name) or name in ALIASES


def _is_alias(name: str, value: Value) -> bool:
    rule = ALIASES.get(name)
    return rule is not None and rule.convert(value) is not None


def _take_claimed(claimed: dict[str, Value], values: dict[str, object]) -> list[Pair]:
    """Puts into `values` what annotations carried; gives back what is a header besides."""
    left: list[Pair] = []
    for name, value in claimed.items():
        if name == APP_ID:
            values["app_id"] = value
        elif name in ASCII_FIELDS:
            values[ASCII_FIELDS[name].replace("-", "_")] = value
        elif name == CREATED:
            moment = time_of(str(value))
            values["created_at"] = moment
            if text_of(moment) != value:
                left.append((name, value))  # another way to write it, which MQTT gets back
        elif name == ADDED and values.get("content_type") == TEXT_TYPE:
            del values["content_type"]
            left.append((TEXT_FLAG, 1))
    return left


def _read_body(shape: Shape, values: dict[str, object], headers: list[Pair]) -> None:
    """Reads the body's form, for protocols that have no such forms."""
    if shape.is_text:
        is_said = any(name == TEXT_FLAG for name, _ in headers)
        if not is_said and not says_utf8(values.get("content_type")):
            headers.append((TEXT_FLAG, 1))
        headers.append((BODY, "value"))
    elif shape.kind == ENCODED:
        before = values.get("content_type")
        values["content_type"] = VALUE_TYPE
        if isinstance(before, str):
            headers.append((CONTENT_TYPE, before))
    elif shape.kind == MANY_SECTIONS:
        headers.append((DATA, [size for _, size in shape.many]))
    if shape.footer:
        headers.append((FOOTER, plain(value_of(shape.footer))))


def plain(value: object) -> Value:
    """A value of AMQP 1.0 in the core's terms."""
    match value:
        case None | bool():
            return value
        case Symbol() | Char() | str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes() | datetime() | UUID():
            return value
        case list():
            return [plain(item) for item in value]
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case Described():
            return {"descriptor": plain(value.descriptor), "value": plain(value.value)}
        case Opaque():
            return value.data
    return str(value)
