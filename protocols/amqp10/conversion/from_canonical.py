"""The canonical message as AMQP 1.0 writes it: the rules, as a table.

Written when the first 1.0 consumer asks for a message of another protocol, and kept with it.
`to_canonical` is the way back. Knows no socket and no link.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from protocols.amqp10.addressing.addresses import reply_address_of, reply_key, topic_address
from protocols.amqp10.conversion.to_canonical import (
    ADDED,
    ALIASES,
    APP_ID,
    BODY,
    CONTENT_TYPE,
    DATA,
    FIELDS,
    FOOTER,
    PLACES,
    TEXT_TYPE,
    VALUE_TYPE,
    headers_table,
    is_annotation,
    says_more,
)
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    PROPERTIES,
    Shape,
    data_opening,
    is_encoded_body,
    prefix_of,
    text_opening,
)
from protocols.amqp10.wire.sections import FOOTER as FOOTER_SECTION
from protocols.amqp10.wire.types import Described, Symbol, UByte, UInt, ULong, encode
from queue_core.message.carried_headers import (
    CREATED,
    PUBLISHER,
    REPLY_ADDRESS,
    TEXT_FLAG,
    Pair,
    packed,
    says_utf8,
)
from queue_core.message.conversion import Envelope, Writing, as_it_is
from queue_core.message.message import Message, Properties, Value, type_of_id

MAX_TTL_MS: Final = (1 << 32) - 1
MAX_DATA_SECTIONS: Final = 65_535


def symbol(value: str) -> Symbol | None:
    return Symbol(value) if value.isascii() else None


def octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode(errors="replace")


def identifier(value: type_of_id) -> object:
    """Typed."""
    if isinstance(value, int):
        return ULong(value) if 0 <= value < 1 << 64 else str(value)
    return value


def nowhere(value: object) -> None:
    """Writes no property: the value always travels as an annotation."""


ID_NOTE: Final = "typed: string, binary, ulong or uuid"
SYMBOLS: Final = "an annotation when it is not ASCII"

WRITING: Final = (
    #       canonical           property            conversion  otherwise the annotation
    Writing("message_id", "message-id", identifier, note=ID_NOTE),
    Writing("user_id", "user-id", octets),
    Writing("subject", "subject", as_it_is),
    Writing(
        "reply_to",
        "reply-to",
        reply_address_of,
        note=f"as `{REPLY_ADDRESS}` has it, else the bare name: the queue of that name, or a topic "
        "(with a slash inside a word: `/exchanges/amq.topic/:key`)",
    ),
    Writing("correlation_id", "correlation-id", identifier, note=ID_NOTE),
    Writing("content_type", "content-type", symbol, "x-content-type", SYMBOLS),
    Writing("content_encoding", "content-encoding", symbol, "x-content-encoding", SYMBOLS),
    Writing("created_at", "creation-time", as_it_is, CREATED, "milliseconds; what is finer beside"),
    Writing("group_id", "group-id", as_it_is),
    Writing("app_id", "", nowhere, APP_ID),
)


def ttl(expires_at: float, now: float) -> UInt:
    """Whole milliseconds from now on."""
    return UInt(max(0, min(MAX_TTL_MS, round((expires_at - now) * 1000))))


def priority(value: int) -> UByte:
    return UByte(min(255, value))


ENVELOPE: Final = (
    Envelope("durable", "header.durable", bool, bool),
    Envelope(
        "expires",
        "header.ttl",
        as_it_is,
        ttl,
        "milliseconds from now on, counted down; a sender's absolute-expiry-time wins",
    ),
    Envelope("priority", "header.priority", as_it_is, priority),
    Envelope("publisher", f"annotation {PUBLISHER}", None, as_it_is, "a sender's own is taken off"),
    Envelope("deaths", "annotation x-opt-deaths", None, as_it_is),
    Envelope(
        "body",
        "data",
        as_it_is,
        as_it_is,
        f"an amqp-value string is text; other values and sequences travel encoded, as "
        f"`{VALUE_TYPE}`, and are decoded again for 1.0",
    ),
)


class Built(NamedTuple):
    """A message of another protocol, as if a 1.0 sender had written it."""

    sections: bytes
    opening: bytes  # before the body; nothing when the body is sections itself
    native: bytes  # what the core would keep of it


class Headers:
    """A message's headers, from which is taken off what is no header here."""

    __slots__ = ("names", "pairs")

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = list(pairs)
        self.names = {name for name, _ in pairs}

    def take(self, name: str, is_ours: Callable[[Value], bool]) -> Any:
        """The last of that name, if it is what it should be."""
        if name not in self.names:
            return None
        pairs = self.pairs
        for place in range(len(pairs) - 1, -1, -1):
            if pairs[place][0] == name and is_ours(pairs[place][1]):
                return pairs.pop(place)[1]
        return None


def build(message: Message, queues: Container[str] | None = None) -> Built:
    """`queues`: the names of those there are, for what may be a queue or a topic."""
    said = message.properties
    headers = Headers(said.headers)
    places = headers.take(PLACES, lambda value: isinstance(value, Mapping)) or {}
    assert isinstance(places, Mapping)
    fields: dict[str, object] = {}
    carried: dict[str, Value] = {}
    for rule in WRITING:
        value = getattr(said, rule.field)
        if value is None:
            continue
        written = rule.convert(value)
        if written is None:
            carried[rule.otherwise] = value
        else:
            fields[rule.place] = written
    _restore_aliases(headers, places, fields)
    if said.reply_to is not None:
        address = headers.take(REPLY_ADDRESS, lambda value: _leads_to(value, said.reply_to))
        fields["reply-to"] = address or _reply_address(said.reply_to, queues)
    if said.created_at is not None:
        _carry_time(said, headers, carried)
    shape = _shape(message.body, headers, fields, carried)
    annotations, application = _sections(headers.pairs, places, fields, carried, said.created_at)
    sections = _encode_sections(annotations, fields, application)
    opening = shape.opening if shape.opening or shape.kind else data_opening(len(message.body))
    return Built(sections, opening, prefix_of(shape) + sections)


def _reply_address(key: str, queues: Container[str] | None) -> str:
    """A bare name is the queue of that name, or a topic in either form; with a slash inside a word,
    it would be read as another one."""
    if queues is not None and reply_key(key) != key and key not in queues:
        return topic_address(key)
    return reply_address_of(key)


def _leads_to(value: Value, key: str | None) -> bool:
    return isinstance(value, str) and reply_key(value) == key


def _restore_aliases(
    headers: Headers, places: Mapping[str, Value], fields: dict[str, object]
) -> None:
    """Restores properties that the core only carries."""
    if ALIASES.keys().isdisjoint(headers.names):
        return
    names = [name for name, _ in headers.pairs]
    for name, rule in ALIASES.items():
        if places.get(name) == "annotations" and names.count(name) == 1:
            continue
        value = headers.take(name, lambda value, rule=rule: rule.convert(value) is not None)  # type: ignore[misc]
        if value is not None:
            fields[rule.place] = UInt(value) if rule.place == "group-sequence" else value


def _carry_time(said: Properties, headers: Headers, carried: dict[str, Value]) -> None:
    spelled = headers.take(CREATED, lambda value: says_more(value, said.created_at))
    if spelled is not None:
        carried[CREATED] = spelled
    elif said.created_at is not None and said.created_at.microsecond % 1000:
        carried[CREATED] = said.created_at.isoformat()


def _shape(
    body: bytes, headers: Headers, fields: dict[str, object], carried: dict[str, Value]
) -> Shape:
    """Finds how the body's sections are written."""
    footer = headers.take(FOOTER, lambda value: isinstance(value, Mapping))
    foot = b"" if footer is None else section(FOOTER_SECTION, _symbols(footer))
    if fields.get("content-type") == VALUE_TYPE and is_encoded_body(body):
        before = headers.take(CONTENT_TYPE, lambda value: isinstance(value, str))
        del fields["content-type"]
        if before is not None:
            _set_content_type(before, fields, carried)
        return Shape.encoded(foot)
    sizes = headers.take(DATA, lambda value: _are_sizes(value, len(body)))
    if sizes is not None:
        return Shape.cut(sizes, foot)
    flag = None
    if TEXT_FLAG in headers.names:
        flag = next((v for n, v in headers.pairs if n == TEXT_FLAG and type(v) is int), None)
    is_said = flag == 1 or (flag is None and says_utf8(fields.get("content-type")))
    if is_said and _is_utf8(body):
        if headers.take(BODY, lambda value: value == "value") is not None:
            headers.take(TEXT_FLAG, lambda value: value == 1)
            return Shape.opened(text_opening(len(body)), foot)
        if "content-type" not in fields and "x-content-type" not in carried:
            headers.take(TEXT_FLAG, lambda value: value == 1)
            fields["content-type"] = Symbol(TEXT_TYPE)
            carried[ADDED] = True
    return Shape.plain(foot)


def _set_content_type(value: str, fields: dict[str, object], carried: dict[str, Value]) -> None:
    if value.isascii():
        fields["content-type"] = Symbol(value)
    else:
        carried["x-content-type"] = value


def _are_sizes(value: Value, total: int) -> bool:
    return (
        isinstance(value, list)
        and 1 < len(value) <= MAX_DATA_SECTIONS
        and all(type(size) is int and 0 <= size < 1 << 32 for size in value)
        and sum(value) == total
    )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sections(
    pairs: list[Pair],
    places: Mapping[str, Value],
    fields: Mapping[str, object],
    carried: Mapping[str, Value],
    created: datetime | None,
) -> tuple[dict[object, object], dict[object, object]]:
    """The annotations and the application properties."""

    def in_annotations(name: str) -> bool:
        place = places.get(name)
        if place in ("application", "annotations"):
            return place == "annotations" and name.isascii()
        return is_annotation(name) if place != "both" else False

    annotations: dict[object, object] = {}
    if "both" in places.values():
        for place in range(len(pairs) - 1, -1, -1):
            name, value = pairs[place]
            is_second = any(name == other for other, _ in pairs[:place])
            if places.get(name) == "both" and is_second and name.isascii():
                annotations.setdefault(Symbol(name), to_wire(value))
                del pairs[place]
    application: dict[object, object] = {}
    if pairs or carried:
        table = headers_table(in_annotations, fields, created)
        for name, value in packed(pairs, table, carried).items():
            if name in carried or in_annotations(name):
                annotations[Symbol(name)] = to_wire(value)
            else:
                application[name] = to_wire(value)
    return annotations, application


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


def _symbols(value: Mapping[str, Value]) -> dict[object, object]:
    return {Symbol(name) if name.isascii() else name: to_wire(item) for name, item in value.items()}


def to_wire(value: Value) -> object:
    """A header's value as AMQP 1.0 has it."""
    if isinstance(value, Mapping):
        return {str(name): to_wire(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in value]
    return value
