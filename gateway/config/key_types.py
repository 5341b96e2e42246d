"""The schema of one configuration key: its type, its limits, its words for people.

Answers for one field at a time, from the type annotations of the sections. It must not know any
section, any file or any environment.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from gateway.config.quantities import Duration, Size

_WORDS: Final[dict[object, str]] = {
    bool: "true or false",
    str: "text",
    Path: "a path",
    Size: "a size such as 16MiB",
    Duration: "a duration such as 30s",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One configuration key of a section."""

    name: str
    annotation: object
    kind: object  # the bare type, without limits and without None
    is_optional: bool
    meta: msgspec.Meta
    default: object

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def section(self) -> type[msgspec.Struct] | None:
        """The section behind this key, if it is one."""
        is_struct = isinstance(self.kind, type) and issubclass(self.kind, msgspec.Struct)
        return typing.cast(type[msgspec.Struct], self.kind) if is_struct else None

    @property
    def takes_text(self) -> bool:
        """Tells if a text from the environment is the value as it stands."""
        return self.kind in (str, Path, Size, Duration) or _origin(self.kind) is Literal

    def expectation(self) -> str:
        """Describes the values that the key takes, for an error message and for the reference."""
        words = self._kind_words() + self._limit_words()
        return f"{words}, or null" if self.is_optional else words

    def _kind_words(self) -> str:
        if self.section is not None:
            return "a section with keys"
        if _is_union(self.kind):
            members = [each for each in typing.get_args(self.kind) if each is not type(None)]
            return ", or ".join(_choices(each) or _WORDS[each] for each in members)
        if _origin(self.kind) is Literal:
            return f"one of {_choices(self.kind)}"
        if _origin(self.kind) is dict:
            return "a mapping of names to values"
        if _origin(self.kind) is tuple:
            return "a list of text"
        return _WORDS.get(self.kind, "a whole number" if self.kind is int else str(self.kind))

    def _limit_words(self) -> str:
        if self.meta.pattern is not None:
            return f" that matches {self.meta.pattern}"
        low, high = self.limits()
        if low is not None and high is not None:
            return f" from {low} to {high}"
        if high is not None:
            return f" of at most {high}"
        return f" of at least {low}" if low is not None else ""

    def limits(self) -> tuple[float | None, float | None]:
        """Returns the smallest and the largest value; None where there is no limit."""
        extra = self.meta.extra or {}
        return (
            self.meta.ge if self.meta.ge is not None else extra.get("min"),
            self.meta.le if self.meta.le is not None else extra.get("max"),
        )

    def convert(self, value: object) -> object:
        """Converts to the typed value. Raises ValueError."""
        try:
            converted = msgspec.convert(value, self.annotation, dec_hook=decode_custom)
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(str(error)) from None
        if isinstance(converted, Size | Duration):
            low, high = self.limits()
            _require(low is None or converted >= low)
            _require(high is None or converted <= high)
        return converted


def fields_of(section: type[msgspec.Struct]) -> Iterator[Field]:
    """Yields the keys of a section, in the order of the source."""
    for info in msgspec.structs.fields(section):
        default = info.default
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        bare, meta = _without_meta(info.type)
        kind, is_optional = _without_none(bare)
        kind, inner = _without_meta(kind)
        name = info.encode_name  # Python has no field called import
        yield Field(name, info.type, kind, is_optional, inner or meta or _NO_META, default)


def decode_custom(kind: type, value: object) -> object:
    """Decodes sizes and durations: msgspec's hook for the types that it does not know."""
    if kind is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    if issubclass(kind, Size | Duration):
        return kind.parse(value)
    raise ValueError(f"not a {kind.__name__}")


_NO_META: Final = msgspec.Meta()


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("too small or too large")


def _origin(kind: object) -> object:
    return typing.get_origin(kind)


def _without_meta(kind: object) -> tuple[object, msgspec.Meta | None]:
    if _origin(kind) is not Annotated:
        return kind, None
    bare, *extras = typing.get_args(kind)
    return bare, next((extra for extra in extras if isinstance(extra, msgspec.Meta)), None)


def _is_union(kind: object) -> bool:
    return isinstance(kind, types.UnionType) or _origin(kind) is typing.Union


def _choices(kind: object) -> str:
    """Lists the words that a Literal takes; none for other types."""
    is_literal = _origin(kind) is Literal
    return ", ".join(map(str, typing.get_args(kind))) if is_literal else ""


def _without_none(kind: object) -> tuple[object, bool]:
    if not _is_union(kind):
        return kind, False
    members = [member for member in typing.get_args(kind) if member is not type(None)]
    has_none = len(members) < len(typing.get_args(kind))
    return (members[0] if len(members) == 1 else kind), has_none
