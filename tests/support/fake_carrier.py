"""The connection of a machine that is tested without a socket."""

from __future__ import annotations

from queue_core.access.auth import Identity, Peer
from queue_core.queues.queue import Queue

HERE = Peer("127.0.0.1")


class FakeCarrier:
    """Notes what an AMQP machine tells its connection."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str]] = []  # user and virtual host
        self.expected = 0  # bytes of messages that have come in part
        self.transactions = 0  # bytes
        self.held_for: list[Queue] = []

    def peer(self) -> Peer:
        return HERE

    def on_opened(self, identity: Identity, vhost: str) -> None:
        self.opened.append((identity.name, vhost))

    def flush_soon(self) -> None:
        """Does nothing: a test takes the output itself."""

    def expect(self, size: int) -> None:
        self.expected = size

    def add_transaction(self, size: int) -> None:
        self.transactions += size

    def hold_for(self, queues: list[Queue]) -> None:
        self.held_for += queues
