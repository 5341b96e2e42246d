"""Connections whose plans are not compiled before they run.

PostgreSQL compiles (JIT) what it estimates to be costly, and a plan over hundreds of segments takes
it seconds to compile where running it takes milliseconds. Asked for by SET, not at the connection's
start, which poolers would refuse.
"""

from __future__ import annotations

from typing import Final

import asyncpg

NO_JIT: Final = "SET jit = off"


class PooledConnection(asyncpg.Connection):
    """Stays so when the pool resets it for the next one; the pool's `init` asks for it first."""

    def get_reset_query(self) -> str:
        return f"{super().get_reset_query()}\n{NO_JIT};"
