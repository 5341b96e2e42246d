"""A definitions file: bytes in, checked items out.

Takes the files of RabbitMQ 3 and 4, of all virtual hosts or of one. A file that has not the shape
of one is refused as a whole, with the place of the first mistake: nothing of it is done. Knows
nothing of what is there already, and of what this gateway can make of an item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from queue_core.definitions.items import KEYS, OF_A_VHOST, TYPES, Item, Section
from queue_core.errors import InvalidArgument

ItemKind = TypeVar("ItemKind", bound=Item)

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_DEPTH: Final = 32  # of values in arguments: as deep as AMQP's own may be
SHOWN_CHARACTERS: Final = 80  # of a name in an error
# Keys beside the lists. They describe the file or its origin, and define nothing.
DESCRIPTIONS: Final = frozenset(
    (
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_vhost_name",
        "original_cluster_name",
        "explanation",
        "description",
        "default_queue_type",
        "metadata",
        "limits",
    )
)
# Lists that only the file of all virtual hosts has.
OF_ALL_VHOSTS: Final = ("users", "vhosts", "permissions")
OF_THE_VHOST_ITSELF: Final = ("default_queue_type", "limits")
UNDEFINED: Final = "undefined"  # how RabbitMQ writes a default queue type that nobody chose
# Keys of items that say how something is doing, or who made it.
PASSING: Final = frozenset(("user_who_performed_action", "cluster_state", "policy", "messages"))


@dataclass(frozen=True, slots=True)
class Document:
    """The items of a file by their lists. `notes` name what the file says beside them, and nobody
    here reads."""

    items: Mapping[Section, tuple[Item, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, kind: type[ItemKind]) -> list[ItemKind]:
        """Returns the items of one kind."""
        found = (each for items in self.items.values() for each in items)
        return [each for each in found if isinstance(each, kind)]


def read_document(data: bytes, vhost: str | None = None) -> Document:
    """Reads a file. With `vhost`, only what is for that virtual host: all of the file of one, whose
    items need not name it and may come from another, or what names it in the file of all. Raises
    InvalidArgument."""
    if len(data) > MOST_BYTES:
        raise InvalidArgument(
            f"the definitions have {len(data)} bytes, and {MOST_BYTES} are the most; split them "
            "by virtual host"
        )
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"the definitions are no JSON: {error}") from None
    return read_object(found, vhost)


def read_object(found: object, vhost: str | None = None) -> Document:
    """Reads a file whose JSON is decoded. Raises InvalidArgument."""
    if not isinstance(found, dict):
        raise InvalidArgument("the definitions must be a JSON object with lists such as queues")
    _require_shallow(found)
    sections = tuple(Section) if vhost is None else OF_A_VHOST
    notes = [
        f"'{_short(key)}' is no list of definitions that is known here"
        for key in found
        if key not in DESCRIPTIONS and key not in set(Section)
    ]
    if vhost is not None:
        notes += [
            f"'{key}' of the virtual host is not taken from its file; see `howdah vhost`"
            for key in OF_THE_VHOST_ITSELF
            if found.get(key) not in (None, "", [], {}, UNDEFINED)
        ]
    is_whole = any(key in found for key in OF_ALL_VHOSTS)
    reader = _Reader(vhost, notes, is_whole=is_whole)
    items = {each: reader.items(each, found.get(each.value, [])) for each in sections}
    return Document({each: of for each, of in items.items() if of}, tuple(notes))


class _Reader:
    """Reads the items of each list, and gathers notes on keys that nobody knows."""

    def __init__(self, vhost: str | None, notes: list[str], *, is_whole: bool) -> None:
        self._vhost = vhost
        self._notes = notes
        self._is_whole = is_whole

    def items(self, section: Section, found: object) -> tuple[Item, ...]:
        if not isinstance(found, list):
            raise InvalidArgument(f"'{section}' in the definitions must be a list")
        numbered = list(enumerate(found))
        if self._vhost is not None and self._is_whole:
            numbered = [(n, each) for n, each in numbered if _names(each, self._vhost)]
        return tuple(self._item(section, number, each) for number, each in numbered)

    def _item(self, section: Section, number: int, found: object) -> Item:
        place = f"{section}[{number}]"
        if not isinstance(found, dict):
            raise InvalidArgument(f"{place} in the definitions must be an object")
        if isinstance(name := found.get("name"), str):
            place = f"{place} '{_short(name)}'"
        if self._vhost is not None:
            found = {**found, "vhost": self._vhost}
        for key in sorted(found.keys() - KEYS[section] - PASSING):
            self._notes.append(f"{place}: the key '{_short(key)}' is not known here")
        try:
            return msgspec.convert(found, TYPES[section])
        except (msgspec.ValidationError, RecursionError) as error:
            raise InvalidArgument(f"{place} in the definitions: {error}") from None


def _names(item: object, vhost: str) -> bool:
    """Tells whether an item is of a virtual host; what is no item at all is judged later."""
    return not isinstance(item, dict) or item.get("vhost") == vhost


def _require_shallow(found: dict[str, Any]) -> None:
    """Raises InvalidArgument for values that are nested too deeply to be stored, or even to be
    walked through by recursion."""
    level: list[object] = [found]
    for _ in range(MOST_DEPTH + 3):  # and the file, its lists and their items
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise InvalidArgument(f"the definitions have values nested more than {MOST_DEPTH} deep")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
