"""Reads and writes AMQP 1.0 messages as documents: a transfer's sections, as sent and as
received."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.message_files.document import (
    Document,
    MessageFileError,
    check_keys,
    flag,
    number,
    section,
    text,
)
from protocols.amqp10.addressing.addresses import ExchangeAddress, QueueAddress, parse, topic
from protocols.amqp10.conversion.from_canonical import section as encoded
from protocols.amqp10.conversion.from_canonical import to_wire
from protocols.amqp10.conversion.properties import FORM
from protocols.amqp10.conversion.to_canonical import FIELDS, plain
from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.wire.delivery_sections import header_of, whole
from protocols.amqp10.wire.routing_facts import (
    annotation_facts,
    expiry_of,
    header_facts,
    without_forgery,
)
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_at,
    split,
    value_of,
)
from protocols.amqp10.wire.types import Malformed, Symbol, UByte, UInt, ULong, skip
from queue_core.message.message import Message

KEYS: Final = (
    "address",
    "header",
    "message-annotations",
    "properties",
    "application-properties",
    "body",
    "footer",
    "publisher",
)
HEADER_KEYS: Final = ("durable", "priority", "ttl")
IDS: Final = ("message-id", "correlation-id")
SYMBOLS: Final = ("content-type", "content-encoding")
TIMES: Final = ("absolute-expiry-time", "creation-time")


def read(found: Document, now: float) -> Message:
    check_keys(found, KEYS)
    try:
        return _message(found, now)
    except (Malformed, Amqp10Error) as error:
        raise MessageFileError(str(error)) from None
    except (OverflowError, UnicodeError) as error:
        raise MessageFileError(f"it cannot be written: {error}") from None


def _message(found: Document, now: float) -> Message:
    header, native, annotations, properties, body = split(_encoded(found))
    durable, priority, ttl = header_facts(header)
    expires_at = expiry_of(properties) if properties else None
    not_before = None
    if annotations:
        is_forged, delay, not_before = annotation_facts(annotations)
        if is_forged:
            native = without_forgery(native, annotations)
        if delay is not None:
            not_before = now + delay
    if ttl is not None and expires_at is None:
        expires_at = now + ttl
    exchange, key = _place(text(found, "address", default="topic"))
    return Message(
        body,
        exchange,
        routing_key=key,
        durable=durable,
        form=FORM,
        native=native,
        priority=priority,
        expires_at=expires_at,
        not_before=not_before,
        publisher=text(found, "publisher", default="publisher"),
    )


def _place(address: str) -> tuple[str, str]:
    """Finds the exchange and the key of an address. A bare name is a topic here: which queues there
    are is not known."""
    place = parse(address)
    if isinstance(place, QueueAddress):
        return "", place.name
    found = place if isinstance(place, ExchangeAddress) else topic(address)
    return found.exchange, found.key


def _encoded(found: Document) -> bytes:
    parts = [encoded(HEADER, _header(section(found, "header")))]
    annotations = section(found, "message-annotations")
    if annotations:
        parts.append(encoded(ANNOTATIONS, _symbols(annotations)))
    fields = section(found, "properties")
    check_keys(fields, FIELDS, "properties.")
    if fields:
        values = [_field(name, fields.get(name)) for name in FIELDS]
        parts.append(encoded(PROPERTIES, values))
    application = section(found, "application-properties")
    if application:
        parts.append(encoded(APPLICATION_PROPERTIES, to_wire(application)))
    parts.append(_body(found.get("body", "")))
    if found.get("footer") is not None:
        parts.append(encoded(FOOTER, _symbols(section(found, "footer"))))
    return b"".join(parts)


def _header(given: Document) -> list[object]:
    check_keys(given, HEADER_KEYS, "header.")
    priority = number(given, "priority", "header.", 255)
    ttl = number(given, "ttl", "header.", (1 << 32) - 1)
    return [
        flag(given, "durable", "header.", False),
        None if priority is None else UByte(priority),
        None if ttl is None else UInt(ttl),
    ]


def _symbols(given: Document) -> dict[object, object]:
    return {Symbol(name): to_wire(value) for name, value in given.items()}


def _field(name: str, value: Any) -> object:
    if value is None:
        return None
    where = f"properties.{name}"
    if name in IDS:
        if isinstance(value, bool) or not isinstance(value, str | bytes | int | UUID):
            raise MessageFileError(f"{where}: expected text, a number, $binary or $uuid")
        if not isinstance(value, int):
            return value
        if value < 0:
            raise MessageFileError(f"{where}: a number there has no sign: expected one from 0 on")
        return ULong(value)
    if name in TIMES:
        if not isinstance(value, datetime):
            raise MessageFileError(f"{where}: expected {{'$timestamp': ...}}")
        return value
    if name == "group-sequence":
        return UInt(number({name: value}, name, "properties.", (1 << 32) - 1) or 0)
    if name == "user-id" and isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise MessageFileError(f"{where}: expected text")
    if name == "user-id":
        return value.encode()
    return Symbol(value) if name in SYMBOLS else value


def _body(given: Any) -> bytes:
    if given is None:
        return b""
    if isinstance(given, str | bytes):
        given = {"data": given}
    if not isinstance(given, dict) or len(given) != 1:
        raise MessageFileError(
            "body: expected text, or an object with one of data, value, sequence"
        )
    check_keys(given, ("data", "value", "sequence"), "body.")
    if "value" in given:
        return encoded(VALUE, to_wire(given["value"]))
    kind = "data" if "data" in given else "sequence"
    items = given[kind]
    if kind == "sequence":
        if not isinstance(items, list):
            raise MessageFileError("body.sequence: expected a list")
        return encoded(SEQUENCE, to_wire(items))
    chunks = items if isinstance(items, list) else [items]
    if not all(isinstance(chunk, str | bytes) for chunk in chunks):
        raise MessageFileError("body.data: expected text or $binary, or a list of them")
    raw = [chunk.encode() if isinstance(chunk, str) else chunk for chunk in chunks]
    return b"".join(encoded(DATA, chunk) for chunk in raw)


def write(message: Message, now: float) -> Document:
    data = whole(message, header_of(message, now, True, 0), None)
    found: list[tuple[int, Any]] = []
    position = 0
    while position < len(data):
        code, value = section_at(data, position)
        end = skip(data, value)
        found.append((code, value_of(data[position:end])))
        position = end
    sections = dict(found)
    fields = zip(FIELDS, sections.get(PROPERTIES) or [], strict=False)
    names = (*HEADER_KEYS, "first-acquirer", "delivery-count")
    header = {n: v for n, v in zip(names, sections[HEADER], strict=False) if v is not None}
    document: Document = {
        "header": header,
        "message-annotations": plain(sections.get(ANNOTATIONS) or {}),
        "properties": {n: plain(v) for n, v in fields if v is not None},
        "application-properties": plain(sections.get(APPLICATION_PROPERTIES) or {}),
        "body": _bodies(found),
    }
    if FOOTER in sections:
        document["footer"] = plain(sections[FOOTER])
    return {name: value for name, value in document.items() if value != {} or name == "footer"}


def _bodies(found: list[tuple[int, Any]]) -> Any:
    bodies = [(code, value) for code, value in found if DATA <= code <= VALUE]
    if not bodies:
        return None
    values = [plain(value) for _, value in bodies]
    if bodies[0][0] == DATA:
        return {"data": values[0] if len(values) == 1 else values}
    if bodies[0][0] == VALUE:
        return {"value": values[0]}
    return {"sequence": values[0] if len(values) == 1 else values}
