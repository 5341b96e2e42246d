"""Topics that a connection has published to: checked once, remembered for the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.mqtt.publish.fan_out import WIDE_SUBSCRIBERS
from queue_core.routing.route import Match

if TYPE_CHECKING:
    from queue_core.queues.queue import Queue
    from queue_core.routing.route import Route


class KnownTopic:
    """A topic that may be published to, and the route that it was last known to have."""

    __slots__ = ("is_live", "is_wide", "name", "queue", "route", "routing_key")

    def __init__(self, name: str, queue: Queue | None = None, routing_key: str = "") -> None:
        self.name = name
        self.queue = queue  # that a queue topic names; such a topic is not routed
        self.routing_key = routing_key
        self.route: Route[Queue] = () if queue is None else (Match(queue, ()),)
        self.is_wide = False  # it leads to more subscribers than one turn should serve
        self.is_live = False  # all of the route ends in memory: there is no commit to wait for

    def look_at(self, route: Route[Queue]) -> None:
        self.route = route
        self.is_wide = len(route) > WIDE_SUBSCRIBERS
        self.is_live = all(queue.is_ephemeral for queue, _ in route)
