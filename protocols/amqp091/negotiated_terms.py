"""The terms of an open connection: made complete when it opens, never changed.

Channels get everything through them: the virtual host, the user, what was agreed on, and the ways
out of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from protocols.amqp091.context import Context
from protocols.amqp091.errors import Amqp091Error
from protocols.amqp091.output import Output
from protocols.amqp091.publish.open_transactions import OpenTransactions
from protocols.carrier import Carrier
from queue_core.access.auth import Action, Identity, Peer, Resource, ResourceKind
from queue_core.delivery.consumer import Origin
from queue_core.vhost import Vhost


class FailChannel(Protocol):
    """Ends a channel with an error; `index` is the method that it belongs to, if any does."""

    def __call__(self, number: int, error: Amqp091Error, index: int = 0) -> None: ...


@dataclass(frozen=True, slots=True)
class Tuning:
    """The limits that tune and tune-ok agreed on."""

    frame_max: int
    channel_max: int
    heartbeat: int  # seconds; 0: none


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """The facts known of a client: what it said in start-ok, and where it comes from."""

    capabilities: Mapping[str, object] = field(default_factory=dict)
    name: str = ""  # that it gave its connection
    address: str = ""
    properties: Mapping[str, object] = field(default_factory=dict)  # in one small frame
    mechanism: str = ""  # of its login

    @classmethod
    def of(cls, properties: Mapping[str, object], peer: Peer, mechanism: str) -> ClientFacts:
        found, name = properties.get("capabilities"), properties.get("connection_name")
        return cls(
            found if isinstance(found, Mapping) else {},
            name if isinstance(name, str) else "",
            peer.address,
            properties,
            mechanism,
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """The outcome of a handshake: the limits, and what the client said of itself."""

    tuning: Tuning
    client: ClientFacts


class Terms:
    """One connection's terms. `fail_channel` ends a channel for something that no method of it
    did."""

    __slots__ = (
        "auth",
        "client",
        "clock",
        "counters",
        "fail_channel",
        "identity",
        "output",
        "settings",
        "transactions",
        "tuning",
        "vhost",
    )

    def __init__(
        self,
        context: Context,
        vhost: Vhost,
        identity: Identity,
        agreement: Agreement,
        output: Output,
        carrier: Carrier,
        fail_channel: FailChannel,
    ) -> None:
        self.settings = context.settings
        self.counters = context.counters
        self.auth = context.services.auth
        self.clock = context.services.clock
        self.vhost = vhost
        self.identity = identity
        self.tuning = agreement.tuning
        self.client = agreement.client
        self.output = output
        self.fail_channel = fail_channel
        self.transactions = OpenTransactions(context.settings.max_connection_transactions, carrier)

    @property
    def owner(self) -> object:
        """The object that tells this connection from others, for exclusive queues."""
        return self

    @property
    def wants_cancel(self) -> bool:
        """The client wants to hear of a consumer that the gateway ends."""
        return bool(self.client.capabilities.get("consumer_cancel_notify"))

    @property
    def origin(self) -> Origin:
        """The origin that people see of consumers on this connection: protocol, user, name,
        address."""
        return Origin("AMQP 0.9.1", self.identity.name, self.client.name, self.client.address)

    def require(
        self, action: Action, kind: ResourceKind, name: str, key: str | None = None
    ) -> Resource:
        """Asks for the right to a resource, and returns the resource. Raises AccessRefused."""
        resource = Resource(kind, self.vhost.name, name, key)
        self.auth.require(self.identity, action, resource)
        return resource
