"""The open transactions of one connection, counted together: each channel may have one."""

from __future__ import annotations

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.carrier import Carrier
from queue_core.queues.queue import Queue


class OpenTransactions:
    """Counts the bytes that all transactions of a connection hold until their commits."""

    __slots__ = ("_carrier", "limit", "size")

    def __init__(self, limit: int, carrier: Carrier) -> None:
        self.limit = limit  # bytes
        self.size = 0  # bytes
        self._carrier = carrier

    def add(self, size: int) -> None:
        """Counts a message that a transaction takes. Raises 406 where the connection holds
        enough."""
        if self.size + size > self.limit:
            raise Amqp091Error(
                ReplyCode.PRECONDITION_FAILED,
                f"the open transactions of one connection hold {int(self.limit)} bytes at most "
                "(broker.max_connection_transactions); commit one before the others grow",
            )
        self._change(size)

    def remove(self, size: int) -> None:
        """Counts a transaction out that has ended."""
        if size:
            self._change(-size)

    def press(self, queues: list[Queue]) -> None:
        """Has the client wait for room in queues that a commit of its own found full."""
        if queues:
            self._carrier.hold_for(queues)

    def _change(self, size: int) -> None:
        self.size += size
        self._carrier.add_transaction(size)
