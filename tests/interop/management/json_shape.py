"""The shape of a JSON document: its places, and the types that stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Shape = dict[str, set[str]]  # place, such as `queues[].arguments.x-max-length` -> types


def shape(value: Any, free: frozenset[str] = frozenset()) -> Shape:
    """Lists the places of a document. What lies below a place in `free` is named by users: its
    type counts, and its keys do not."""
    found: Shape = {}
    for place, kind in _places(value, "", free):
        found.setdefault(place, set()).add(kind)
    return found


def _places(value: Any, place: str, free: frozenset[str]) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            yield place, "object"
            if place.rsplit(".", 1)[-1].removesuffix("[]") not in free:
                for key, below in value.items():
                    yield from _places(below, f"{place}.{key}" if place else key, free)
        case list():
            yield place, "list"
            for below in value:
                yield from _places(below, f"{place}[]", free)
        case bool():
            yield place, "boolean"
        case int() | float():
            yield place, "number"
        case str():
            yield place, "text"
        case None:
            yield place, "null"


def differences(theirs: Shape, ours: Shape) -> dict[str, str]:
    """Tells where our document lacks a place of theirs, or has another type there. A null says
    nothing of a type; an empty list stands for an empty object, as in RabbitMQ's answers."""
    found = {}
    for place, kinds in theirs.items():
        known = kinds - {"null"}
        if place not in ours:
            if not any(above not in ours for above in _above(place)):
                found[place] = f"missing ({', '.join(sorted(kinds))})"
        elif known and not ours[place] & known and ours[place] != {"null"}:
            is_empty_table = known == {"list"} and ours[place] == {"object"}
            if not (is_empty_table and not any(p.startswith(f"{place}[]") for p in theirs)):
                here = ", ".join(sorted(ours[place]))
                found[place] = f"{here} where RabbitMQ has {', '.join(sorted(known))}"
    return found


def _above(place: str) -> Iterator[str]:
    for end, letter in enumerate(place):
        if letter == "." or place[end : end + 2] == "[]":
            yield place[:end]
