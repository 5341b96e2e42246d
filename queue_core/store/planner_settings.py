"""Planner settings of pooled connections: switches JIT compilation off.

PostgreSQL compiles (JIT) what it estimates to be costly, and a plan over hundreds of segments takes
it seconds to compile where running it takes milliseconds. Asked for by SET, not at the connection's
start, which poolers would refuse.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from queue_core.store.write.fence import READ_COMMITTED
from queue_core.store.write.synchronous_commit import INSIST

NO_JIT: Final = "SET jit = off"


class PooledConnection(asyncpg.Connection):
    """Keeps JIT off and commits synchronous when the pool resets the connection for its next user;
    the pool's `init` sets both first."""

    def get_reset_query(self) -> str:
        return "\n".join((super().get_reset_query(), f"{NO_JIT};", f"{READ_COMMITTED};", INSIST))
