"""A wire between a gateway and PostgreSQL that can be cut so that nobody is told: bytes stop, and
both ends see open connections."""

from __future__ import annotations

import asyncio
from typing import Final, Self
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024


class Wire:
    """One listening port, and a pair of sockets for each session."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._servers: list[asyncio.Server] = []
        self._is_whole = True
        self._near: set[asyncio.StreamWriter] = set()
        self._far: set[asyncio.StreamWriter] = set()  # kept: one that is forgotten is closed
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def opened(cls, target: str) -> Self:
        wire = cls(target)
        wire._servers.append(await asyncio.start_server(wire._on_session, HOST, 0))
        return wire

    @property
    def url(self) -> str:
        """Where PostgreSQL seems to be."""
        port = self._servers[0].sockets[0].getsockname()[1]
        login = self._target.netloc.rpartition("@")[0]
        return self._target._replace(netloc=f"{login}@{HOST}:{port}").geturl()

    def cut(self) -> None:
        """Lets nothing through any more, and new sessions wait for an answer that never comes."""
        self._is_whole = False

    def mend(self) -> None:
        """Lets new sessions through; the old ones end."""
        self._is_whole = True
        for writer in (*self._near, *self._far):
            writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.mend()

    async def _on_session(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self._near.add(near)
        if not self._is_whole:
            return
        far_reader, far = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._far.add(far)
        for source, target in ((reader, far), (far_reader, near)):
            task = asyncio.create_task(self._forward(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while (data := await source.read(CHUNK_BYTES)) and self._is_whole:
                target.write(data)
                await target.drain()
        except OSError:
            pass
        if self._is_whole:
            target.close()
