"""The context that all MQTT connections of a gateway share: services, settings, counters, workers
and $SYS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from protocols.mqtt.counters import MqttCounters
from protocols.mqtt.publish.fan_out import FanOut
from protocols.mqtt.settings import Settings
from protocols.mqtt.sys_topics import SysTopics
from protocols.services import SessionServices

log = logging.getLogger(__name__)


class Closable(Protocol):
    """A connection that can be asked to end."""

    def shut_down(self, reason: str) -> None: ...


class Context:
    """Everything that MQTT connections share. `start` it before the first one, and `stop` it after
    the last."""

    def __init__(self, services: SessionServices, settings: Settings | None = None) -> None:
        self.services = services
        self.settings = settings or Settings()
        self.counters = MqttCounters()
        self.fan_out = FanOut(self.settings.fan_out_workers, is_async=self.settings.async_fan_out)
        self.connections: set[Closable] = set()
        self.sys_topics = SysTopics(self)
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        self.fan_out.start()
        if self.settings.sys_interval > 0:
            self.spawn(self.sys_topics.run())

    async def stop(self, reason: str = "the gateway is shutting down") -> None:
        """Says goodbye to everybody, and returns when all sessions are detached."""
        for connection in list(self.connections):
            connection.shut_down(reason)
        self.sys_topics.stop()
        await self.fan_out.stop()
        while self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the work as a task of its own; a failure of it is a bug, and logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work of MQTT failed", exc_info=task.exception())
