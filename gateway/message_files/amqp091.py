"""Reads and writes AMQP 0.9.1 messages as documents: a basic.publish, and what a consumer gets."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from gateway.message_files.document import (
    Document,
    MessageFileError,
    check_keys,
    octets,
    section,
    text,
)
from protocols.amqp091.consume.deliveries import properties_of
from protocols.amqp091.conversion.properties import FORM
from protocols.amqp091.errors import Amqp091Error
from protocols.amqp091.wire.content import NAMES, OCTETS, Facts, encode_properties
from protocols.amqp091.wire.content import decode_properties as decode
from protocols.amqp091.wire.type_limits import fitting, short_text
from queue_core.message.message import TOPIC_EXCHANGE, Message

KEYS: Final = ("exchange", "routing-key", "properties", "body", "publisher")
PROPERTIES: Final = {name.replace("_", "-"): name for name in NAMES}


def read(found: Document, now: float) -> Message:
    check_keys(found, KEYS)
    given = section(found, "properties")
    check_keys(given, PROPERTIES, "properties.")
    for name, value in given.items():
        _check(name, value)
    try:
        facts = Facts(encode_properties({PROPERTIES[name]: v for name, v in given.items()}))
    except Amqp091Error as error:
        raise MessageFileError(f"properties: {error}") from None
    except (OverflowError, ValueError) as error:
        raise MessageFileError(f"properties.headers: {error}") from None
    return Message(
        octets(found, "body", default=b""),
        text(found, "exchange", default=TOPIC_EXCHANGE),
        routing_key=text(found, "routing-key", default="key"),
        durable=facts.durable,
        form=FORM,
        native=facts.native,
        priority=facts.priority,
        expires_at=None if facts.expiration is None else now + facts.expiration,
        not_before=None if facts.delay is None else now + facts.delay,
        publisher=text(found, "publisher", default="publisher"),
    )


def _check(name: str, value: object) -> None:
    if name == "headers":
        is_good, noun = isinstance(value, dict), "an object"
    elif PROPERTIES[name] in OCTETS:
        is_good, noun = type(value) is int and 0 <= value <= 255, "a number from 0 to 255"
    elif name == "timestamp":
        is_good = isinstance(value, datetime) or (type(value) is int and value < 1 << 63)
        noun = "{'$timestamp': ...} or a number of seconds below 2 to the 63rd"
    else:
        is_good = isinstance(value, str) and short_text(value) is not None
        noun = "text of at most 255 bytes"
    if not is_good:
        raise MessageFileError(f"properties.{name}: expected {noun}")


def write(message: Message, now: float) -> Document:
    found = decode(properties_of(message, now))
    return {
        "exchange": message.exchange,
        "routing-key": fitting(message.routing_key),
        "properties": {name.replace("_", "-"): value for name, value in found.items()},
        "body": message.body,
    }
