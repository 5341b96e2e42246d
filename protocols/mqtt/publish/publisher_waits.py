"""Finds out what a client that has published waits for before more of it is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from queue_core.queues.queue import wait_for_room

if TYPE_CHECKING:
    from protocols.mqtt.publish.publishing import Publishing


class Obstacle(NamedTuple):
    wait: Callable[[], Coroutine[Any, Any, None]]
    is_subscriber: bool = False  # its subscribers are behind, and it may be one of them itself
    is_full_queue: bool = False  # of those, one has no room


def obstacle(publishing: Publishing, submitted: int) -> Obstacle | None:
    """Returns whoever is behind: the subscribers, the disk, the workers or the client itself; None:
    nobody is. The disk holds up no client that has brought nothing for it since `submitted`."""
    writer, lane = publishing.vhost.writer, publishing.lane
    if publishing.pressed:
        pressed = list(publishing.pressed)
        return Obstacle(lambda: wait_for_room(pressed), is_subscriber=True, is_full_queue=True)
    if writer.is_congested and writer.submitted != submitted:
        return Obstacle(writer.uncongested)
    if lane is not None and lane.must_wait:
        return Obstacle(lane.room, is_subscriber=True)
    if publishing.inbound.is_long:
        return Obstacle(writer.flushed)
    laggard = publishing.laggard()
    return None if laggard is None else Obstacle(laggard.catch_up, is_subscriber=True)
