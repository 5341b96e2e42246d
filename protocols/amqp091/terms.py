"""What a connection has agreed on once it is open: made complete, never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.errors import Amqp091Error
from protocols.amqp091.output import Output
from protocols.amqp091.publish.open_transactions import OpenTransactions
from protocols.amqp091.settings import Settings
from queue_core.access.auth import Action, Auth, Identity, Peer, Resource, ResourceKind
from queue_core.delivery.consumer import Origin
from queue_core.vhost import Vhost


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tune and tune-ok agreed on."""

    frame_max: int
    channel_max: int
    heartbeat: int  # seconds; 0: none


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What is known of a client: what it said in start-ok, and where it comes from."""

    capabilities: Mapping[str, object] = field(default_factory=dict)
    name: str = ""  # that it gave its connection
    address: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, object], peer: Peer) -> ClientFacts:
        found, name = properties.get("capabilities"), properties.get("connection_name")
        return cls(
            found if isinstance(found, Mapping) else {},
            name if isinstance(name, str) else "",
            peer.address,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    settings: Settings
    vhost: Vhost
    auth: Auth
    identity: Identity
    tuning: Tuning
    client: ClientFacts
    clock: Callable[[], float]
    output: Output
    transactions: OpenTransactions
    counters: Amqp091Counters
    owner: object  # tells this connection from others, for exclusive queues
    fail: Callable[[int, Amqp091Error], None]  # ends a channel for what no method did

    @property
    def wants_cancel(self) -> bool:
        return bool(self.client.capabilities.get("consumer_cancel_notify"))

    @property
    def origin(self) -> Origin:
        """Who consumes over this connection, as people are told."""
        return Origin("AMQP 0.9.1", self.identity.name, self.client.name, self.client.address)

    def require(
        self, action: Action, kind: ResourceKind, name: str, key: str | None = None
    ) -> Resource:
        """What was asked for, if it may be had. Raises AccessRefused."""
        resource = Resource(kind, self.vhost.name, name, key)
        self.auth.require(self.identity, action, resource)
        return resource
