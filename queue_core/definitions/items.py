"""The items of a definitions file, each as RabbitMQ writes it, in the order in which RabbitMQ
imports them. A struct's fields are the item's keys; knows nothing of what this gateway makes of
them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from queue_core.message.json_arguments import declared


class Section(StrEnum):
    """The lists of a definitions file, in the order of their import: whoever is named by another
    comes before it."""

    USERS = "users"
    VHOSTS = "vhosts"
    PERMISSIONS = "permissions"
    TOPIC_PERMISSIONS = "topic_permissions"
    GLOBAL_PARAMETERS = "global_parameters"
    PARAMETERS = "parameters"
    POLICIES = "policies"
    EXCHANGES = "exchanges"
    QUEUES = "queues"
    BINDINGS = "bindings"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a list. RabbitMQ writes an empty object as `{}` or as `[]`."""


Table = dict[str, Any] | list[Any]


class UserItem(Item, frozen=True, kw_only=True):
    name: str
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    password: str | None = None  # as people write it into a file by hand
    scram_verifier: str | None = None  # our own: RabbitMQ has no such key
    tags: list[str] | str = ""  # text with commas before RabbitMQ 3.9
    limits: Table = {}


class VhostItem(Item, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    tags: list[str] | str | None = None
    default_queue_type: str | None = None
    metadata: Table = {}
    limits: Table = {}
    tracing: bool = False


class PermissionItem(Item, frozen=True, kw_only=True):
    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionItem(Item, frozen=True, kw_only=True):
    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class GlobalParameterItem(Item, frozen=True, kw_only=True):
    name: str
    value: Any


class ParameterItem(Item, frozen=True, kw_only=True):
    vhost: str
    component: str
    name: str
    value: Any


class PolicyItem(Item, frozen=True, kw_only=True):
    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = msgspec.field(name="apply-to", default="all")


class ExchangeItem(Item, frozen=True, kw_only=True):
    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = {}


class QueueItem(Item, frozen=True, kw_only=True):
    vhost: str
    name: str
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    type: str | None = None  # RabbitMQ 4 says it here as well
    arguments: Table = {}


class BindingItem(Item, frozen=True, kw_only=True):
    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str = ""
    arguments: Table = {}


TYPES: Final[Mapping[Section, type[Item]]] = {
    Section.USERS: UserItem,
    Section.VHOSTS: VhostItem,
    Section.PERMISSIONS: PermissionItem,
    Section.TOPIC_PERMISSIONS: TopicPermissionItem,
    Section.GLOBAL_PARAMETERS: GlobalParameterItem,
    Section.PARAMETERS: ParameterItem,
    Section.POLICIES: PolicyItem,
    Section.EXCHANGES: ExchangeItem,
    Section.QUEUES: QueueItem,
    Section.BINDINGS: BindingItem,
}
# The lists that the file of one virtual host has.
OF_A_VHOST: Final = (
    Section.PARAMETERS,
    Section.POLICIES,
    Section.EXCHANGES,
    Section.QUEUES,
    Section.BINDINGS,
)
TOPOLOGY: Final = frozenset((Section.EXCHANGES, Section.QUEUES, Section.BINDINGS))
KEYS: Final = {
    section: frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    for section, kind in TYPES.items()
}


def table(value: Table) -> dict[str, Any]:
    """Returns an object that RabbitMQ may have written as an empty list."""
    return value if isinstance(value, dict) else {}


def arguments_of(item: ExchangeItem | QueueItem | BindingItem) -> dict[str, Any]:
    """Returns the arguments of an item as they were declared: our own files say the types that
    JSON does not have."""
    return dict(declared(table(item.arguments)))


def words(value: list[str] | str | None) -> list[str]:
    """Returns tags, written as a list or as text with commas."""
    if isinstance(value, str):
        return [word for each in value.split(",") if (word := each.strip())]
    return list(value or ())
