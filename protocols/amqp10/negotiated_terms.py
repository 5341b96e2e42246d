"""The terms of an open connection: made complete when it opens, never changed.

Links get everything through them: the virtual host, the user, and the gateway's services.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.amqp10.context import Context
from queue_core.access.auth import Action, Identity, Peer, Resource, ResourceKind
from queue_core.delivery.consumer import Origin
from queue_core.vhost import Vhost


class Terms:
    """One connection's terms. `container` is the client's name for itself."""

    __slots__ = (
        "auth",
        "clock",
        "container",
        "identity",
        "mechanism",
        "peer",
        "properties",
        "settings",
        "vhost",
    )

    def __init__(
        self,
        context: Context,
        vhost: Vhost,
        identity: Identity,
        peer: Peer,
        container: str,
        mechanism: str,
        properties: Mapping[str, object],
    ) -> None:
        self.settings = context.settings
        self.auth = context.services.auth
        self.clock = context.services.clock
        self.vhost = vhost
        self.identity = identity
        self.peer = peer
        self.container = container
        self.mechanism = mechanism  # of the login
        self.properties = properties  # of the client's open

    @property
    def owner(self) -> object:
        """The object that tells this connection from others, for exclusive queues."""
        return self

    @property
    def origin(self) -> Origin:
        """The origin that people see of consumers on this connection: protocol, user, name,
        address."""
        return Origin("AMQP 1.0", self.identity.name, self.container, self.peer.address)

    def require(
        self, action: Action, kind: ResourceKind, name: str, key: str | None = None
    ) -> Resource:
        """Asks for the right to a resource, and returns the resource. Raises AccessRefused."""
        resource = Resource(kind, self.vhost.name, name, key)
        self.auth.require(self.identity, action, resource)
        return resource
