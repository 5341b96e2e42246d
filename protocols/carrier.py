"""A connection as its AMQP machine sees it.

A machine owns no socket and no clock. Whatever it needs of the asyncio side it asks of its carrier:
the peer's address, memory, a pause for a publisher, a flush at the end of the loop's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from queue_core.access.auth import Peer

if TYPE_CHECKING:
    from queue_core.access.auth import Identity
    from queue_core.queues.queue import Queue


class Carrier(Protocol):
    """The connection that carries a machine's bytes. Both AMQP connections implement it."""

    def peer(self) -> Peer:
        """Describes the client's end of the connection."""
        ...

    def on_opened(self, identity: Identity, vhost: str) -> None:
        """Hears that the client is let in, once the answer to its open is in the output."""

    def flush_soon(self) -> None:
        """Writes the output at the end of the loop's turn."""

    def expect(self, size: int) -> None:
        """Reserves memory for the messages that have come in part, by their total size in bytes."""

    def add_transaction(self, size: int) -> None:
        """Counts bytes that open transactions hold more than before; less, if below zero."""

    def hold_for(self, queues: list[Queue]) -> None:
        """Stops reading until subscribers that are behind have room in these queues."""


class _Gone:
    """The carrier of a machine whose connection is gone: nobody is told of anything any more."""

    def peer(self) -> Peer:
        return Peer.described_by(lambda _: None)

    def on_opened(self, identity: Identity, vhost: str) -> None:
        """Does nothing: such a client is ended at once."""

    def flush_soon(self) -> None:
        """Does nothing: there is no socket to write to."""

    def expect(self, size: int) -> None:
        """Does nothing: the connection holds no memory any more."""

    def add_transaction(self, size: int) -> None:
        """Does nothing: the connection holds no memory any more."""

    def hold_for(self, queues: list[Queue]) -> None:
        """Does nothing: there is no socket to read from."""


GONE: Final = _Gone()
