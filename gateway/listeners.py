"""Opens the listeners: addresses, TLS, and errors that name the key to change.

Answers for sockets that accept; what a connection does is its protocol's business.
"""

from __future__ import annotations

import errno
import ssl

from gateway.acceptor import (
    Acceptor,
    ListenerCounters,
    ProtocolFactory,
    bound_sockets,
    place_of,
)
from gateway.config.file_and_environment import ConfigError
from gateway.config.keys import Listener
from gateway.file_descriptors import Share
from gateway.tls import server_context
from gateway.tls_handshakes import TlsCounters

PRODUCT = "Howdah"  # what a gateway calls itself when somebody asks who has its port


class ListenError(ConfigError):
    """The address of a listener cannot be had, though the configuration is right."""


async def open_listener(
    name: str,
    config: Listener,
    factory: ProtocolFactory,
    tls_counters: TlsCounters,
    counters: ListenerCounters | None = None,
    share: Share | None = None,
) -> Acceptor:
    """Opens a listener, which accepts from now on; `factory` makes the protocol of each
    connection."""
    context = context_of(name, config)
    try:
        sockets = await bound_sockets(config.host, config.port)
    except OSError as error:
        raise cannot_listen(name, config, error) from error
    acceptor = Acceptor(
        name, sockets, factory, context, counters or ListenerCounters(), share, tls_counters
    )
    acceptor.start()
    return acceptor


def context_of(name: str, config: Listener) -> ssl.SSLContext | None:
    """Makes the listener's TLS context from its files; None where it has no TLS. Raises
    ConfigError."""
    if config.tls is None:
        return None
    return server_context(name, config.tls)


def cannot_listen(name: str, config: Listener, error: OSError) -> ListenError:
    """Explains why a listener does not open, and which key leads out of it."""
    place = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        why = (
            f"{place} is taken by another program or gateway, which `ss -ltnp` names: stop that "
            "one, or choose another port"
        )
    elif error.errno == errno.EACCES:
        why = f"{place} needs more rights: choose a port above 1023"
    else:
        why = f"{place} cannot be listened on: {error.strerror or error}"
    key = "host" if error.errno in (None, errno.EADDRNOTAVAIL) else "port"
    return ListenError([f"listeners.{name}.{key}: {why}"])


def announcement(name: str, config: Listener, server: Acceptor) -> str:
    """Makes the line on standard output that says where a listener can be reached."""
    places = ", ".join(place_of(socket.getsockname()) for socket in server.sockets)
    return f"{name} listening on {places}{' (TLS)' if config.tls is not None else ''}"
