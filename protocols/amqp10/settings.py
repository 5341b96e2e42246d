"""The settings of AMQP 1.0 that an operator may change; filled from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from protocols.amqp10.wire.types import Symbol

MIB: Final = 1024 * 1024


def _version() -> str:
    try:
        return version("howdah")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


@dataclass(frozen=True, slots=True)
class Settings:
    max_message_size: int = 16 * MIB  # announced on every link into the gateway
    max_partial_size: int = 64 * MIB  # of messages that are still coming in, on one connection
    max_transaction_size: int = 64 * MIB  # bytes that one transaction may hold until discharge
    max_connection_transactions: int = 128 * MIB  # bytes that all of a connection may hold
    max_unsent_size: int = 4 * MIB  # of output that the client has not read
    max_transactions: int = 16  # open at once on one connection
    max_links: int = 4096  # on one connection
    max_frame_size: int = 131_072
    channel_max: int = 255
    idle_seconds: float = 60.0  # without a frame before a peer is taken for dead; 0: for ever
    handshake_seconds: float = 10.0  # from the protocol header to open
    link_credit: int = 1000  # messages that a sender may have on their way to the database
    product: str = "Howdah"
    version: str = _version()


def product_of(settings: Settings) -> dict[object, object]:
    """Makes the properties by which the gateway introduces itself in its open."""
    return {
        Symbol("product"): settings.product,
        Symbol("version"): settings.version,
        Symbol("platform"): "Python",
        Symbol("information"): "AMQP 1.0 on PostgreSQL",
    }
