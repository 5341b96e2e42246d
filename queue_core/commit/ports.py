"""The ports by which something is committed. `queue_core.store` implements them on PostgreSQL."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from queue_core.commit.unit import Unit
from queue_core.routing.bindings import Binding
from queue_core.routing.exchanges import ExchangeSpec


class Writer(Protocol):
    """Commits units, one commit at a time; what gathers while it runs goes into the next."""

    submitted: int
    """Units so far. Whoever finds it unchanged has brought nothing that waits for the disk."""

    def submit(self, unit: Unit) -> None:
        """Never blocks. Whoever submits watches `is_congested` and slows its peer down."""

    @property
    def is_congested(self) -> bool:
        """More is waiting for the disk than should be in memory."""
        ...

    async def uncongested(self) -> None:
        """Returns when there is room again."""

    async def flushed(self) -> None:
        """Returns when everything submitted or noted until now is committed."""


class Keeper(Protocol):
    """Keeps durable definitions, and work that nobody waits for."""

    async def add_exchange(self, vhost: str, spec: ExchangeSpec) -> None: ...
    async def remove_exchange(self, vhost: str, name: str) -> None: ...
    async def add_binding(self, vhost: str, binding: Binding[Any]) -> None: ...
    async def remove_binding(self, vhost: str, binding: Binding[Any]) -> None: ...
    async def set_paused(self, vhost: str, queue: str, *, is_paused: bool) -> None: ...

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs it soon; a failure is logged, and tried again where that makes sense."""
