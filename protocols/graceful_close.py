"""The end of a connection as TCP wants it: last words, our half closed, the rest thrown away.

A socket that is closed while bytes of the peer lie unread in it is reset, and a reset takes our
last words with it: the peer never hears why, or that its close was understood. Every adapter parts
here; what was said before is its own business.
"""

from __future__ import annotations

import asyncio
from typing import Final

from queue_core.scheduler import scheduler

PATIENCE_SECONDS: Final = 5.0  # for a peer that goes on talking, or does not read our last words
QUIET_SECONDS: Final = 0.5  # a peer that sent nothing for so long has nothing unread in our socket
FAST_BYTES: Final = 16 << 20  # of a client that was let in are discarded as fast as they come
SLOW_PAUSE_SECONDS: Final = 0.01  # between chunks after that: a client that cannot send on reads
STRANGER_BYTES: Final = 2 << 20  # before the login; nobody means to send more than that
CHUNK_SECONDS: Final = 0.0002  # of the loop's time that reading and discarding one chunk is charged


def part(
    transport: asyncio.Transport, seconds: float = PATIENCE_SECONDS, *, is_stranger: bool = False
) -> None:
    """Ends a connection after what was written. Input is discarded until the peer closes its half,
    falls silent, or has had its `seconds`. After some megabytes a client that was let in is read
    slowly: many write all that they have before they look for an answer. A stranger (nobody has
    logged in) is cut off then, so that a flood fills no buffers of the system. The connection hears
    of the end as always."""
    connection = transport.get_protocol()
    if not transport.is_closing() and not isinstance(connection, Farewell):
        transport.set_protocol(Farewell(transport, connection, seconds, is_stranger))


class Farewell(asyncio.Protocol):
    """Stands in for the connection's own protocol while the peer takes leave."""

    def __init__(
        self,
        transport: asyncio.Transport,
        connection: asyncio.BaseProtocol,
        seconds: float,
        is_stranger: bool,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._is_stranger = is_stranger
        self._bytes_left = STRANGER_BYTES if is_stranger else FAST_BYTES
        self._has_heard = False
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler()
        self._end = self._loop.call_later(seconds, transport.abort)
        self._look = self._loop.call_later(QUIET_SECONDS, self._on_look)
        transport.resume_reading()
        if transport.can_write_eof():  # TLS cannot close one half
            transport.write_eof()

    def data_received(self, data: bytes) -> None:
        """Discards one chunk. The next is read in a later turn of the loop: the event loop itself
        would go on for megabytes with a peer that sends faster than it is read."""
        self._has_heard = True
        self._bytes_left -= len(data)
        is_over = self._bytes_left < 0
        if is_over and self._is_stranger:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.pause_reading()
            if is_over:
                self._loop.call_later(SLOW_PAUSE_SECONDS, self._read_on)
            else:
                self._scheduler.stand_in_line(self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._scheduler.spend(CHUNK_SECONDS)
            self._transport.resume_reading()

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
