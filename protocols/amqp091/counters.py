"""The counters of AMQP 0.9.1: plain integers, read by whatever exports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Amqp091Counters:
    """Totals since the start, over all connections."""

    connections: int = 0  # that were opened
    refused_connections: int = 0  # wrong credentials, or no such virtual host
    connection_errors: int = 0  # ended by us, because the client broke the protocol
    channels_opened: int = 0
    channels_closed: int = 0
    channel_errors: int = 0  # ended by us, because a request could not be met
    timed_out_channels: int = 0  # of these, those that did not acknowledge in time
    early_floods: int = 0  # ended, because too much came before the login
    handshake_timeouts: int = 0
    heartbeat_timeouts: int = 0
    held_publishers: int = 0  # times that one was not read: the database or a subscriber was behind
    rested_publishers: int = 0  # times that one was not read for a moment, because a queue grows
    held_readers: int = 0  # times that one was not read, because it did not read its answers
    returned_messages: int = 0  # mandatory, and routed nowhere
    nacked_publishes: int = 0  # refused by a full queue or by the database
    bugs: int = 0  # that ended a connection
