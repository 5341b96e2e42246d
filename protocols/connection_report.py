"""A connection as people are told of it, in one shape for all protocols.

A report is made when somebody asks, from what the connection has anyway; nothing acts by it. What
RabbitMQ calls a channel is a channel of AMQP 0.9.1, a session of AMQP 1.0, and of an MQTT client
the only one that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from queue_core.delivery.consumer import Consumer


class ConnectionState(StrEnum):
    RUNNING = "running"
    BLOCKED = "blocked"  # not read: the database is behind, or memory is short
    FLOW = "flow"  # not read for a moment: subscribers are behind
    CLOSING = "closing"


@dataclass(slots=True)
class Flow:
    """The messages of one channel since it was opened."""

    published: int = 0
    confirmed: int = 0
    returned: int = 0  # to the publisher, as no queue took them
    unroutable: int = 0  # dropped, as no queue took them and their publisher did not care
    delivered: int = 0
    delivered_settled: int = 0
    got: int = 0
    got_settled: int = 0
    empty_gets: int = 0
    acknowledged: int = 0

    def add(self, other: Flow) -> None:
        """Adds what another channel has counted."""
        for name in FLOW_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def values(self) -> tuple[int, ...]:
        """Returns the counts in the order of `FLOW_NAMES`."""
        return (
            self.published,
            self.confirmed,
            self.returned,
            self.unroutable,
            self.delivered,
            self.delivered_settled,
            self.got,
            self.got_settled,
            self.empty_gets,
            self.acknowledged,
        )


FLOW_NAMES = tuple(Flow.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class LinkReport:
    """One link of an AMQP 1.0 session."""

    name: str
    is_from_client: bool
    address: str
    credit: int
    count: int  # transfers so far


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport:
    """One channel, session, or MQTT client's share of a connection."""

    number: int
    flow: Flow
    consumers: Sequence[Consumer] = ()
    is_flowing: bool = True  # the client has not asked for a pause
    is_confirming: bool = False
    is_transactional: bool = False
    prefetch: int = 0  # of each consumer to come; 0: no limit
    shared_prefetch: int = 0  # of all consumers together; 0: no limit
    unacknowledged: int = 0
    unconfirmed: int = 0
    uncommitted: int = 0  # publishes of a transaction under way
    uncommitted_acks: int = 0
    links: Sequence[LinkReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """One open connection."""

    protocol: str  # with its version
    user: str
    vhost: str
    mechanism: str  # by which the user logged in
    client_name: str  # the name that the client gave itself: a connection name, container or id
    client_properties: Mapping[str, object]
    state: ConnectionState
    frame_max: int = 0  # bytes; 0: no limit
    channel_max: int = 0
    timeout: int = 0  # seconds between heartbeats, or of the keep alive; 0: none
    channels: Sequence[ChannelReport] = field(default_factory=list)
    ended_flow: Flow = field(default_factory=Flow)  # of channels that were closed


@dataclass(frozen=True, slots=True)
class Volume:
    """The bytes of one connection so far."""

    received: int
    sent: int
    unsent: int  # wait for the socket
