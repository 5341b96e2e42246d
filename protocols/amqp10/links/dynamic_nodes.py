"""Dynamic nodes: queues that a link asks for without a name, and what ends each of them.

The one with `delete-on-close` is its connection's own and goes with its link. The others may be
used by any connection; of those the registry of their virtual host keeps the account.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from weakref import WeakKeyDictionary, proxy

from protocols.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, Amqp10Error
from protocols.amqp10.negotiated_terms import Terms
from protocols.amqp10.wire.types import Described, Symbol, ULong
from queue_core.access.auth import Action
from queue_core.errors import CoreError
from queue_core.queues.spec import QueueSpec
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 1.0  # between looks at nodes whose messages or users must go first
POLICY_PROPERTY: Final = Symbol("lifetime-policy")
NAME_PREFIX: Final = "amq.dynamic-"  # of their names


class Lifetime(IntEnum):
    """The lifetime of a node: what must be gone before the node goes, besides the link that made it
    [3.5.10 to 3.5.13]."""

    ON_CLOSE = 0x2B
    NO_LINKS = 0x2C
    NO_MESSAGES = 0x2D
    NO_LINKS_OR_MESSAGES = 0x2E


NAMES: Final[dict[object, Lifetime]] = {
    **{int(each): each for each in Lifetime},
    "amqp:delete-on-close:list": Lifetime.ON_CLOSE,
    "amqp:delete-on-no-links:list": Lifetime.NO_LINKS,
    "amqp:delete-on-no-messages:list": Lifetime.NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": Lifetime.NO_LINKS_OR_MESSAGES,
}


def asked_lifetime(properties: object) -> Lifetime:
    """Reads the lifetime from the dynamic-node-properties; without one, the node goes with its
    link."""
    if not isinstance(properties, dict):
        return Lifetime.ON_CLOSE
    asked = properties.get(POLICY_PROPERTY)
    if asked is None:
        return Lifetime.ON_CLOSE
    if not isinstance(asked, Described):
        raise Amqp10Error(INVALID_FIELD, "lifetime-policy is a described list; see [3.5.10]")
    descriptor = asked.descriptor
    known = NAMES.get(descriptor) if isinstance(descriptor, int | str) else None
    if known is None:
        raise Amqp10Error(
            NOT_IMPLEMENTED,
            f"lifetime-policy {descriptor!s} is none of delete-on-close, delete-on-no-links, "
            "delete-on-no-messages and delete-on-no-links-or-messages",
        )
    return known


def answered(lifetime: Lifetime) -> dict[object, object]:
    """Makes the dynamic-node-properties of the answering attach."""
    return {POLICY_PROPERTY: Described(ULong(lifetime), [])}


@dataclass(slots=True)
class Node:
    lifetime: Lifetime
    senders: int = 0  # links to it, but for the one that made it
    has_maker: bool = True


class DynamicNodes:
    """The dynamic nodes of one virtual host that may outlive the link that made them."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = proxy(vhost)  # whose registry this is, not the other way round
        self._nodes: dict[str, Node] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    async def make(self, terms: Terms, lifetime: Lifetime) -> str:
        """Makes a node of a new name, which its user must be allowed to configure, as for a queue
        that AMQP 0.9.1 names. Raises AccessRefused."""
        name = terms.vhost.new_name(NAME_PREFIX)
        terms.require(Action.CONFIGURE, "queue", name)
        is_own = lifetime is Lifetime.ON_CLOSE
        spec = QueueSpec.parse(name, durable=False, exclusive=is_own)
        await terms.vhost.declare_queue(spec, terms.owner, terms.identity.name, inside=True)
        if not is_own:
            self._nodes[name] = Node(lifetime)
        return name

    def join(self, name: str) -> None:
        """Counts another link that sends to the node."""
        node = self._nodes.get(name)
        if node is not None:
            node.senders += 1

    def leave(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            node.senders = max(0, node.senders - 1)

    def lose_maker(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            node.has_maker = False

    async def end(self, name: str) -> None:
        """Deletes a node if nothing keeps it any more; otherwise looks again later."""
        node = self._nodes.get(name)
        if node is None or node.has_maker:
            return
        queue = self._vhost.queues.get(name)
        if queue is None:  # deleted by somebody else
            del self._nodes[name]
            return
        counts = queue.counts()
        has_links = bool(node.senders or counts.consumers)
        has_messages = bool(counts.waiting + counts.in_flight)
        keeps = {
            Lifetime.ON_CLOSE: False,
            Lifetime.NO_LINKS: has_links,
            Lifetime.NO_MESSAGES: has_messages,
            Lifetime.NO_LINKS_OR_MESSAGES: has_links or has_messages,
        }
        if keeps[node.lifetime]:
            self._look_later()
            return
        del self._nodes[name]
        try:
            await self._vhost.delete_queue(name)
        except CoreError as error:
            log.warning("dynamic node '%s' stays: %s", name, error)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looking = asyncio.get_running_loop().create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        with suppress(ReferenceError):  # the virtual host is gone, and all in it
            for name in list(self._nodes):
                await self.end(name)


_registries: WeakKeyDictionary[Vhost, DynamicNodes] = WeakKeyDictionary()


def nodes_of(vhost: Vhost) -> DynamicNodes:
    found = _registries.get(vhost)
    if found is None:
        found = _registries[vhost] = DynamicNodes(vhost)
    return found
