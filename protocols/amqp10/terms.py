"""What a connection has agreed on once it is open: made complete, never changed.

Also the ports: what AMQP 1.0 asks of the gateway that it runs in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocols.amqp10.settings import Settings
from queue_core.access.auth import Action, Auth, Identity, Peer, Resource, ResourceKind
from queue_core.delivery.consumer import Origin
from queue_core.memory_account import Memory
from queue_core.vhost import Vhost


class Services(Protocol):
    """The queue manager, as far as an adapter needs it."""

    @property
    def auth(self) -> Auth: ...

    @property
    def memory(self) -> Memory: ...

    async def vhost(self, name: str) -> Vhost:
        """Raises VhostNotFound."""
        ...

    def clock(self) -> float:
        """Seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    settings: Settings
    vhost: Vhost
    auth: Auth
    identity: Identity
    container: str  # the client's name for itself
    peer: Peer
    clock: Callable[[], float]
    owner: object  # tells this connection from others, for exclusive queues

    @property
    def origin(self) -> Origin:
        """Who consumes over this connection, as people are told."""
        return Origin("AMQP 1.0", self.identity.name, self.container, self.peer.address)

    def require(
        self, action: Action, kind: ResourceKind, name: str, key: str | None = None
    ) -> Resource:
        """What was asked for, if it may be had. Raises AccessRefused."""
        resource = Resource(kind, self.vhost.name, name, key)
        self.auth.require(self.identity, action, resource)
        return resource
