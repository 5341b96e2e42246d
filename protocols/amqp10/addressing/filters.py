"""Filters on a source: which are supported, what they mean, and which are answered.

A filter that is not supported is left out of the answering attach, as the standard says [3.5.3].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_hex
from typing import Final

from protocols.amqp10.addressing.selector import Selector, SelectorError, compile_selector
from protocols.amqp10.conversion.properties import FORM
from protocols.amqp10.errors import INVALID_FIELD, Amqp10Error
from protocols.amqp10.wire.annotations import merged
from protocols.amqp10.wire.sections import shape_of
from protocols.amqp10.wire.types import Described, Symbol
from queue_core.delivery.consumer import Position
from queue_core.message.message import Message

SELECTOR: Final = "apache.org:selector-filter:string"
NO_LOCAL: Final = "apache.org:no-local-filter:list"
OFFSET: Final = "rabbitmq:stream-offset-spec"
STREAM_FILTER: Final = "rabbitmq:stream-filter"
MATCH_UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
FILTER_VALUE: Final = "x-stream-filter-value"  # the annotation that a stream's filter looks at
ORIGIN: Final = Symbol("x-opt-origin")  # the annotation that no-local looks at
CODES: Final = {  # filters that some clients name by number
    0x0000468C00000003: NO_LOCAL,
    0x0000468C00000004: SELECTOR,
}


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a source: which of its messages a receiver wants, and where to begin."""

    selector: Selector | None = None
    no_local: bool = False
    start: Position | None = None
    values: frozenset[str] | None = None  # of FILTER_VALUE
    match_unfiltered: bool = False
    answered: Mapping[object, object] | None = None
    shown: Mapping[str, object] = field(default_factory=dict)  # the same, for people

    def test(self, origin: str) -> Callable[[Message], bool] | None:
        """Whether a message passes; None when all do. `origin` is the receiver's connection."""
        if self.selector is None and not self.no_local and self.values is None:
            return None
        mark = origin.encode()
        return lambda message: self._passes(message, mark)

    def _passes(self, message: Message, origin: bytes) -> bool:
        if self.no_local and came_from(message, origin):
            return False
        if self.values is not None:
            value = message.properties.header_map().get(FILTER_VALUE)
            if value is None and not self.match_unfiltered:
                return False
            if value is not None and str(value) not in self.values:
                return False
        return self.selector is None or self.selector.matches(message)


NO_FILTERS: Final = Filters()


def read_filters(value: object, *, is_stream: bool) -> Filters:
    """Raises Amqp10Error for one that is supported and makes no sense."""
    if not isinstance(value, dict):
        return NO_FILTERS
    selector: Selector | None = None
    no_local = match_unfiltered = False
    start: Position | None = None
    values: frozenset[str] | None = None
    answered: dict[object, object] = {}
    shown: dict[str, object] = {}
    for key, item in value.items():
        name, content = _read(key, item)
        if name == SELECTOR:
            selector = _selector(content)
        elif name == NO_LOCAL and not is_stream:
            no_local = True
        elif name == OFFSET and is_stream:
            start = position(content)
        elif name == STREAM_FILTER and is_stream:
            values = _values(content)
        elif name == MATCH_UNFILTERED and is_stream:
            match_unfiltered = bool(content)
        else:
            continue
        answered[key] = item
        shown[name] = content if isinstance(content, str | int | datetime) else str(content)
    return Filters(selector, no_local, start, values, match_unfiltered, answered, shown)


def _read(key: object, item: object) -> tuple[str, object]:
    if not isinstance(item, Described):
        return str(key), item
    descriptor = item.descriptor
    name = CODES.get(descriptor, "") if isinstance(descriptor, int) else str(descriptor)
    return name, item.value


def _selector(content: object) -> Selector:
    if not isinstance(content, str):
        raise Amqp10Error(INVALID_FIELD, "a selector is a string")
    try:
        return compile_selector(content)
    except SelectorError as error:
        raise Amqp10Error(INVALID_FIELD, f"selector '{content[:200]}': {error}") from None


def _values(content: object) -> frozenset[str]:
    many = content if isinstance(content, list) else [content]
    if not many or not all(isinstance(each, str) for each in many):
        raise Amqp10Error(INVALID_FIELD, f"{STREAM_FILTER} is a string or a list of them")
    return frozenset(str(each) for each in many)


def position(content: object) -> Position:
    match content:
        case "first" | "last" | "next":
            return Position(name=str(content))
        case bool():
            pass
        case int() if content >= 0:
            return Position(offset=int(content))
        case datetime():
            return Position(time=content.timestamp())
    raise Amqp10Error(INVALID_FIELD, f"{OFFSET} is first, last, next, an offset or a timestamp")


# --- where a message came from, for no-local


class Origins:
    """Marks messages with the connection that they came from, while anybody asks. The mark is an
    annotation, so that it is stored with the message, and names a connection to nobody else."""

    def __init__(self) -> None:
        self.askers = 0

    @staticmethod
    def new() -> str:
        """A connection's mark: no other ever has the same."""
        return token_hex(16)

    @staticmethod
    def mark(native: bytes, origin: str) -> bytes:
        sections = shape_of(native).sections
        prefix = native[: len(native) - len(sections)]
        return prefix + merged(sections, {ORIGIN: origin})


def came_from(message: Message, origin: bytes) -> bool:
    return message.form is FORM and origin in message.native


ORIGINS: Final = Origins()
