"""What the open transactions of one connection hold together: each channel may have one."""

from __future__ import annotations

from collections.abc import Callable

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from queue_core.queues.competing import CompetingQueue


class OpenTransactions:
    __slots__ = ("limit", "on_change", "on_pressed", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0  # bytes
        self.on_change: Callable[[int], None] | None = None  # hears by how much it changed
        # hears which queues have no room for more after a commit
        self.on_pressed: Callable[[list[CompetingQueue]], None] | None = None

    def add(self, size: int) -> None:
        """Raises 406 where the connection holds enough."""
        if self.size + size > self.limit:
            raise Amqp091Error(
                ReplyCode.PRECONDITION_FAILED,
                f"the open transactions of one connection hold {int(self.limit)} bytes at most "
                "(broker.max_connection_transactions); commit one before the others grow",
            )
        self._change(size)

    def remove(self, size: int) -> None:
        if size:
            self._change(-size)

    def press(self, queues: list[CompetingQueue]) -> None:
        """A commit found them full: whoever made it waits for room."""
        if queues and self.on_pressed is not None:
            self.on_pressed(queues)

    def _change(self, size: int) -> None:
        self.size += size
        if self.on_change is not None:
            self.on_change(size)
