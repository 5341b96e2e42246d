"""Converts messages to rows, and rows to messages.

A row has typed columns for people, Spark and SQL, and `native` for the protocol that it came from:
read back, a message is what its publisher sent, byte for byte. No row type leaves the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from queue_core.delivery.consumer import Entry
from queue_core.message.message import (
    CANONICAL,
    NO_PROPERTIES,
    AmendingForm,
    Death,
    Form,
    Message,
    Properties,
    Value,
    utc,
)
from queue_core.message.values_as_text import text_of

# What every row has.
NARROW: Final = (
    "segment_id",
    "queue_id",
    "offset",
    "enqueued_at",
    "durable",
    "exchange",
    "routing_key",
    "publisher",
    "form",
    "native",
    "body",
)
BODY: Final = NARROW.index("body")
# What a row has besides when its message says more than where it goes.
RICH: Final = (
    "body_id",
    "not_before",
    "deaths",
    "delivery",
    "expires_at",
    "priority",
    "content_type",
    "content_encoding",
    "message_id",
    "correlation_id",
    "reply_to",
    "subject",
    "app_id",
    "user_id",
    "group_id",
    "created_at",
    "headers",
)
COLUMN_TYPES: Final = {
    "segment_id": "int4",
    "queue_id": "int8",
    "offset": "int8",
    "durable": "bool",
    "form": "int2",
    "native": "bytea",
    "body": "bytea",
    "body_id": "int8",
    "deaths": "jsonb",
    "delivery": "jsonb",
    "priority": "int2",
    "headers": "jsonb",
    "enqueued_at": "timestamptz",
    "not_before": "timestamptz",
    "expires_at": "timestamptz",
    "created_at": "timestamptz",
}
CONTENT: Final = (*NARROW[4:], *RICH[4:])  # what a message says, wherever one is kept

NUL: Final = "\\u0000"  # as JSON writes it, and jsonb does not take it
_json: Final = msgspec.json.Encoder()
_deaths: Final = msgspec.json.Decoder(tuple[Death, ...])


class Forms:
    """The encodings that the adapters of this gateway understand, by their code, and how they write
    the options of subscriptions."""

    def __init__(self, forms: Sequence[Form] = (), options: type[object] | None = None) -> None:
        self.by_code: dict[int, Form] = {form.code: form for form in forms}
        self._options: type[object] | None = options

    def amended(self, message: Message, amendment: bytes) -> Message:
        """Returns the message with what a consumer added to it. If this gateway does not have that
        protocol any more, nobody asks for the addition, and the message stays as it was."""
        form = self.by_code.get(amendment[0])
        return form.amended(message, amendment) if isinstance(form, AmendingForm) else message

    def options(self, delivery: str | None) -> tuple[object, ...] | None:
        if delivery is None:
            return None
        given = msgspec.json.decode(delivery)
        if self._options is None:
            return tuple(given)
        return tuple(msgspec.convert(each, self._options) for each in given)


def is_rich(entry: Entry) -> bool:
    """Tells if an entry's row needs more than the narrow columns."""
    message = entry.message
    properties = message.properties
    return (
        entry.options is not None
        or entry.expires_at is not None
        or message.expires_at is not None
        or entry.not_before is not None
        or message.priority is not None
        or bool(message.deaths)
        or (properties is not NO_PROPERTIES and properties != NO_PROPERTIES)
    )


def narrow_row(
    segment: int, queue_id: int, entry: Entry, now: datetime, body: bytes | None
) -> tuple[object, ...]:
    message = entry.message
    form = message.form
    return (
        segment,
        queue_id,
        entry.offset,
        now,
        message.durable,
        message.exchange,
        message.routing_key,
        message.publisher,
        0 if form is None else form.code,
        message.native if form is not None else CANONICAL.encode(message.properties),
        body,
    )


RUN_BYTES: Final = 512 * 1024  # of bodies; more is better streamed than built up in memory


class Run(NamedTuple):
    """Rows of one queue that differ by offset and body alone, as one publisher sends them in a row.
    `head` has the columns of NARROW up to the body, with the first offset; the others count on.
    `rich` has those of RICH, where the messages say more than where they go."""

    head: tuple[object, ...]
    rich: tuple[object, ...]
    bodies: list[bytes]
    size: int  # bytes, of bodies and properties


def run_of(
    segment: int,
    queue_id: int,
    entries: list[Entry],
    now: datetime,
    samples: Iterable[Entry] | None = None,
) -> Run | None:
    """Makes a run of the entries, or None if they are not one. `samples` stand for others that are
    known to differ from them by body alone; all entries are compared without it. Measured with 500
    entries: 0.05 us each with one sample, 0.2 with all, where rows with properties take 2.2."""
    first = entries[0]
    message = first.message
    form, native, durable = message.form, message.native, message.durable
    exchange, key, publisher = message.exchange, message.routing_key, message.publisher
    priority = message.priority
    if form is None:
        return None
    for entry in entries if samples is None else samples:
        message = entry.message
        # equal bytes in the same form say the same properties
        if (
            message.native != native
            or message.form is not form
            or message.routing_key != key
            or message.exchange != exchange
            or message.publisher != publisher
            or message.durable is not durable
            or message.priority != priority
            or message.expires_at is not None
            or message.deaths
            or entry.expires_at is not None
            or entry.not_before is not None
            or entry.options is not None
        ):
            return None
    bodies = [entry.message.body for entry in entries]
    size = sum(map(len, bodies))
    if size > RUN_BYTES:
        return None
    rich = rich_columns(first, None) if is_rich(first) else ()
    head = narrow_row(segment, queue_id, first, now, None)[:-1]
    return Run(head, rich, bodies, size + len(native) * len(bodies))


def rich_columns(entry: Entry, body_id: int | None) -> tuple[object, ...]:
    message = entry.message
    return (
        body_id,
        utc(entry.not_before),
        _jsonb_text(message.deaths) if message.deaths else None,
        _jsonb_text(entry.options) if entry.options is not None else None,
        utc(message.expires_at if entry.expires_at is None else entry.expires_at),
        message.priority,
        *property_columns(message.properties),
    )


def property_columns(properties: Properties) -> tuple[object, ...]:
    if properties is NO_PROPERTIES:
        return (None,) * 11
    return (
        clean(properties.content_type),
        clean(properties.content_encoding),
        _id_text(properties.message_id),
        _id_text(properties.correlation_id),
        clean(properties.reply_to),
        clean(properties.subject),
        clean(properties.app_id),
        _id_text(properties.user_id),
        clean(properties.group_id),
        properties.created_at,
        _headers_text(properties),
    )


def content_values(message: Message) -> dict[str, object]:
    """Returns the content columns of a message that is stored outside the log: retained, will."""
    form = message.form
    values: tuple[object, ...] = (
        message.durable,
        message.exchange,
        message.routing_key,
        message.publisher,
        0 if form is None else form.code,
        message.native if form is not None else CANONICAL.encode(message.properties),
        message.body,
        utc(message.expires_at),
        message.priority,
        *property_columns(message.properties),
    )
    return dict(zip(CONTENT, values, strict=True))


# What a message is read back from: the typed columns are for people, `native` says the same.
READ: Final = (
    "offset",
    "body",
    "exchange",
    "routing_key",
    "durable",
    "form",
    "native",
    "publisher",
    "priority",
    "expires_at",
    "not_before",
    "deaths",
    "delivery",
    "body_id",
)


def entries_from_rows(
    rows: Sequence[Sequence[Any]], forms: Forms, bodies: Mapping[int, bytes]
) -> list[Entry]:
    """Makes entries of rows with the columns READ; `bodies` has those that rows only refer to. A
    loop, and positional arguments: 2.6 us an entry, against 4.0 with a call and keywords each."""
    by_code, entries = forms.by_code, []
    for (
        offset,
        body,
        exchange,
        routing_key,
        durable,
        form,
        native,
        publisher,
        priority,
        expires_at,
        not_before,
        deaths,
        delivery,
        body_id,
    ) in rows:
        message = Message(
            body if body is not None else bodies.get(body_id, b""),
            exchange,
            routing_key,
            None,
            durable,
            by_code.get(form, CANONICAL),
            native,
            None,
            priority,
            None if expires_at is None else expires_at.timestamp(),
            None,
            publisher,
        )
        if deaths is not None:
            message.deaths = _deaths.decode(deaths)
        entries.append(
            Entry(
                message,
                None if delivery is None else forms.options(delivery),
                message.expires_at,
                None if not_before is None else not_before.timestamp(),
                offset,
            )
        )
    return entries


def message_from_row(row: Mapping[str, Any], forms: Forms) -> Message:
    """Makes the message of a row that is stored outside the log: retained, will, outbox."""
    form = forms.by_code.get(row["form"], CANONICAL)
    native = row["native"] or b""
    if form is CANONICAL and not native:  # written by SQL: all it says is in the typed columns
        native = CANONICAL.encode(properties_from_row(row))
    expires_at: datetime | None = row["expires_at"]
    return Message(
        row["body"] or b"",
        row["exchange"],
        routing_key=row["routing_key"],
        durable=row["durable"],
        form=form,
        native=native,
        priority=row["priority"],
        expires_at=None if expires_at is None else expires_at.timestamp(),
        publisher=row["publisher"],
    )


def properties_from_row(row: Mapping[str, Any]) -> Properties:
    """Reads the properties of a message that came from SQL, which has them in typed columns
    alone."""
    headers: object = row["headers"]
    if isinstance(headers, str):
        headers = msgspec.json.decode(headers)
    pairs: tuple[tuple[str, Value], ...] = (
        tuple(headers.items()) if isinstance(headers, dict) else ()
    )
    found = Properties(
        content_type=row["content_type"],
        content_encoding=row["content_encoding"],
        message_id=row["message_id"],
        correlation_id=row["correlation_id"],
        reply_to=row["reply_to"],
        subject=row["subject"],
        app_id=row["app_id"],
        user_id=row["user_id"],
        group_id=row["group_id"],
        created_at=row["created_at"],
        headers=pairs,
    )
    return NO_PROPERTIES if found == NO_PROPERTIES else found


def clean(text: str | None) -> str | None:
    """Replaces NUL and lone surrogates, which PostgreSQL's text cannot hold; `native` has what was
    sent."""
    if text is None:
        return None
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _id_text(value: str | bytes | int | UUID | None) -> str | None:
    if value is None or isinstance(value, str):
        return clean(value)
    if isinstance(value, bytes):
        try:
            return clean(value.decode())
        except UnicodeDecodeError:
            return "\\x" + value.hex()
    return text_of(value)


def _headers_text(properties: Properties) -> str | None:
    if not properties.headers:
        return None
    return _json_text({str(clean(k)): plain(v) for k, v in properties.header_map().items()})


def _json_text(value: object) -> str:
    return _json.encode(value).decode()


def _jsonb_text(value: object) -> str:
    """Encodes deaths or subscription options as jsonb, whatever characters their names have: a name
    that jsonb cannot hold is no reason to lose the message."""
    try:
        text = _json_text(value)
    except UnicodeEncodeError:
        text = NUL
    if NUL in text:
        text = _json_text(plain(msgspec.to_builtins(value)))
    return text


def plain(value: object) -> object:
    """Converts a header value to what JSON can say, for people and SQL."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean(value)
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes() | bytearray() | memoryview():
            return _id_text(bytes(value))
        case datetime():
            return value.astimezone(UTC).isoformat()
        case Mapping():
            return {str(clean(str(key))): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case Decimal() | UUID():
            return str(value)
        case _:
            return clean(str(value))
