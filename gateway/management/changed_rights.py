"""Changes of users, permissions and virtual hosts over HTTP: in force when they are answered."""

from __future__ import annotations

from gateway.management.api_errors import UNAVAILABLE, ApiError
from queue_core.manager import Manager


async def in_force(manager: Manager) -> None:
    """Waits until the gateway acts by what was committed. Raises a 503 where it cannot read it."""
    if not await manager.refresh_rights():
        raise ApiError(
            503,
            UNAVAILABLE,
            "the change is made, but the gateway goes on by what it knew until it reaches its "
            "database again; see its log",
        )
