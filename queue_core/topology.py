"""The topology of one virtual host: its exchanges and bindings, as they are declared, bound,
unbound and deleted, in the router and in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from queue_core.errors import QueueNotFound
from queue_core.routing.bindings import Binding, BindingLimits, ExchangeRef
from queue_core.shared_lock import SharedLock

if TYPE_CHECKING:
    from queue_core.commit.ports import Keeper
    from queue_core.exchange_states import ExchangeStates
    from queue_core.keyed_lock import Turns
    from queue_core.queues.context import QueueContext
    from queue_core.queues.queue import Queue
    from queue_core.routing.exchanges import ExchangeSpec
    from queue_core.routing.router import Router


class Topology:
    """Changes exchanges and bindings; what is durable is committed when a change returns. Bindings
    to several destinations are made together and share their commits, all other changes are made
    one at a time."""

    def __init__(
        self,
        router: Router[Queue],
        context: QueueContext,
        keeper: Keeper,
        memories: ExchangeStates,
        turns: Turns,
        limits: BindingLimits,
        on_declared: Callable[[str], None],
    ) -> None:
        self._router = router
        self._context = context
        self._vhost_name = context.vhost_name
        self._keeper = keeper
        self.memories = memories  # of exchanges
        self._turns = turns
        self._limits = limits
        self._on_declared = on_declared  # hears the name of a new exchange
        self._changing = SharedLock()

    async def declare_exchange(self, spec: ExchangeSpec) -> None:
        async with self._changing.alone():
            if not self._router.is_new(spec):
                return
            memory = await self.memories.make(spec)  # before the first message comes through it
            self._router.declare_exchange(spec)
            self._on_declared(spec.name)
            if memory is not None:
                self.memories.attach(spec.name, memory)
            if spec.durable:
                try:
                    await self._keeper.add_exchange(self._vhost_name, spec)
                except BaseException:
                    self._router.delete_exchange(spec.name)
                    self._keeper.later(self.memories.end(memory))
                    raise
            self._context.ignored_arguments.report("exchange", spec.name, spec.inert)

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        async with self._changing.alone():
            exchange = self._router.exchange(name)
            removal = self._router.delete_exchange(name, if_unused=if_unused)
            if exchange.spec.durable:
                await self._keeper.remove_exchange(self._vhost_name, name)
            await self.memories.end(exchange.memory)
        for unused in removal.unused_exchanges:
            await self.delete_exchange(unused, if_unused=True)

    async def bind(self, binding: Binding[Queue]) -> None:
        source, destination = binding.source, binding.destination
        key, arguments = binding.key, binding.arguments
        async with self._turn_of(destination), self._changing.shared():
            if not isinstance(destination, ExchangeRef) and destination.is_deleted:
                raise QueueNotFound(f"queue '{destination.name}' was deleted; declare it again")
            is_new = self._router.bind(source, destination, key, arguments, limits=self._limits)
            replayed = self.memories.replay(source, destination) if is_new else None
            if is_new and self._is_durable(source, destination):
                try:
                    await self._keeper.add_binding(self._vhost_name, binding)
                except BaseException:
                    self._router.unbind(source, destination, key, arguments)
                    raise
            if is_new:
                inert = self._router.exchange(source).inert(arguments)
                self._context.ignored_arguments.report("binding of exchange", source, inert)
            if replayed is not None:
                await replayed.done

    async def unbind(self, binding: Binding[Queue]) -> bool:
        """Removes a binding; False: there was no such binding."""
        source, destination = binding.source, binding.destination
        async with self._turn_of(destination), self._changing.alone():
            removal = self._router.unbind(source, destination, binding.key, binding.arguments)
            for removed in removal.bindings:
                if self._is_durable(source, destination):
                    await self._keeper.remove_binding(self._vhost_name, removed)
        for name in removal.unused_exchanges:
            await self.delete_exchange(name, if_unused=True)
        return bool(removal.bindings)

    def _turn_of(self, destination: Queue | ExchangeRef) -> AbstractAsyncContextManager[None]:
        """Takes the turn of a destination, so that no queue is deleted while it is being bound."""
        is_exchange = isinstance(destination, ExchangeRef)
        return self._turns.of(destination if is_exchange else destination.name)

    def _is_durable(self, source: str, destination: Queue | ExchangeRef) -> bool:
        if isinstance(destination, ExchangeRef):
            target = self._router.exchange(destination.name).spec.durable
        else:
            target = destination.is_stored
        return target and self._router.exchange(source).spec.durable

    def stored_bindings(self) -> Iterator[Binding[Queue]]:
        """Yields the bindings that are in the database. Bindings to the default exchange are made
        with their queues, and subscriptions with their sessions."""
        for binding in self._router.bindings():
            is_own = binding.source and not binding.is_filter
            if is_own and self._is_durable(binding.source, binding.destination):
                yield binding
