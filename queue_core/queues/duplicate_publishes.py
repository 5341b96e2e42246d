"""Repetitions are answered with the message that they repeat, and messages that are refused later
are taken back from memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_core.message.message import Message
from queue_core.queues.queue import Appends, Queue

if TYPE_CHECKING:
    from queue_core.routing.route import Route


def still_there(
    message: Message, route: Route[Queue], appends: Appends
) -> Callable[[], bool] | None:
    """Makes the question that a repetition asks at its commit: whether the repeated message is
    still on record, or was refused meanwhile."""
    taken = {log for log, _ in appends}
    windows = [queue.window for queue, _ in route if queue.is_repeated(message, taken)]
    return (lambda: all(each.holds(message) for each in windows if each)) if windows else None


def forget_live(message: Message, route: Route[Queue]) -> None:
    """Takes a refused message back from exchanges that remember in memory alone."""
    for queue, _ in route:
        if queue.is_memory and queue.window is not None:
            queue.window.forget(message)
