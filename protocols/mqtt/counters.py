"""Counters of this adapter: plain integers, read by whoever exports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MqttCounters:
    """Totals since the start, over all connections."""

    connections: int = 0  # clients that said CONNECT and were let in
    refused_connections: int = 0
    protocol_errors: int = 0
    early_floods: int = 0  # refused, as they sent too much before they had logged in
    takeovers: int = 0
    keep_alive_timeouts: int = 0
    messages_received: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    held_publishers: int = 0  # waits of a publisher for a subscriber that was behind
    refused_publishes: int = 0  # forbidden, oversize, malformed payloads, full queues
    refused_subscriptions: int = 0
    dropped_too_large: int = 0  # larger than the subscriber's maximum packet size
    dropped_forbidden: int = 0  # waited for a session whose user may not read them any more
    stray_acknowledgements: int = 0  # acknowledged packets that are not in flight
    bad_settlements: int = 0  # publishes to $ack and its like that settle nothing
    lost_subscriptions: int = 0  # subscriptions to queues that were deleted
