"""`$SYS` topics: facts about the gateway, for those who subscribe to them.

Values are published every so often, and sent to a new subscriber at once. They are numbers as text,
under the names that monitoring tools for MQTT brokers look for.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from protocols.mqtt.conversion.properties import MQTT3
from protocols.mqtt.queue_topics.addresses import key_matches
from queue_core.message.message import Message

if TYPE_CHECKING:
    from protocols.mqtt.context import Context
    from queue_core.vhost import Vhost

PREFIX = "$SYS/broker/"


class SysTopics:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._started = time.monotonic()
        self._stopped = asyncio.Event()
        self._version = f"howdah {_version()}"

    def values(self) -> dict[str, str]:
        counters, core = self._context.counters, self._context.services.counters
        sessions = self._context.services.sessions
        connected = len(self._context.connections)
        numbers = {
            "uptime": int(time.monotonic() - self._started),
            "clients/connected": connected,
            "clients/total": max(connected, sessions.count),
            "clients/persistent": sessions.count,
            "messages/received": counters.messages_received,
            "messages/sent": counters.messages_sent,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "retained messages/count": sessions.retained.count,
            "publish/messages/dropped": core.dropped_overflow + counters.dropped_too_large,
            "publish/messages/refused": counters.refused_publishes,
            "store/messages/committed": core.committed_messages,
        }
        return {"version": self._version} | {name: str(value) for name, value in numbers.items()}

    def matching(self, topic_filter: str) -> list[Message]:
        """Returns the current values under that filter."""
        return [message for message in self._messages() if key_matches(topic_filter, message.topic)]

    def _messages(self) -> list[Message]:
        return [
            Message(text.encode(), topic=PREFIX + name, durable=False, form=MQTT3)
            for name, text in self.values().items()
        ]

    async def run(self) -> None:
        context = self._context
        vhost = await context.services.vhost(context.settings.vhost)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await self._publish_until(stopped, vhost)
        finally:
            stopped.cancel()

    async def _publish_until(self, stopped: asyncio.Future[Any], vhost: Vhost) -> None:
        while not stopped.done():
            for message in self._messages():
                if route := vhost.router.route_topic(message.topic):
                    vhost.publish_to(message, route, None, 0, ())
            # `wait` ends when it is time or the end has come, and passes a cancellation on, which
            # `wait_for` may take for the end of what it waits for.
            await asyncio.wait((stopped,), timeout=self._context.settings.sys_interval)

    def stop(self) -> None:
        self._stopped.set()


def _version() -> str:
    try:
        return version("howdah")
    except PackageNotFoundError:
        return "of unknown version"
