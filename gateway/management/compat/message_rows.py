"""Messages as RabbitMQ's API writes and reads them: properties in AMQP 0.9.1's words, and a payload
that is text, or base64 of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from gateway.management.api_errors import bad_request
from protocols.amqp091.consume.deliveries import properties_of
from protocols.amqp091.conversion.properties import FORM
from protocols.amqp091.errors import Amqp091Error
from protocols.amqp091.wire.content import (
    NAMES,
    OCTETS,
    Facts,
    decode_properties,
    encode_properties,
)
from protocols.amqp091.wire.type_limits import fitting, short_text
from queue_core.message.message import Message

Encoding = Literal["auto", "base64"]
PayloadEncoding = Literal["string", "base64"]
LARGEST_TIME: Final = 1 << 62  # seconds that AMQP 0.9.1 can write


class MessageRow(Struct, frozen=True):
    """One message as somebody got it."""

    payload_bytes: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int  # that are ready behind it
    properties: Mapping[str, Any]
    payload: str
    payload_encoding: str
    offset: int | UnsetType = UNSET  # in a stream; our own field


def written(
    message: Message,
    *,
    now: float,
    count: int,
    encoding: Encoding,
    truncate: int | None,
    is_redelivered: bool = False,
    offset: int | UnsetType = UNSET,
) -> MessageRow:
    payload, how = _payload(message.body, encoding, truncate)
    found = decode_properties(properties_of(message, now))
    return MessageRow(
        payload_bytes=len(message.body),
        redelivered=is_redelivered,
        exchange=message.exchange,
        routing_key=fitting(message.routing_key),
        message_count=count,
        properties={name: plain(value) for name, value in found.items() if value is not None},
        payload=payload,
        payload_encoding=how,
        offset=offset,
    )


def _payload(body: bytes, encoding: Encoding, truncate: int | None) -> tuple[str, str]:
    shown = bytes(body) if truncate is None else bytes(body[:truncate])
    if encoding == "auto":
        try:
            return shown.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(shown).decode(), "base64"


def plain(value: object) -> Any:
    """Writes a value of a header as JSON has it: bytes as text where they are text, a time in
    seconds."""
    match value:
        case bytes() | bytearray():
            return _payload(bytes(value), "auto", None)[0]
        case datetime():
            return int(value.timestamp())
        case Mapping():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case bool() | int() | str() | None:
            return value
        case float() if value - value == 0:
            return value
    return str(value)


def read_payload(payload: str, encoding: PayloadEncoding) -> bytes:
    """Raises 400."""
    if encoding == "string":
        return payload.encode()
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("the payload is no base64, as payload_encoding says") from None


def read_properties(given: Mapping[str, Any]) -> Facts:
    """Encodes properties that came as JSON, as AMQP 0.9.1 has them. Raises 400."""
    for name, value in given.items():
        if name not in NAMES:
            raise bad_request(f"there is no property '{name}'; there are {', '.join(NAMES)}")
        if (expected := _expected(name, value)) is not None:
            raise bad_request(f"property '{name}' must be {expected}")
    try:
        return Facts(encode_properties({n: v for n, v in given.items() if v is not None}))
    except Amqp091Error as error:
        raise bad_request(f"the properties cannot be written: {error.text}") from None
    except (OverflowError, ValueError, RecursionError) as error:
        raise bad_request(f"the headers cannot be written: {error}") from None


def _expected(name: str, value: object) -> str | None:
    """Tells what a property must be; None: it is."""
    if value is None:
        return None
    if name == "headers":
        return None if isinstance(value, dict) else "an object"
    if name in OCTETS:
        return None if type(value) is int and 0 <= value <= 255 else "a number from 0 to 255"
    if name == "timestamp":
        is_time = type(value) is int and 0 <= value < LARGEST_TIME
        return None if is_time else "a number of seconds since 1970"
    is_text = isinstance(value, str) and short_text(value) is not None
    return None if is_text else "text of at most 255 bytes"


def message_of(
    facts: Facts, exchange: str, key: str, body: bytes, user: str, now: float
) -> Message:
    """Makes the message that somebody publishes."""
    not_before = None if facts.delay is None else now + facts.delay
    expires = None if facts.expiration is None else (not_before or now) + facts.expiration
    return Message(
        body,
        exchange,
        routing_key=key,
        durable=facts.durable,
        form=FORM,
        native=facts.native,
        priority=facts.priority,
        expires_at=expires,
        not_before=not_before,
        publisher=user,
    )
