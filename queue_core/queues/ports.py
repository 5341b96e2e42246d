"""The port by which queues become tables. `queue_core.store` implements it on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from queue_core.delivery.consumer import Entry
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue

if TYPE_CHECKING:
    from queue_core.queues.context import QueueContext


class StoredQueues(Protocol):
    """Makes, ends and reads the queues that are tables."""

    async def create(
        self, context: QueueContext, spec: QueueSpec, created_by: str | None
    ) -> ClassicQueue | StreamQueue: ...

    async def delete(self, queue: Queue) -> None: ...

    async def count_bytes(self, queue: Queue) -> None:
        """Counts the bytes that wait in a queue which has a limit of bytes since it was read back,
        and drops what is beyond the limit."""
        ...

    async def browse(self, queue: Queue, start: int, limit: int) -> list[Entry]: ...
