"""The end of a connection as TCP wants it: last words, our half closed, the rest thrown away.

A socket that is closed while bytes of the peer lie unread in it is reset, and a reset takes our
last words with it: the peer never hears why, or that its close was understood. Every adapter parts
here; what was said before is its own business.
"""

from __future__ import annotations

import asyncio
from typing import Final

PATIENCE_SECONDS: Final = 5.0  # for a peer that goes on talking, or does not read our last words
QUIET_SECONDS: Final = 0.5  # a peer that sent nothing for so long has nothing unread in our socket


def part(transport: asyncio.Transport, seconds: float = PATIENCE_SECONDS) -> None:
    """Ends a connection after what was written. Input is discarded until the peer closes its half,
    falls silent, or `seconds` are over; the connection hears of the end as always."""
    connection = transport.get_protocol()
    if not transport.is_closing() and not isinstance(connection, Farewell):
        transport.set_protocol(Farewell(transport, connection, seconds))


class Farewell(asyncio.Protocol):
    """Stands in for the connection's own protocol while the peer takes leave."""

    def __init__(
        self, transport: asyncio.Transport, connection: asyncio.BaseProtocol, seconds: float
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._has_heard = False
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.call_later(seconds, transport.abort)
        self._look = self._loop.call_later(QUIET_SECONDS, self._on_look)
        transport.resume_reading()
        if transport.can_write_eof():  # TLS cannot close one half
            transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._has_heard = True

    def connection_lost(self, error: Exception | None) -> None:
        self._end.cancel()
        self._look.cancel()
        self._connection.connection_lost(error)

    def _on_look(self) -> None:
        if not self._has_heard:
            self._transport.close()
            return
        self._has_heard = False
        self._look = self._loop.call_later(QUIET_SECONDS, self._on_look)
