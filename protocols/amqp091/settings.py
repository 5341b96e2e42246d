"""The settings of AMQP 0.9.1 that an operator may change; filled from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

MIB: Final = 1024 * 1024


def _version() -> str:
    try:
        return version("howdah")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


@dataclass(frozen=True, slots=True)
class Settings:
    # no pub/sub fallback of the default exchange, no consuming of patterns, no idle arguments
    strict: bool = False
    max_message_size: int = 16 * MIB
    max_transaction_size: int = 64 * MIB  # bytes that one channel may hold until tx.commit
    max_connection_transactions: int = 128 * MIB  # bytes of all its channels until their commits
    max_partial_size: int = 64 * MIB  # of messages that are still coming in, on one connection
    max_unsent_size: int = 4 * MIB  # of output that the client has not read
    frame_max: int = 131_072
    channel_max: int = 2047
    heartbeat: int = 60  # seconds, as suggested to the client; 0: none
    handshake_seconds: float = 10.0  # from the protocol header to connection.open
    product: str = "Howdah"  # some clients choose their ways by it
    version: str = _version()
