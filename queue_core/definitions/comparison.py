"""Compares a definitions file with what is present, in both directions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from queue_core.definitions.document import Document, read_object
from queue_core.definitions.items import (
    BindingItem,
    ExchangeItem,
    GlobalParameterItem,
    Item,
    ParameterItem,
    PermissionItem,
    PolicyItem,
    QueueItem,
    Section,
    TopicPermissionItem,
    UserItem,
    VhostItem,
    arguments_of,
)
from queue_core.definitions.plan import SINGULAR
from queue_core.message.value_identity import identity_of


@dataclass(frozen=True, slots=True)
class OnlyHere:
    """An item that is present, and not in the file."""

    section: Section
    label: str


def only_here(
    document: Document, exported: dict[str, Any], vhost: str | None
) -> Iterator[OnlyHere]:
    """Yields what an export has and the file has not; an import leaves all of that alone."""
    present = read_object(exported, vhost)
    for section, items in present.items.items():
        known = {_key(item) for item in document.items.get(section, ())}
        for item in items:
            if _key(item) not in known:
                yield OnlyHere(section, f"{SINGULAR[section]} {_name(item)}")


def _key(item: Item) -> Hashable:
    """Returns what tells an item from the others of its list."""
    match item:
        case UserItem() | VhostItem() | GlobalParameterItem():
            return item.name
        case PermissionItem():
            return item.user, item.vhost
        case TopicPermissionItem():
            return item.user, item.vhost, item.exchange
        case ParameterItem():
            return item.vhost, item.component, item.name
        case PolicyItem() | ExchangeItem() | QueueItem():
            return item.vhost, item.name
        case BindingItem():
            ends = (item.vhost, item.source, item.destination_type, item.destination)
            return *ends, item.routing_key, identity_of(arguments_of(item))
    raise AssertionError(item)


def _name(item: Item) -> str:
    match item:
        case PermissionItem() | TopicPermissionItem():
            return f"'{item.user}' in '{item.vhost}'"
        case ParameterItem():
            return f"'{item.component}/{item.name}' in '{item.vhost}'"
        case PolicyItem() | ExchangeItem() | QueueItem():
            return f"'{item.name}' in '{item.vhost}'"
        case BindingItem():
            ends = f"{item.source} -> {item.destination_type} {item.destination}"
            return f"'{ends} ({item.routing_key})' in '{item.vhost}'"
        case UserItem() | VhostItem() | GlobalParameterItem():
            return f"'{item.name}'"
    raise AssertionError(item)
