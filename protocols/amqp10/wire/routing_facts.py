"""The facts of a message that routing needs: lifetime, priority, delay, user.

Publishers repeat themselves: what a header or the annotations say is worked out once and kept by
their bytes. Of the properties only what is needed is looked at.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from protocols.amqp10.conversion.properties import PUBLISHER, section
from protocols.amqp10.errors import DECODE_ERROR, INVALID_FIELD, Amqp10Error
from protocols.amqp10.wire.sections import ANNOTATIONS, section_at, value_of
from protocols.amqp10.wire.types import Malformed, decode, skip
from queue_core.message.memo import Memo

MAX_KEPT_PROPERTIES: Final = 4096
MAX_KEPT_BYTES: Final = 512
MAX_DELAY_MS: Final = (1 << 32) - 1  # what a uint holds, as ttl is one
MAX_PRIORITY: Final = 255  # what a ubyte holds, whatever type it was sent as
DELAYS: Final = ("x-opt-delivery-delay", "x-delay")
DELIVERY_TIME: Final = "x-opt-delivery-time"
USER_ID, TO, EXPIRY = 1, 2, 8  # places in the properties


class HeaderFacts(NamedTuple):
    durable: bool
    priority: int | None
    ttl: float | None  # seconds


NO_HEADER: Final = HeaderFacts(False, None, None)
_headers: Final[Memo[bytes, HeaderFacts]] = Memo(MAX_KEPT_PROPERTIES)


def header_facts(header: bytes) -> HeaderFacts:
    """Reads a header section; empty bytes stand for a message without one."""
    if not header:
        return NO_HEADER
    known = _headers.get(header)
    if known is None:
        known = _read_header(header)
        if len(header) <= MAX_KEPT_BYTES:
            _headers.keep(header, known)
    return known


def _read_header(header: bytes) -> HeaderFacts:
    fields = value_of(header)
    if not isinstance(fields, list):
        raise Malformed("a header that is no list")
    durable, priority, ttl = (*fields, None, None, None)[:3]
    if not isinstance(durable, bool | None) or not isinstance(priority, int | None):
        raise Malformed("a header with fields of other types")
    if priority is not None and not 0 <= priority <= MAX_PRIORITY:
        raise Malformed(f"a priority of {priority}, which goes from 0 to {MAX_PRIORITY}")
    if ttl is not None and not (isinstance(ttl, int) and 0 <= ttl <= MAX_DELAY_MS):
        raise Malformed(f"a ttl that is no number of milliseconds from 0 to {MAX_DELAY_MS}")
    return HeaderFacts(bool(durable), priority, None if ttl is None else ttl / 1000)


class AnnotationFacts(NamedTuple):
    is_forged: bool  # says who published, which is ours to say
    delay: float | None  # seconds
    time: float | None  # not before; seconds since the epoch


NO_ANNOTATIONS: Final = AnnotationFacts(False, None, None)
_annotations: Final[Memo[bytes, AnnotationFacts]] = Memo(MAX_KEPT_PROPERTIES)


def annotation_facts(annotations: bytes) -> AnnotationFacts:
    """Reads the message annotations; empty bytes stand for a message without any."""
    if not annotations:
        return NO_ANNOTATIONS
    known = _annotations.get(annotations)
    if known is None:
        known = _read_annotations(annotations)
        if len(annotations) <= MAX_KEPT_BYTES:
            _annotations.keep(annotations, known)
    return known


def _read_annotations(annotations: bytes) -> AnnotationFacts:
    found = value_of(annotations)
    if not isinstance(found, dict):
        raise Malformed("annotations that are no map")
    said = {str(name): value for name, value in found.items()}
    delay = next((said[name] for name in DELAYS if name in said), None)
    if delay is not None and not (
        isinstance(delay, int) and not isinstance(delay, bool) and 0 <= delay <= MAX_DELAY_MS
    ):
        raise Amqp10Error(
            INVALID_FIELD, f"a delivery delay is whole milliseconds, from 0 to {MAX_DELAY_MS}"
        )
    time = said.get(DELIVERY_TIME)
    if isinstance(time, int) and not isinstance(time, bool):
        time = time / 1000
    elif isinstance(time, datetime):
        time = time.timestamp()
    elif time is not None:
        raise Amqp10Error(INVALID_FIELD, f"{DELIVERY_TIME} is milliseconds since the epoch")
    return AnnotationFacts(PUBLISHER in said, delay / 1000 if delay else None, time)


def without_forgery(native: bytes, annotations: bytes) -> bytes:
    found = value_of(annotations)
    assert isinstance(found, dict)
    kept = {name: value for name, value in found.items() if str(name) != PUBLISHER}
    return native.replace(annotations, section(ANNOTATIONS, kept) if kept else b"", 1)


def property_field(properties: bytes, place: int) -> object:
    """One field of the properties section; None when it is not there."""
    if not properties:
        return None
    _, position = section_at(properties, 0)
    code = properties[position]
    if code == 0xC0:
        count, position = properties[position + 2], position + 3
    elif code == 0xD0:
        count, position = int.from_bytes(properties[position + 5 : position + 9]), position + 9
    elif code == 0x45:
        return None
    else:
        raise Malformed("properties that are no list")
    if count <= place:
        return None
    for _ in range(place):
        position = skip(properties, position)
    if position >= len(properties):
        raise Malformed("properties that end too early")
    return None if properties[position] == 0x40 else decode(properties, position)[0]


def expiry_of(properties: bytes) -> float | None:
    """absolute-expiry-time, in seconds since the epoch."""
    value = property_field(properties, EXPIRY)
    return value.timestamp() if isinstance(value, datetime) else None


def check_user(properties: bytes, name: str) -> None:
    """Checks that a sender names itself as the user, and nobody else [3.2.4]."""
    user = property_field(properties, USER_ID)
    if user is None:
        return
    said = user.decode(errors="replace") if isinstance(user, bytes) else str(user)
    if said != name:
        raise Amqp10Error(
            "amqp:unauthorized-access",
            f"user-id is '{said}' but the authenticated user is '{name}'; leave it out",
        )


def malformed(error: Malformed) -> Amqp10Error:
    return Amqp10Error(DECODE_ERROR, f"the message is malformed: {error}")
