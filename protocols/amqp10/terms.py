"""What a connection has agreed on once it is open: made complete, never changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocols.amqp10.settings import Settings
from queue_core.access.auth import Action, Auth, Identity, Peer, Resource, ResourceKind
from queue_core.delivery.consumer import Origin
from queue_core.vhost import Vhost


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
