"""Between AMQP 1.0's sections and the canonical properties, both ways.

What has no place of its own here travels as a message annotation, what has none in the core as a
header with a name from `CARRIED`, and is put back where it came from on the way out. No socket, no
link: the store reads messages back with this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from protocols.amqp10.addresses import reply_key
from protocols.amqp10.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    ENCODED,
    PROPERTIES,
    Shape,
    data_opening,
    is_encoded_body,
    section_at,
    shape_of,
    text_opening,
    value_of,
)
from protocols.amqp10.types import (
    Char,
    Described,
    Float,
    Malformed,
    Opaque,
    Symbol,
    UInt,
    ULong,
    encode,
    skip,
)
from queue_core.message import NO_PROPERTIES, Message, Properties, Value

MAX_KEPT: Final = 4096
MAX_KEPT_BYTES: Final = 1024

VALUE_TYPE: Final = "application/vnd.howdah.amqp-value"  # a body that is encoded sections
TEXT_TYPE: Final = "text/plain;charset=utf-8"
PUBLISHER: Final = "x-publisher-id"
FORMAT: Final = "x-payload-format"  # 1: the body is text; MQTT's payload format indicator
BODY: Final = "x-amqp10-body"  # "value": text that was an amqp-value string
CONTENT_TYPE: Final = "x-amqp10-content-type"  # of a body that travels as VALUE_TYPE
URN: Final = "urn:uuid:"

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
PLACES: Final = {  # field -> canonical
    "message-id": "message_id",
    "user-id": "user_id",
    "subject": "subject",
    "reply-to": "reply_to",
    "correlation-id": "correlation_id",
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "creation-time": "created_at",
    "group-id": "group_id",
}
CARRIED: Final = {  # field without a canonical place -> the header that carries it
    "to": "x-to",
    "absolute-expiry-time": "x-absolute-expiry-time",
    "group-sequence": "x-group-sequence",
    "reply-to-group-id": "x-reply-to-group-id",
}
APP_ID: Final = "x-app-id"
REPEATED: Final = "x-repeated-headers"  # names and values in order, when a name is repeated


class Amqp10Form:
    """Implements the core's `Form`."""

    code = 4

    def __init__(self) -> None:
        self._kept: dict[bytes, Properties] = {}

    def properties(self, native: bytes) -> Properties:
        if not native:
            return NO_PROPERTIES
        known = self._kept.get(native)
        if known is None:
            known = canonical(shape_of(native))
            if len(native) <= MAX_KEPT_BYTES:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[native] = known
        return known


FORM: Final = Amqp10Form()


# --- to the canonical


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
    """What the sections say, in no protocol's terms."""
    annotations, fields, application = contents_of(shape.sections)
    values: dict[str, object] = {}
    headers: list[tuple[str, Value]] = []
    for field, value in fields.items():
        place, carrier = PLACES.get(field), CARRIED.get(field)
        if place is not None and _fits(place, value):
            values[place] = _plain_string(value)
        else:
            headers.append((carrier or f"x-{field}", plain(value)))
    if "reply_to" in values:
        values["reply_to"] = reply_key(str(values["reply_to"]))
    for name, value in application.items():
        headers.append((str(name), plain(value)))
    for name, value in annotations.items():
        if str(name) == APP_ID and isinstance(value, str):
            values["app_id"] = str(value)
        elif str(name) != PUBLISHER:
            headers.append((str(name), plain(value)))
    headers += _said_of_body(shape, values)
    return Properties(headers=_unrepeated(headers), **values)  # type: ignore[arg-type]


def _said_of_body(shape: Shape, values: dict[str, object]) -> list[tuple[str, Value]]:
    if shape.is_text:
        return [(FORMAT, 1), (BODY, "value")]
    if shape.kind == ENCODED:
        before = values.get("content_type")
        values["content_type"] = VALUE_TYPE
        if isinstance(before, str):
            return [(CONTENT_TYPE, before)]
    return []


def _unrepeated(headers: list[tuple[str, Value]]) -> tuple[tuple[str, Value], ...]:
    """Back from `REPEATED`, in which another protocol's repeated names travel."""
    said = dict(headers).get(REPEATED)
    if not isinstance(said, list):
        return tuple(headers)
    pairs = [tuple(pair) for pair in said if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(said) or not all(isinstance(name, str) for name, _ in pairs):
        return tuple(headers)
    names = {name for name, _ in pairs}
    return (*pairs, *((n, v) for n, v in headers if n not in names and n != REPEATED))


def _fits(place: str, value: object) -> bool:
    if place in ("message_id", "correlation_id"):
        return isinstance(value, str | bytes | int | UUID) and not isinstance(value, bool)
    if place == "user_id":
        return isinstance(value, bytes | str)
    if place == "created_at":
        return isinstance(value, datetime)
    return isinstance(value, str)


def _plain_string(value: object) -> object:
    """Our own subclasses of str and int stay inside this package."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


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


# --- from the canonical


class Written(NamedTuple):
    """A message of another protocol, as 1.0 writes it."""

    sections: bytes
    opening: bytes


_WRITTEN: Final = object()  # the key in `Message.encoded`


def written(message: Message) -> Written:
    """Built once, and kept."""
    encoded = message.encoded
    if encoded is None:
        encoded = message.encoded = {}
    known = encoded.get(_WRITTEN)
    if known is None:
        known = encoded[_WRITTEN] = build(message)
    assert isinstance(known, Written)
    return known


def build(message: Message) -> Written:
    said = message.properties
    annotations: dict[object, object] = {}
    application: dict[object, object] = {}
    fields: dict[str, object] = {}
    for name, value in said.headers:
        into = annotations if name.startswith("x-") else application
        into.setdefault(Symbol(name) if into is annotations else name, to_wire(value))
    if len(annotations) + len(application) < len(said.headers):
        annotations[Symbol(REPEATED)] = [[name, to_wire(value)] for name, value in said.headers]
    _restore(annotations, fields)
    for field, place in PLACES.items():
        value = getattr(said, place)
        if value is not None:
            fields[field] = _field(field, value)
    if said.app_id is not None:
        annotations[Symbol(APP_ID)] = said.app_id
    opening = _opening(message.body, annotations, fields)
    return Written(_encode_sections(annotations, fields, application), opening)


def _restore(annotations: dict[object, object], fields: dict[str, object]) -> None:
    """What an earlier 1.0 publisher said, and another protocol only carried."""
    for field, name in CARRIED.items():
        value = annotations.get(Symbol(name))
        if value is None or not _belongs(field, value):
            continue
        del annotations[Symbol(name)]
        fields[field] = UInt(int(value)) if field == "group-sequence" else value  # type: ignore[call-overload]


def _belongs(field: str, value: object) -> bool:
    if field == "group-sequence":
        return isinstance(value, int) and 0 <= value < 1 << 32 and not isinstance(value, bool)
    return isinstance(value, datetime if field == "absolute-expiry-time" else str)


def _opening(body: bytes, annotations: dict[object, object], fields: dict[str, object]) -> bytes:
    """How the body's sections begin; nothing when the body is sections itself."""
    was_value = annotations.pop(Symbol(BODY), None) == "value"
    is_text = annotations.pop(Symbol(FORMAT), None) == 1
    if fields.get("content-type") == VALUE_TYPE and is_encoded_body(body):
        before = annotations.pop(Symbol(CONTENT_TYPE), None)
        del fields["content-type"]
        if isinstance(before, str):
            fields["content-type"] = Symbol(before)
        return b""
    if is_text and _is_utf8(body):
        if was_value:
            return text_opening(len(body))
        fields.setdefault("content-type", Symbol(TEXT_TYPE))
    return data_opening(len(body))


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


_ASCII: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


def _field(field: str, value: object) -> object:
    if field in ("content-type", "content-encoding"):
        return Symbol(value) if _ASCII.fullmatch(str(value)) else str(value)
    if field == "user-id":
        return value.encode() if isinstance(value, str) else value
    if field in ("message-id", "correlation-id"):
        return _identifier(value)
    return value


def _identifier(value: object) -> object:
    """Typed: a uuid comes back from its URN, a number that fits is a ulong."""
    if isinstance(value, str) and value.startswith(URN):
        try:
            return UUID(value[len(URN) :])
        except ValueError:
            return value
    if isinstance(value, int):
        return ULong(value) if 0 <= value < 1 << 64 else str(value)
    return value


def _encode_sections(
    annotations: dict[object, object], fields: dict[str, object], application: dict[object, object]
) -> bytes:
    sections = b""
    if annotations:
        sections += section(ANNOTATIONS, annotations)
    if fields:
        last = max(FIELDS.index(name) for name in fields)
        sections += section(PROPERTIES, [fields.get(name) for name in FIELDS[: last + 1]])
    if application:
        sections += section(APPLICATION_PROPERTIES, application)
    return sections


def section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


def to_wire(value: Value) -> object:
    """A header's value as AMQP 1.0 has it."""
    if isinstance(value, Mapping):
        return {str(name): to_wire(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in value]
    if isinstance(value, float) and not isinstance(value, Float):
        return float(value)
    return value
