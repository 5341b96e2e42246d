"""Traces which property of a message becomes which, by converting it with and without each.

So it says what the rules do, and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gateway.message_files.document import Document
from gateway.message_files.protocols import converted
from queue_core.message.carried_headers import REPEATED, TYPES

SECTIONS: Final = frozenset(
    (
        "properties",
        "headers",
        "header",
        "message-annotations",
        "application-properties",
        "user-properties",
        "footer",
    )
)
# What has a value even when nobody names one: with another one, instead of without.
OTHERWISE: Final[dict[str, Callable[[Any], Any]]] = {
    "qos": lambda qos: 0 if qos else 1,
    "durable": lambda is_durable: not is_durable,
    "retain": lambda is_retained: not is_retained,
    "delivery-mode": lambda mode: 1 if mode == 2 else 2,
}
# They change with many others: worth naming only where nothing else says it.
BESIDES: Final = frozenset((TYPES, REPEATED, "x-user-property-order"))

SAME: Final = "the same name"
OTHER: Final = "another name"
LOST: Final = "does not travel"
Path = tuple[str, ...]


class Trace(NamedTuple):
    source: str
    found: tuple[tuple[str, Any], ...]  # places and values in the target

    @property
    def verdict(self) -> str:
        if not self.found:
            return LOST
        name = _name(self.source.rsplit(".", 1)[-1])
        return SAME if name in [_name(p.rsplit(".", 1)[-1]) for p, _ in self.found] else OTHER


def _name(text: str) -> str:
    return text.replace("_", "-")


def traces(document: Document, source: str, target: str) -> list[Trace]:
    """Traces each property that the message has. Raises MessageFileError."""
    after = list(leaves(converted(document, source, target)))
    found: list[Trace] = []
    for path, rest in without_each(document):
        before = list(leaves(converted(rest, source, target)))
        changes = [(place, value) for place, value in after if not _has(before, place, value)]
        telling = [change for change in changes if _name(change[0][-1]) == _name(path[-1])]
        telling = telling or [change for change in changes if change[0][-1] not in BESIDES]
        telling = telling or changes
        found.append(Trace(".".join(path), tuple((".".join(p), v) for p, v in telling)))
    return found


def _has(found: list[tuple[Path, Any]], place: Path, value: object) -> bool:
    return any(
        other == place and type(said) is type(value) and said == value for other, said in found
    )


def without_each(document: Document) -> Iterator[tuple[Path, Document]]:
    """Yields each property of a message, with the message that lacks it."""
    for name, value in document.items():
        if name == "user-properties" and not isinstance(value, dict):
            for place, (inner, _) in enumerate(value):
                yield (name, inner), {**document, name: value[:place] + value[place + 1 :]}
        elif name in SECTIONS and isinstance(value, dict):
            for path, rest in without_each(value):
                yield (name, *path), {**document, name: rest}
        elif name in OTHERWISE:
            yield (name,), {**document, name: OTHERWISE[name](value)}
        else:
            yield (name,), {k: v for k, v in document.items() if k != name}


def leaves(document: Document) -> Iterator[tuple[Path, Any]]:
    """Yields the path and the value of each property of a document."""
    for name, value in document.items():
        if name == "user-properties":
            yield from (((name, inner), said) for inner, said in value)
        elif name in SECTIONS and isinstance(value, dict):
            yield from (((name, *path), said) for path, said in leaves(value))
        else:
            yield (name,), value
