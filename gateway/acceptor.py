"""Accepts connections: a listener's sockets, from the first packet to the end of the TLS handshake.

The event loop's own servers drop a connection without a word when there is no descriptor left, and
know no limit before that. The acceptor decides which connection gets as far as a protocol; what
happens then is the protocol's business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.file_descriptors import Share
from gateway.tls_handshakes import TlsCounters, tell_failure

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 64  # connections, before others get their turn
PAUSE_SECONDS: Final = 0.5  # after the system had nothing left to give
HANDSHAKE_SECONDS: Final = 10.0  # for TLS; the protocols' own begin after it
GOODBYE_SECONDS: Final = 5.0  # for the peer's part of the end of TLS

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(slots=True)
class ListenerCounters:
    accept_failures: int = 0
    refused_connections: int = 0
    displaced_connections: int = 0
    handshake_timeouts: int = 0


class Acceptor:
    """One listener's sockets, and the handshakes that are under way on them."""

    def __init__(
        self,
        name: str,
        sockets: list[socket.socket],
        factory: ProtocolFactory,
        context: ssl.SSLContext | None,
        counters: ListenerCounters,
        share: Share | None = None,
        tls_counters: TlsCounters | None = None,
    ) -> None:
        self.sockets = tuple(sockets)
        self._name = name
        self._factory = factory
        self._context = context
        self._counters = counters
        self._share = share
        self._tls_counters = tls_counters or TlsCounters()
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[asyncio.Task[None], float] = {}  # since when, the oldest first
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def beginning(self) -> int:
        """The number of connections that have no protocol yet."""
        return len(self._beginning)

    def start(self) -> None:
        self._pause = None
        for each in self.sockets:
            self._loop.add_reader(each.fileno(), self._accept, each)

    def renew(self, context: ssl.SSLContext) -> None:
        """Uses another certificate for connections from now on."""
        self._context = context

    def close(self) -> None:
        """Stops accepting connections; those that have a protocol go on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        for each in self.sockets:
            self._loop.remove_reader(each.fileno())
            each.close()
        for task in self._beginning:
            task.cancel()

    def oldest(self) -> float | None:
        """Returns when the oldest connection without a protocol came, by the loop's clock; None if
        there is none."""
        return next(iter(self._beginning.values()), None)

    def end_oldest(self) -> None:
        task = next(iter(self._beginning))
        del self._beginning[task]
        task.cancel()

    async def wait_closed(self) -> None:
        if self._beginning:
            await asyncio.wait(list(self._beginning))

    # --- accepting

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # its peer is gone already
                continue
            except OSError as error:
                self._on_failure(error)
                return
            self._take(connection, place_of(address))

    def _on_failure(self, error: OSError) -> None:
        self._counters.accept_failures += 1
        logger.error(
            "listener %s cannot accept a connection: %s%s",
            self._name,
            error.strerror or error,
            "; raise the limit of open files (ulimit -n, LimitNOFILE)"
            if error.errno in EXHAUSTED
            else "",
        )
        for each in self.sockets:
            self._loop.remove_reader(each.fileno())
        self._pause = self._loop.call_later(PAUSE_SECONDS, self.start)

    def _take(self, connection: socket.socket, peer: str) -> None:
        refusal = None if self._share is None else self._refusal(self._share, connection)
        if refusal is not None:
            self._counters.refused_connections += 1
            logger.warning("listener %s refuses a connection of %s: %s", self._name, peer, refusal)
            connection.close()
            return
        connection.setblocking(False)
        with suppress(OSError):  # its peer may be gone
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._begin(connection, peer))
        self._beginning[task] = self._loop.time()
        task.add_done_callback(lambda task: self._beginning.pop(task, None))

    def _refusal(self, share: Share, connection: socket.socket) -> str | None:
        shortage = share.shortage(connection.fileno())
        full = share.fullness() if shortage is None else None
        if full is None or not share.displace():
            return shortage or full
        self._counters.displaced_connections += 1
        logger.warning("listener %s ends the oldest connection of its kind: %s", self._name, full)
        return None

    async def _begin(self, connection: socket.socket, peer: str) -> None:
        """Gives the connection its protocol, after TLS. A handshake that fails, or takes too long,
        is counted and logged with its peer's address, which its socket has forgotten by then."""
        seconds = None if self._context is None else HANDSHAKE_SECONDS
        goodbye = None if self._context is None else GOODBYE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=goodbye,
            )
        except ConnectionAbortedError:  # asyncio's word for a handshake that took too long
            self._counters.handshake_timeouts += 1
            logger.warning(
                "TLS handshake of %s on listener %s was not over in %.0f s; closed",
                peer,
                self._name,
                seconds,
            )
        except ssl.SSLError as error:
            tell_failure(self._name, peer, error, self._tls_counters)
        except ConnectionError:
            pass  # the peer has gone
        except OSError as error:
            self._on_failure(error)
        except Exception:
            logger.exception("a bug ends a connection to listener %s", self._name)


def place_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Gives a socket's address as people write it."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Opens a listening socket for each address of the host. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    unknown = OSError(errno.EADDRNOTAVAIL, "the host has no address")
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError as error:  # a machine without IPv6 may name its address all the same
                unknown = error
                continue
            sockets.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
            each.listen(BACKLOG)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise unknown
    return sockets
