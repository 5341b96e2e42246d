"""Everything that the management API asks of the database, over connections of its own."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, cast

import asyncpg

from queue_core.store.operator.browsing import Browser
from queue_core.store.operator.doctor_checks import examine
from queue_core.store.operator.finding import Finding
from queue_core.store.operator.inspection_pool import InspectionPool
from queue_core.store.operator.status_lists import StatusLists

FINDINGS_SECONDS: Final = 5.0  # that findings are shown again, instead of examined anew


class Inspection:
    """Looks at queues, sessions, segments and the database for people. Changes nothing."""

    def __init__(self, pool: InspectionPool) -> None:
        self.browser = Browser(pool)
        self.lists = StatusLists(pool)
        self._pool = pool
        self._turn = asyncio.Lock()
        self._findings: list[Finding] = []
        self._examined_at = -FINDINGS_SECONDS

    async def findings(self) -> list[Finding]:
        """Examines the database as `howdah doctor` does; once for all who ask within some
        seconds."""
        async with self._turn:
            if monotonic() - self._examined_at >= FINDINGS_SECONDS:
                async with self._pool.connection() as connection:
                    self._findings = await examine(cast(asyncpg.Connection, connection))
                self._examined_at = monotonic()
            return self._findings
