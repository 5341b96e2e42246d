"""Memories of a virtual host's exchanges are made with them, found again at a start, given to
queues that are bound later, and end with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from queue_core.commit.unit import Unit
from queue_core.commit.waiter import Waiter
from queue_core.errors import ExchangeNotFound, LimitExceeded
from queue_core.message.message import Message
from queue_core.queues.exchange_history import MOST_OF_ONE_BYTES
from queue_core.queues.exchange_state_queues import (
    ExchangeStateQueue,
    LiveHistory,
    LiveSeen,
    StoredStateQueue,
    exchange_of,
)
from queue_core.queues.queue import Appends, Queue
from queue_core.queues.reserved_names import HISTORY_PREFIX, SEEN_PREFIX
from queue_core.queues.spec import QueueKind, QueueSpec, require_short_name
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchange_arguments import (
    cache_size,
    cache_ttl,
    history_length,
    is_cache_stored,
)
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from queue_core.routing.route import Match

if TYPE_CHECKING:
    from queue_core.commit.ports import Writer
    from queue_core.queues.context import QueueContext
    from queue_core.queues.ports import StoredQueues
    from queue_core.routing.route import Route
    from queue_core.routing.router import Router

log = logging.getLogger(__name__)

GONE: Final = ExchangeNotFound("its exchange was deleted")
PAGE_ENTRIES: Final = 10_000  # of a memory that are read back at once


class ExchangeStates:
    """The memories of one virtual host's exchanges, from making to end."""

    def __init__(
        self, router: Router[Queue], context: QueueContext, writer: Writer, stored: StoredQueues
    ) -> None:
        self._router = router
        self._context = context
        self._writer = writer
        self._stored = stored

    async def make(self, spec: ExchangeSpec) -> ExchangeStateQueue | None:
        """Makes the memory of an exchange that is about to be declared; None: it remembers nothing.
        A stored memory is in the database when this returns."""
        memory = memory_spec(spec)
        if memory is None:
            return None
        if memory.kind is QueueKind.EPHEMERAL:
            return live_memory(spec, memory, self._context)
        require_short_name(memory.name)
        made = await self._stored.create(self._context, memory, None)
        assert isinstance(made, StoredStateQueue)
        return made

    def attach(self, name: str, memory: ExchangeStateQueue) -> None:
        """Makes the exchange remember from now on."""
        memory.attach(self._router.remember_by(name, memory))

    async def end(self, memory: Queue | None) -> None:
        """Ends a memory whose exchange is gone; None: that one had none."""
        if memory is None:
            return
        memory.is_deleted = True
        memory.end(GONE)
        if memory.is_stored:
            await self._stored.delete(memory)

    async def end_all(self) -> None:
        """Ends all memories: the virtual host is gone."""
        router = self._router
        for spec in router.exchanges():
            await self.end(router.exchange(spec.name).memory)

    async def restore(self, found: list[StoredStateQueue]) -> None:
        """Gives each exchange, after a start, the memory that it had. A memory without its
        exchange, or an exchange without its memory, was left by a crash between the two writes."""
        by_name = {memory.name: memory for memory in found}
        for spec in self._router.exchanges():
            wanted = memory_spec(spec)
            if wanted is None:
                continue
            stored = by_name.pop(wanted.name, None)
            if stored is not None and wanted.kind is not QueueKind.EPHEMERAL:
                await self._recall(stored)
                self.attach(spec.name, stored)
            elif (made := await self.make(spec)) is not None:
                self.attach(spec.name, made)
        for stored in by_name.values():
            log.warning("exchange '%s' is gone; so is what it remembered", exchange_of(stored.name))
            await self.end(stored)

    async def _recall(self, memory: StoredStateQueue) -> None:
        start = 0
        while entries := await self._stored.browse(memory, start, PAGE_ENTRIES):
            memory.recall(entries)
            start = entries[-1].offset + 1

    def replay(self, source: str, destination: Queue | ExchangeRef) -> Waiter | None:
        """Gives the messages that an exchange remembers to a destination that was just bound to it,
        in order, before any that come later. The waiter waits for their commit; None: there is
        nothing to commit."""
        memory = self._router.exchange(source).memory
        if memory is None:
            return None
        appends: Appends = []
        for message in memory.replay(self._context.clock()):
            for queue, options in self._way(source, message, destination):
                if queue is not memory:
                    queue.take(message, options, appends, stays=True)
        if not appends:
            return None
        waiter = Waiter()
        self._writer.submit(Unit(appends, waiter))
        return waiter

    def _way(self, source: str, message: Message, destination: Queue | ExchangeRef) -> Route[Queue]:
        if not isinstance(destination, ExchangeRef):
            return (Match(destination, ()),)
        try:
            return self._router.route_keys(
                destination.name,
                (message.routing_key, *message.copies),
                message.properties.header_map,
                message.deciding_property,
                inside=True,
            )
        except LimitExceeded as error:  # those before it are on their way already
            log.warning("a message that exchange '%s' remembers is not replayed: %s", source, error)
            return ()


def memory_spec(spec: ExchangeSpec) -> QueueSpec | None:
    """Describes an exchange's memory as a queue; None: the exchange remembers nothing. `durable`
    says whether the memory is stored."""
    match spec.routes_as:
        case ExchangeKind.RECENT_HISTORY:
            limits = {
                "x-max-length": history_length(spec.name, spec.arguments),
                "x-max-length-bytes": MOST_OF_ONE_BYTES,
            }
            return QueueSpec.parse(HISTORY_PREFIX + spec.name, limits, durable=spec.durable)
        case ExchangeKind.DEDUPLICATION:
            limits = {"x-max-length": cache_size(spec.name, spec.arguments)}
            is_stored = is_cache_stored(spec.name, spec.arguments, durable=spec.durable)
            return QueueSpec.parse(SEEN_PREFIX + spec.name, limits, durable=is_stored)
        case _:
            return None


def live_memory(spec: ExchangeSpec, memory: QueueSpec, context: QueueContext) -> ExchangeStateQueue:
    if spec.routes_as is ExchangeKind.RECENT_HISTORY:
        return LiveHistory(memory, context)
    return LiveSeen(memory, context, cache_ttl(spec.name, spec.arguments))
