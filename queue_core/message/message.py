"""The canonical message: what every adapter publishes and every consumer receives.

A message stays in the form it arrived in: `native` holds the publisher's own encoding of its
properties and `form` knows how to read it. The canonical `properties` and other protocols'
encodings are made when somebody first asks for them, and kept. This file knows no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from queue_core.message.deduplication_keys import KEY_HEADER, KEY_OCTETS, key_in
from queue_core.message.topic_forms import dotted, slashed

type_of_id = str | bytes | int | UUID
Scalar = None | bool | int | float | str | bytes | datetime | Decimal | UUID
Value = Scalar | Sequence["Value"] | Mapping[str, "Value"]

TOPIC_EXCHANGE: Final = "amq.topic"
COPIES: Final = "CC"  # the header with further routing keys


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds what a message says about itself, in no protocol's terms.

    Headers are pairs, not a mapping: MQTT repeats names and keeps their order.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    message_id: type_of_id | None = None
    correlation_id: type_of_id | None = None
    reply_to: str | None = None
    subject: str | None = None
    app_id: str | None = None
    user_id: str | bytes | None = None
    group_id: str | None = None
    created_at: datetime | None = None
    headers: tuple[tuple[str, Value], ...] = ()

    def header_map(self) -> dict[str, Value]:
        """Headers by name; where a name is repeated the first one counts."""
        return dict(reversed(self.headers))


NO_PROPERTIES: Final = Properties()


class Form(Protocol):
    """Writes properties in one protocol's way; `code` is what the message table keeps of it."""

    code: int

    def properties(self, native: bytes) -> Properties:
        """The canonical properties that `native` says. Pure: equal bytes give equal properties."""
        ...


class Amendment(Protocol):
    """Holds what a consumer adds to a message that it gives back, in its protocol's own terms."""

    def apply(self, message: Message) -> Message:
        """The message as it is from now on, at that one place."""
        ...

    def encode(self, before: bytes | None) -> bytes:
        """Itself and what was added before it, as one, for `AmendingForm.amended`. The first byte
        is the code of its form."""
        ...


@runtime_checkable
class AmendingForm(Form, Protocol):
    """A form whose protocol has amendments."""

    def amended(self, message: Message, amendment: bytes) -> Message:
        """The message as it is with an encoded amendment."""
        ...


class CanonicalForm:
    """Writes properties in the gateway's own way: for messages that no adapter brought."""

    code = 0

    def encode(self, properties: Properties) -> bytes:
        if properties is NO_PROPERTIES:
            return b""
        return msgspec.msgpack.encode(_tagged(msgspec.structs.asdict(properties)))

    def properties(self, native: bytes) -> Properties:
        if not native:
            return NO_PROPERTIES
        return _decode_canonical(native) if len(native) <= MAX_KEPT_BYTES else _decoded(native)


CANONICAL: Final = CanonicalForm()
_UUID, _DECIMAL = 1, 2  # extension types


def _tagged(value: object) -> object:
    """Encodes a value that msgpack has no type for, as an extension type."""
    match value:
        case UUID():
            return msgspec.msgpack.Ext(_UUID, value.bytes)
        case Decimal():
            return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
        case dict():
            return {key: _tagged(item) for key, item in value.items()}
        case list() | tuple():
            return [_tagged(item) for item in value]
        case _:
            return value


def _untagged(code: int, data: memoryview) -> object:
    return UUID(bytes=bytes(data)) if code == _UUID else Decimal(bytes(data).decode())


def _decoded(native: bytes) -> Properties:
    fields: dict[str, Any] = msgspec.msgpack.decode(native, ext_hook=_untagged)
    fields["headers"] = tuple((name, value) for name, value in fields["headers"])
    return Properties(**fields)


_decode_canonical: Final = lru_cache(maxsize=4096)(_decoded)
MAX_KEPT_BYTES: Final = (
    1024  # of properties whose meaning is kept, for the next ones that are equal
)


class Message:
    """One published message. Shared by all queues it was routed to, so never changed after publish,
    but for what is worked out on demand (`properties`, `topic`, `routing_key`, `encoded`)."""

    __slots__ = (
        "_properties",
        "_routing_key",
        "_topic",
        "body",
        "deaths",
        "durable",
        "encoded",
        "exchange",
        "expires_at",
        "form",
        "native",
        "not_before",
        "priority",
        "publisher",
        "retain",
    )

    def __init__(
        self,
        body: bytes,
        exchange: str = TOPIC_EXCHANGE,
        routing_key: str | None = None,
        topic: str | None = None,
        durable: bool = True,
        form: Form | None = None,
        native: bytes = b"",
        properties: Properties | None = None,
        priority: int | None = None,
        expires_at: float | None = None,
        not_before: float | None = None,
        publisher: str | None = None,
        deaths: tuple[Death, ...] = (),
        retain: bool = False,
    ) -> None:
        self.body = body
        self.exchange = exchange
        self._routing_key = routing_key
        self._topic = topic
        self.durable = durable  # the publisher's wish: QoS > 0, delivery mode 2, header.durable
        self.form = form
        self.native = native
        self._properties = properties
        self.priority = priority
        self.expires_at = expires_at  # seconds since the epoch
        self.not_before = not_before  # seconds since the epoch
        self.publisher = publisher  # who published, stamped by the gateway
        self.deaths = deaths
        self.retain = retain  # published with the wish to be kept as its topic's last value
        self.encoded: dict[object, object] | None = None  # other forms, kept by those who made them

    @property
    def topic(self) -> str:
        """The routing key as the topic space writes it: with slashes."""
        if self._topic is None:
            self._topic = slashed(self._routing_key or "")
        return self._topic

    @property
    def routing_key(self) -> str:
        """The topic as exchanges write it: with dots."""
        if self._routing_key is None:
            self._routing_key = dotted(self._topic or "")
        return self._routing_key

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            form = self.form
            self._properties = NO_PROPERTIES if form is None else form.properties(self.native)
        return self._properties

    def size(self) -> int:
        """Bytes that this message answers for in limits and buffers."""
        return len(self.body) + len(self.native)

    @property
    def repetition_key(self) -> str | None:
        """The value that tells the message's repetitions, from a header of its publisher. A dead
        letter that returns is no repetition, and has none."""
        if self.deaths or (self.native and KEY_OCTETS not in self.native):
            return None
        return key_in(self.properties.header_map())

    def deciding_property(self, name: str) -> object:
        """Gives the property that an exchange decides by in place of key and headers."""
        if name == KEY_HEADER:
            return self.repetition_key
        properties = self.properties
        if name == "timestamp":
            return properties.created_at
        return properties.message_id if name == "message_id" else properties.correlation_id

    @property
    def copies(self) -> tuple[str, ...]:
        """Further keys that it was published with, in a header CC. A dead letter has those that it
        died with, until a queue sends its letters to a key of its own."""
        if self.deaths:
            keys = self.deaths[0].routing_keys
            return keys[1:] if keys[:1] == (self.routing_key,) else ()
        if COPIES.encode() not in self.native:  # as nearly always: nothing need be converted
            return ()
        found = self.properties.header_map().get(COPIES)
        if not isinstance(found, list):  # other protocols have no lists there
            return ()
        return tuple(key for key in found if isinstance(key, str))

    def bare(self) -> Message:
        """Copies the message without what was worked out on demand, for whoever keeps it for long:
        its copies in other protocols' forms may take more memory than itself."""
        is_readable = self.form is not None
        return Message(
            self.body,
            self.exchange,
            routing_key=self.routing_key,
            durable=self.durable,
            form=self.form,
            native=self.native,
            properties=None if is_readable else self._properties,
            priority=self.priority,
            expires_at=self.expires_at,
            not_before=self.not_before,
            publisher=self.publisher,
            deaths=self.deaths,
            retain=self.retain,
        )

    def moved(self, exchange: str, routing_key: str, death: Death) -> Message:
        """This message as it enters a dead-letter exchange: same content, no expiry of its own."""
        return Message(
            self.body,
            exchange,
            routing_key=routing_key,
            durable=self.durable,
            form=self.form,
            native=self.native,
            properties=self._properties,
            priority=self.priority,
            publisher=self.publisher,
            deaths=count_death(self.deaths, death),
        )


class Death(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why and where a message died; the newest death comes first in a message's list."""

    queue: str
    reason: str  # rejected | expired | maxlen | delivery_limit
    count: int = 1
    time: float = 0.0
    exchange: str = ""
    routing_keys: tuple[str, ...] = ()


def count_death(deaths: tuple[Death, ...], death: Death) -> tuple[Death, ...]:
    """Returns the list with one more death: same queue and reason are counted, and move to the
    front."""
    earlier = next((d for d in deaths if (d.queue, d.reason) == (death.queue, death.reason)), None)
    if earlier is None:
        return (death, *deaths)
    counted = msgspec.structs.replace(earlier, count=earlier.count + 1)
    return (counted, *(d for d in deaths if d is not earlier))


def utc(seconds: float | None) -> datetime | None:
    """Converts a time to what the database takes. Raises ValueError for one that no calendar holds:
    what the platform says of it, an OSError, is what a database that is away says, too."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{seconds:g} s is a time beyond the year 9999") from error
