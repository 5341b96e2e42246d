"""The content header: basic's properties as the wire has them, and what publishing reads there.

`native` is the part of a header frame that begins with the property flags. Most publishers send the
same one again and again, so what it says is worked out once and kept by its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from struct import Struct
from struct import error as StructError
from typing import Final

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.codec import decode_short_string, short_string
from protocols.amqp091.wire.tables import (
    decode_table,
    encode_fields,
    encode_table,
    require_few,
    split_fields,
    time_of,
)

NAMES: Final = (  # in the order of the wire; the first has flag bit 15
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
OCTETS: Final = frozenset(("delivery_mode", "priority"))
PERSISTENT: Final = 2
TRANSIENT: Final = 1
UNSAID: Final = 0  # by clients that write every property; as much as no mode at all
MAX_EXPIRATION_MS: Final = 10 * 365 * 86_400_000  # as of a queue's x-message-ttl
MAX_DELAY_MS: Final = (1 << 32) - 1
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"
PUBLISHER: Final = "x-publisher-id"

MAX_KEPT_PROPERTIES: Final = 4096  # whose meaning is known; past that the cache starts again
MAX_KEPT_BYTES: Final = 1024  # a longer one is read anew each time

_FLAGS: Final = Struct(">H")
_SIZE: Final = Struct(">I")
_TIME: Final = Struct(">q")
_HEADERS_FLAG: Final = 1 << 13
_BEFORE_HEADERS: Final = (1 << 15, 1 << 14)

Contents = dict[str, object]
NOTHING: Final[Mapping[str, object]] = {}


def decode_properties(native: bytes, *, is_new: bool = False) -> Contents:
    """The properties that are there, by name. Raises 502, and 406 where a publisher's new message
    has more headers than it may."""
    try:
        return _decode(native, is_new)
    except (IndexError, StructError, UnicodeDecodeError):
        raise Amqp091Error(ReplyCode.SYNTAX_ERROR, "malformed content header") from None


def _decode(native: bytes, is_new: bool) -> Contents:
    flags = _FLAGS.unpack_from(native)[0]
    if flags & 3:
        raise Amqp091Error(ReplyCode.SYNTAX_ERROR, "a content header with unknown property flags")
    found: Contents = {}
    position, bit = 2, 1 << 15
    for name in NAMES:
        if flags & bit:
            if name == "headers":
                if is_new:
                    require_few(native, position, ReplyCode.PRECONDITION_FAILED)
                found[name], position = decode_table(native, position)
            elif name in OCTETS:
                found[name], position = native[position], position + 1
            elif name == "timestamp":
                found[name] = time_of(_TIME.unpack_from(native, position)[0])
                position += 8
            else:
                found[name], position = decode_short_string(native, position)
        bit >>= 1
    if position != len(native):
        raise Amqp091Error(
            ReplyCode.SYNTAX_ERROR, f"a content header with {len(native) - position} bytes too many"
        )
    return found


def encode_properties(contents: Mapping[str, object]) -> bytes:
    """The flags and the properties that are not None."""
    flags, bit = 0, 1 << 15
    parts = [b""]
    for name in NAMES:
        value = contents.get(name)
        if value is not None:
            flags |= bit
            parts.append(_encode_property(name, value))
        bit >>= 1
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _encode_property(name: str, value: object) -> bytes:
    if name == "headers":
        return encode_table(value)  # type: ignore[arg-type]
    if name in OCTETS:
        return bytes((int(value),))  # type: ignore[call-overload]
    if name == "timestamp":
        seconds = value.timestamp() if isinstance(value, datetime) else value
        return _TIME.pack(int(seconds))  # type: ignore[call-overload]
    return short_string(str(value))


def with_headers(native: bytes, extra: Mapping[str, object]) -> bytes:
    """Adds headers to encoded properties; one of that name that is there already gives way."""
    if any(name.encode() in native for name in extra):
        return amended(native, extra)
    fields = encode_fields(extra)
    flags = _FLAGS.unpack_from(native)[0]
    position = 2
    for flag in _BEFORE_HEADERS:
        if flags & flag:
            position += 1 + native[position]
    if not flags & _HEADERS_FLAG:
        start, rest, size = _FLAGS.pack(flags | _HEADERS_FLAG) + native[2:position], position, 0
    else:
        size = _SIZE.unpack_from(native, position)[0]
        start, rest = native[:position], position + 4
    table = native[rest : rest + size] + fields
    return start + _SIZE.pack(len(table)) + table + native[rest + size :]


def amended(
    native: bytes,
    headers: Mapping[str, object] = NOTHING,
    *,
    without: Collection[str] = (),
    **properties: str | None,
) -> bytes:
    """Amends encoded properties: adds or replaces headers, takes some away, and sets texts among
    the properties (None: takes it away). The rest is not written anew: a header keeps its type."""
    parts = _parts(native)
    fields = split_fields(parts.pop("headers", b"    ")[4:])
    for name in without:
        fields.pop(name, None)
    for name, value in headers.items():
        fields[name] = encode_fields({name: value})
    if fields:
        table = b"".join(fields.values())
        parts["headers"] = _SIZE.pack(len(table)) + table
    for name, text in properties.items():
        parts.pop(name, None)
        if text is not None:
            parts[name] = short_string(text)
    flags = sum(1 << 15 - NAMES.index(name) for name in parts)
    return b"".join((_FLAGS.pack(flags), *(parts[name] for name in NAMES if name in parts)))


def _parts(native: bytes) -> dict[str, bytes]:
    """The properties that are there, by name, each as it was written; `native` is well-formed."""
    flags = _FLAGS.unpack_from(native)[0]
    found: dict[str, bytes] = {}
    position, bit = 2, 1 << 15
    for name in NAMES:
        if flags & bit:
            start = position
            if name == "headers":
                position += 4 + _SIZE.unpack_from(native, position)[0]
            elif name in OCTETS:
                position += 1
            elif name == "timestamp":
                position += 8
            else:
                position += 1 + native[position]
            found[name] = native[start:position]
        bit >>= 1
    return found


class Facts:
    """The properties of a message, as far as publishing needs them."""

    __slots__ = (
        "delay",
        "durable",
        "expiration",
        "extra_keys",
        "is_plain",
        "native",
        "priority",
        "user_id",
        "wants_direct_reply",
    )

    def __init__(self, native: bytes) -> None:
        contents = decode_properties(native, is_new=True)
        headers = contents.get("headers") or {}
        assert isinstance(headers, dict)
        self.durable = is_persistent(_mode(contents.get("delivery_mode")))
        self.priority: int | None = contents.get("priority")  # type: ignore[assignment]
        self.expiration = expiration_seconds(contents.get("expiration"))  # seconds
        self.delay = _delay(headers.get("x-delay"))  # seconds
        self.extra_keys = (*_keys(headers, "CC"), *_keys(headers, "BCC"))
        self.user_id = contents.get("user_id")
        self.wants_direct_reply = contents.get("reply_to") == DIRECT_REPLY_TO
        # BCC is nobody's business but ours, and who published is for the gateway to say
        secret = [name for name in ("BCC", PUBLISHER) if name in headers]
        if secret:
            native = amended(native, without=secret)
        self.native = native
        self.is_plain = not (
            self.extra_keys
            or self.user_id is not None
            or self.wants_direct_reply
            or self.expiration is not None
            or self.delay is not None
        )


# A plain dictionary, not a Memo: the loop that parses publishes in 1.6 us each looks here first.
KNOWN_FACTS: Final[dict[bytes, Facts]] = {}


def facts_of(native: bytes) -> Facts:
    """Reads the properties that publishing needs. Raises 502 and 406."""
    facts = KNOWN_FACTS.get(native)
    if facts is None:
        facts = Facts(native)
        if len(native) <= MAX_KEPT_BYTES:
            if len(KNOWN_FACTS) >= MAX_KEPT_PROPERTIES:
                KNOWN_FACTS.clear()
            KNOWN_FACTS[native] = facts
    return facts


def _mode(mode: object) -> object:
    if mode in (None, UNSAID, TRANSIENT, PERSISTENT):
        return mode
    raise Amqp091Error(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid delivery mode {mode}: write {TRANSIENT} (transient) or {PERSISTENT} (persistent)",
    )


def is_persistent(mode: object) -> bool:
    return mode == PERSISTENT


def expiration_seconds(text: object) -> float | None:
    if text is None:
        return None
    digits = str(text)
    if digits.isascii() and digits.isdigit() and int(digits) <= MAX_EXPIRATION_MS:
        return int(digits) / 1000
    raise Amqp091Error(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid expiration '{digits[:40]}': write whole milliseconds, "
        f"from 0 to {MAX_EXPIRATION_MS}",
    )


def _delay(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_DELAY_MS:
        return value / 1000 if value else None
    raise Amqp091Error(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid header x-delay: write whole milliseconds, from 0 to {MAX_DELAY_MS}",
    )


def _keys(headers: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Reads the keys of CC or BCC. As in RabbitMQ, a value among them that is no text is no key."""
    if name not in headers:
        return ()
    keys = headers[name]
    if isinstance(keys, list):
        return tuple(key for key in keys if isinstance(key, str))
    raise Amqp091Error(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid header {name}: it must be an array of routing keys",
    )
