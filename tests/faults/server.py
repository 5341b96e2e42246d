"""A PostgreSQL of the tests' own, which they kill, freeze, restart and cut off.

It is the gateway's own runner in a temporary folder: a gateway gets its URL as database.url.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from gateway.postgres.errors import PassingTrouble
from gateway.postgres.server import EmbeddedPostgres
from tests.support.postgres import database_of
from tests.support.until import until

ATTEMPTS = 20
CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = $1 AND pid <> pg_backend_pid()
"""
WRITER = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = $1 AND application_name = 'howdah gateway (writer)'
"""


class Server:
    def __init__(self, folder: Path) -> None:
        self.postgres = EmbeddedPostgres(folder, settings={"shared_buffers": "32MB"})
        self._killed: set[int] = set()  # processes that wrote for a gateway

    def database(self, name: str) -> str:
        return database_of(self.postgres, name)

    # --- what tests do to it

    def kill(self) -> None:
        """kill -9 of the postmaster; its children notice and follow."""
        os.kill(self.postgres.pid, signal.SIGKILL)
        while self.postgres.is_running:  # the kernel's word, at once; asking takes the body away
            os.sched_yield()

    async def start_again(self) -> None:
        """On the thread of the event loop: the server would die with any other."""
        for attempt in range(ATTEMPTS):
            self.postgres.launch()
            try:
                return await asyncio.to_thread(self.postgres.wait_until_ready, 60.0)
            except PassingTrouble:
                await asyncio.sleep(0.1 * attempt)  # its predecessor still lets go of its memory
        raise AssertionError("PostgreSQL does not start again")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing of it runs, and nobody is told."""
        pids = [self.postgres.pid, *_children(self.postgres.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    async def crash(self, database: str) -> None:
        """kill -9 of the process that writes for a gateway: PostgreSQL ends all sessions, and
        recovers as after a power failure. Waits for the session of a gateway that has come back
        from the crash before."""
        pid: int | None = None

        async def is_found() -> bool:
            nonlocal pid
            pid = await self._ask(WRITER, database)
            return pid is not None and pid not in self._killed

        await until(is_found, "a gateway has its writing session")
        assert pid is not None
        self._killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    async def cut(self, database: str) -> int:
        """Ends every session on a database; how many there were."""
        count = 0

        async def is_cut() -> bool:
            nonlocal count
            found = await self._ask(CUT, database)
            count = found or 0
            return found is not None

        await until(is_cut, "PostgreSQL takes connections")
        return count

    async def _ask(self, query: str, database: str) -> int | None:
        """The answer to one query; None while the server recovers from an earlier crash."""
        try:
            connection = await asyncpg.connect(self.postgres.url)
        except asyncpg.CannotConnectNowError:
            return None
        try:
            answer: int | None = await connection.fetchval(query, database)
            return answer
        finally:
            await connection.close()


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # after the name in parentheses, which may hold anything: state, parent, ...
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended just now
            if parent == pid:
                found.append(int(entry.name))
    return found
