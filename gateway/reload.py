"""Reloads on SIGHUP: renews certificates and keys of listeners, and the rights, in a running
gateway.

Other keys of the configuration need a restart. A file that is wrong is named in the log, and the
listener goes on with what it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from gateway.acceptor import Acceptor
from gateway.config.file_and_environment import ConfigError
from gateway.config.keys import Listeners
from gateway.listeners import context_of
from queue_core.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class Reloading:
    """Reloads certificates and rights; called for each SIGHUP."""

    def __init__(
        self,
        listeners: Listeners,
        acceptors: Mapping[str, Acceptor],
        refresh_rights: Callable[[], Awaitable[bool]],
    ) -> None:
        self._listeners = listeners
        self._acceptors = acceptors
        self._refresh_rights = refresh_rights
        self._running: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        for name, listener in self._listeners.enabled().items():
            try:
                context = await asyncio.to_thread(context_of, name, listener)
            except ConfigError as error:
                logger.error("SIGHUP: listener %s keeps its certificate: %s", name, error)
                continue
            if context is not None:
                self._acceptors[name].renew(context)
                logger.info("SIGHUP: listener %s has read its certificate again", name)
        try:
            await self._refresh_rights()
        except StoreUnavailable as error:
            logger.warning("SIGHUP: users and permissions stay as last read: %s", error)
        logger.info("SIGHUP: reloaded; other keys of the configuration need a restart")
