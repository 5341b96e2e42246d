"""The wire between a gateway and PostgreSQL: a proxy that can be cut, and cut so that nobody is
told.

It forwards bytes and understands none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from urllib.parse import urlsplit

HOST = "127.0.0.1"
CHUNK = 64 * 1024


class Direction(Enum):
    QUESTION = "to PostgreSQL"
    ANSWER = "from PostgreSQL"


class Wire:
    """One listening port, and a pair of sockets for each session."""

    def __init__(self, url: str) -> None:
        self._target = url
        self._server: asyncio.Server | None = None
        self._near: set[asyncio.StreamWriter] = set()  # towards the gateway
        self._far: set[asyncio.StreamWriter] = set()  # towards PostgreSQL
        self._is_dead = False
        self._breaks: dict[asyncio.StreamWriter, Direction] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where PostgreSQL seems to be."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._target)
        return parts._replace(netloc=f"{parts.username}:{parts.password}@{HOST}:{port}").geturl()

    # --- what tests do to it

    def go_dead(self) -> None:
        """PostgreSQL sees its sessions end; the gateway sees nothing at all."""
        self._is_dead = True
        for writer in self._far:
            writer.close()

    def break_at(self, direction: Direction) -> None:
        """Every session breaks with the next bytes in that direction, which never arrive: a
        question that was not heard, or the answer to one that was."""
        self._breaks = {near: direction for near in self._near if not near.is_closing()}

    def mend(self) -> None:
        """New sessions get through; the old ones find out."""
        self._is_dead = False
        for writer in self._near:
            writer.close()

    # --- life

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._on_session, HOST, 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in (*self._near, *self._far):
            writer.close()

    async def _on_session(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self._near.add(near)
        if self._is_dead:
            return  # accepted by the kernel's backlog, and never answered
        parts = urlsplit(self._target)
        try:
            far_reader, far = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:  # the server is down, and says so
            near.close()
            return
        self._far.add(far)
        for direction, source, target in (
            (Direction.QUESTION, reader, far),
            (Direction.ANSWER, far_reader, near),
        ):
            task = asyncio.create_task(self._forward(direction, source, target, (near, far)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self,
        direction: Direction,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        try:
            while data := await source.read(CHUNK):
                if self._is_dead:
                    return
                if self._breaks.get(pair[0]) is direction:
                    self._break(pair)
                    return
                target.write(data)
                await target.drain()
        except OSError:
            pass
        if not self._is_dead:
            target.close()

    def _break(self, pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        del self._breaks[pair[0]]
        for writer in pair:
            writer.close()


@asynccontextmanager
async def wire_to(url: str) -> AsyncIterator[Wire]:
    wire = Wire(url)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
