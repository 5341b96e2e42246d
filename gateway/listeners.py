"""Opening the listeners: addresses, TLS, and errors that name the key to change.

Answers for sockets that accept; what a connection does is its protocol's business.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from gateway.config import Listener
from gateway.config_source import ConfigError
from gateway.handshakes import TlsCounters, watched
from gateway.tls import server_context

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
_BACKLOG = 1024


PRODUCT = "Howdah"  # what a gateway calls itself when somebody asks who has its port


class ListenError(ConfigError):
    """The configuration is right, and the address cannot be had."""


async def open_listener(
    name: str, config: Listener, factory: ProtocolFactory, counters: TlsCounters
) -> asyncio.Server:
    """A server that accepts; `factory` makes the protocol of each connection."""
    context = server_context(name, config.tls) if config.tls is not None else None
    if context is not None:
        context.sslobject_class = watched(name, counters)
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            factory, config.host, config.port, ssl=context, backlog=_BACKLOG
        )
    except OSError as error:
        raise cannot_listen(name, config, error) from error


def cannot_listen(name: str, config: Listener, error: OSError) -> ListenError:
    """Why a listener does not open, and which key leads out of it."""
    place = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        why = f"{place} is taken by another program: stop that one, or choose another port"
    elif error.errno == errno.EACCES:
        why = f"{place} needs more rights: choose a port above 1023"
    else:
        why = f"{place} cannot be listened on: {error.strerror or error}"
    key = "host" if error.errno in (None, errno.EADDRNOTAVAIL) else "port"
    return ListenError([f"listeners.{name}.{key}: {why}"])


def announcement(name: str, config: Listener, server: asyncio.Server) -> str:
    """The line on standard output that says where a listener can be reached."""
    places = ", ".join(_place(socket.getsockname()) for socket in server.sockets)
    return f"{name} listening on {places}{' (TLS)' if config.tls is not None else ''}"


def _place(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
