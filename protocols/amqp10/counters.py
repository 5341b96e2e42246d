"""The counters of AMQP 1.0: plain integers, read by whatever exports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Amqp10Counters:
    """Totals since the start, over all connections."""

    connections: int = 0  # that were opened
    refused_connections: int = 0  # wrong credentials, or no such virtual host
    connection_errors: int = 0  # ended, because the client broke the protocol
    sessions_opened: int = 0
    sessions_closed: int = 0
    link_errors: int = 0  # refused, or ended by us with an error
    rejected_transfers: int = 0  # answered `rejected`
    dropped_transfers: int = 0  # refused, and sent settled: their sender cannot be told
    early_floods: int = 0  # ended, because too much came before the login
    handshake_timeouts: int = 0
    held_publishers: int = 0  # times that one was not read: the database or a subscriber was behind
    held_readers: int = 0  # times that one was not read, because it did not read its answers
    bugs: int = 0  # that ended a connection
