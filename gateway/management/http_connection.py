"""One HTTP connection: aiohttp's, with time-outs for slow peers, and a log without what a peer
sent.

aiohttp logs what it cannot read, with an `Authorization` in it, and a trace each time; and it waits
for a peer that sends its request byte by byte, or does not read its answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from gateway.acceptor import ListenerCounters
from queue_core.access.auth import Peer

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 10.0  # from the connection to its first whole request
IDLE_SECONDS: Final = 75.0  # from one answer to the next whole request: longer than a scrape takes
UNREAD_SECONDS: Final = 10.0  # that an answer may wait for its reader
LINGER_SECONDS: Final = 2.0  # for the rest of a request that nobody wants


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """Replaces aiohttp's server log: writes one line for a request that cannot be read, and nothing
    of it; a trace for our own mistakes only."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        if isinstance(exc_info, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            self._unreadable(*args)
        else:
            logger.error("a bug: %s", str(msg) % args if args else msg, exc_info=exc_info)

    def debug(self, msg: object, *args: object, exc_info: Any = None, **_: Any) -> None:
        if exc_info is not None:
            self._unreadable(*args)

    @staticmethod
    def _unreadable(host: object = "somebody", *_: object) -> None:
        logger.warning("an HTTP request from %s cannot be read", host)


OPTIONS: Final[dict[str, Any]] = {
    "access_log": None,
    "logger": ServerLog(logger),
    "keepalive_timeout": IDLE_SECONDS,
    "lingering_time": LINGER_SECONDS,
}


class HttpConnection(RequestHandler):
    """An HTTP connection that ends when its peer takes too long to ask, or to read the answer."""

    def __init__(
        self,
        server: web.Server,
        counters: ListenerCounters,
        present: dict[HttpConnection, None] | None = None,
    ) -> None:
        self._clock = asyncio.get_running_loop()
        super().__init__(server, loop=self._clock, **OPTIONS)
        self._counters = counters
        self._present = {} if present is None else present
        self.since = self._clock.time()
        self._unasked: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._present[self] = None
        self._unasked = self._clock.call_later(REQUEST_SECONDS, self._on_unasked)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._present.pop(self, None)
        for timer in (self._unasked, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._clock.call_later(UNREAD_SECONDS, self._on_unread)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def give_way(self) -> None:
        """Closes the connection to make room for a newer one."""
        if self.transport is not None:
            self.transport.abort()

    def _on_unasked(self) -> None:
        if self._request_count == 0:
            self._cut("has sent no whole HTTP request", REQUEST_SECONDS)

    def _on_unread(self) -> None:
        self._cut("has not read its HTTP answer", UNREAD_SECONDS)

    def _cut(self, why: str, seconds: float) -> None:
        transport = self.transport
        if transport is not None:
            self._counters.handshake_timeouts += 1
            host = Peer.described_by(transport.get_extra_info).host
            logger.info("%s %s in %.0f s; closed", host, why, seconds)
            transport.abort()
