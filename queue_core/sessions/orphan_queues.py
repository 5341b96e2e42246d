"""Queues whose session or group is gone: deleted now, or as soon as the database can be reached.

A deletion that comes late must not hit a new queue of the same name, so it happens in the turn of
whoever makes such queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from queue_core.errors import CoreError, QueueNotFound
from queue_core.sessions.deferred_work import DeferredWork

if TYPE_CHECKING:
    from queue_core.queues.queue import Queue
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

DATABASE_RETRY_SECONDS: Final = 5.0  # until the database is asked again

Turn = Callable[[], AbstractAsyncContextManager[None]]


class Leftovers:
    def __init__(self, deferred: DeferredWork) -> None:
        self._deferred = deferred

    async def drop(self, vhost: Vhost, queue: Queue, turn: Turn) -> None:
        """Deletes the queue. Called in its turn; `turn` is for when that has to be done again."""
        if queue.is_deleted:
            return
        try:
            await vhost.delete_queue(queue.name, inside=True)
        except QueueNotFound:
            return
        except CoreError as error:
            log.warning("queue '%s' cannot be removed yet: %s", queue.name, error)
            again = self._deferred.clock() + DATABASE_RETRY_SECONDS
            self._deferred.agenda.at(again, lambda: self.drop_later(vhost, queue, turn))

    def drop_later(self, vhost: Vhost, queue: Queue, turn: Turn) -> None:
        self._deferred.later(self._drop_in_turn(vhost, queue, turn))

    async def _drop_in_turn(self, vhost: Vhost, queue: Queue, turn: Turn) -> None:
        async with turn():
            await self.drop(vhost, queue, turn)
