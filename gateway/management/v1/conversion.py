"""Conversion dry run: what a message becomes for a consumer of each protocol, and what is lost.

The message goes through the code that serves it, so what is shown is what a consumer gets.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.management.api_errors import bad_request
from gateway.management.call import Call
from gateway.management.routes import Body, Route
from gateway.message_files.document import Document, MessageFileError, tagged, untagged
from gateway.message_files.protocols import PROTOCOLS
from gateway.message_files.traces import traces, without_each
from queue_core.errors import CoreError
from queue_core.message.message import Message

ProtocolName = Literal["mqtt311", "mqtt5", "amqp091", "amqp10", "sql"]

BODIES: Final = ("payload", "body")
MOST_TRACED: Final = 100  # properties of a message that are followed one by one
# Characters that are converted on the way, with the message once for each property: some ten
# milliseconds of the loop.
MOST_TRACED_CHARACTERS: Final = 512 * 1024
MOST_MESSAGE_BYTES: Final = 256 * 1024  # of JSON; the loop waits while they are converted
CONSUMERS: Final[tuple[ProtocolName, ...]] = ("mqtt311", "mqtt5", "amqp091", "amqp10")
FORMS: Final[dict[int, ProtocolName]] = {
    0: "sql",
    1: "mqtt311",
    2: "mqtt5",
    3: "amqp091",
    4: "amqp10",
}
# What a delivery has and no publisher says.
DELIVERYS_OWN: Final = ("first-acquirer", "delivery-count")


class ConversionBody(Body, frozen=True, forbid_unknown_fields=True):
    """A message as a publisher of one protocol sends it; docs/interop.md has the format."""

    source: ProtocolName = msgspec.field(name="from")
    message: dict[str, Any]
    targets: list[ProtocolName] = msgspec.field(name="to", default_factory=lambda: [*CONSUMERS])


class Place(Struct, frozen=True):
    place: str
    value: Any


class PropertyTrace(Struct, frozen=True):
    """Where a property of the publisher's message is found by the consumer."""

    source: str = msgspec.field(name="from")
    found: list[Place] = msgspec.field(name="to")
    becomes: str


class Conversion(Struct, frozen=True):
    """The message as a consumer of one protocol gets it. `losses` are properties that do not travel
    there; null: the message has too many, or too large ones, to follow them one by one."""

    protocol: str
    title: str
    message: Any
    properties: list[PropertyTrace] | None
    losses: list[str] | None


class Conversions(Struct, frozen=True):
    conversions: list[Conversion]


async def convert(call: Call[Any, ConversionBody]) -> Conversions:
    body = call.body
    try:
        document = {name: untagged(value, name) for name, value in body.message.items()}
        message = PROTOCOLS[body.source].read(document, 0.0)
        found = [
            conversion(message, document, body.source, target, 0.0)
            for target in dict.fromkeys(body.targets)
        ]
    except (MessageFileError, CoreError) as error:
        raise bad_request(f"no message of {PROTOCOLS[body.source].title}: {error}") from None
    return Conversions(found)


def conversion(
    message: Message, document: Document, source: str, target: str, now: float
) -> Conversion:
    """Converts a message for a consumer of one protocol. Raises MessageFileError."""
    result = PROTOCOLS[target].write(message, now)
    followed = _followed(document, source, target)
    losses = None if followed is None else [each.source for each in followed if not each.found]
    return Conversion(target, PROTOCOLS[target].title, tagged(result), followed, losses)


def _followed(document: Document, source: str, target: str) -> list[PropertyTrace] | None:
    # The body travels as it is, and is converted once more for each property.
    rest = {name: value for name, value in document.items() if name not in BODIES}
    count = sum(1 for _ in islice(without_each(rest), MOST_TRACED + 1))
    if count > MOST_TRACED or count * len(repr(rest)) > MOST_TRACED_CHARACTERS:
        return None
    return [
        PropertyTrace(
            each.source,
            [Place(place, tagged(value)) for place, value in each.found],
            each.verdict,
        )
        for each in traces(rest, source, target)
    ]


def conversions_of(message: Message, now: float, most_body_bytes: int) -> list[Conversion]:
    """Shows a message that lies in a queue as a consumer of each protocol would get it."""
    source = FORMS.get(0 if message.form is None else message.form.code, "sql")
    own = _readable(PROTOCOLS[source].write(message, now))
    return [_shortened(message, own, source, target, now, most_body_bytes) for target in CONSUMERS]


def _shortened(
    message: Message, own: Document, source: str, target: str, now: float, most_body_bytes: int
) -> Conversion:
    result = PROTOCOLS[target].write(message, now)
    for name in BODIES:
        if isinstance(result.get(name), bytes):
            result[name] = result[name][:most_body_bytes]
    try:
        followed = _followed(own, source, target)
    except (MessageFileError, CoreError, ValueError):
        followed = None  # what a delivery shows is not always what somebody could publish
    losses = None if followed is None else [each.source for each in followed if not each.found]
    return Conversion(target, PROTOCOLS[target].title, tagged(result), followed, losses)


def _readable(document: Document) -> Document:
    """Leaves out what only a delivery has, so that the document reads as a publisher's."""
    header = document.get("header")
    if isinstance(header, dict):
        kept = {name: value for name, value in header.items() if name not in DELIVERYS_OWN}
        return {**document, "header": kept}
    return document


ROUTES: Final = (
    Route(
        method="POST",
        path="/api/howdah/v1/conversion",
        handler=convert,
        summary="What a message of one protocol becomes in the others, and what is lost",
        body=ConversionBody,
        answer=Conversions,
        most_body_bytes=MOST_MESSAGE_BYTES,
    ),
)
