"""The services that adapters ask of the queue manager.

Every adapter is given one `Services` and reaches everybody else through it: users, memory, time and
virtual hosts. An adapter must not know that a `Manager` stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from queue_core.access.auth import Auth
    from queue_core.counters import Counters
    from queue_core.memory_account import Memory
    from queue_core.sessions.sessions import Sessions
    from queue_core.vhost import Vhost


class Services(Protocol):
    """The queue manager, as far as every adapter needs it."""

    @property
    def auth(self) -> Auth: ...

    @property
    def memory(self) -> Memory: ...

    @property
    def clock(self) -> Callable[[], float]:
        """Tells the seconds since the epoch."""
        ...

    async def vhost(self, name: str) -> Vhost:
        """Finds a virtual host. Raises VhostNotFound."""
        ...


class SessionServices(Services, Protocol):
    """The queue manager for a protocol whose sessions outlive their connections."""

    @property
    def sessions(self) -> Sessions: ...

    @property
    def counters(self) -> Counters:
        """The totals of all protocols; MQTT tells them in $SYS."""
        ...
