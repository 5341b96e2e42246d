"""TCP keepalive of database connections: makes a connection fail when its server is gone without a
word (a machine that lost its power, a cut cable, a firewall that forgot the connection).

Without it a statement would wait for about 15 minutes, which is what TCP tries by default, and an
idle connection for two hours. A server that is there and takes its time is not affected: its kernel
answers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import asyncpg

NOTICED_SECONDS: Final = 25  # the same as the server grants us, see `ownership`
IDLE_SECONDS: Final = 10  # without a byte before the first question
INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3

# Not every system has all of them; Linux does.
_OPTIONS: Final = (
    ("TCP_KEEPIDLE", IDLE_SECONDS),
    ("TCP_KEEPINTVL", INTERVAL_SECONDS),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ("TCP_USER_TIMEOUT", NOTICED_SECONDS * 1000),
)


def socket_of(connection: object) -> socket.socket | None:
    """Returns the socket below an asyncpg connection. The driver has no public way to it; a test
    holds that this one works."""
    transport: asyncio.BaseTransport = connection._transport  # type: ignore[attr-defined]
    link: socket.socket | None = transport.get_extra_info("socket")
    return link


async def keep_alive(connection: asyncpg.Connection) -> None:
    """Makes the connection fail within half a minute of its peer's silent end."""
    link = socket_of(connection)
    if link is None or link.family not in (socket.AF_INET, socket.AF_INET6):
        return  # a Unix socket: the peer is on this machine
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
