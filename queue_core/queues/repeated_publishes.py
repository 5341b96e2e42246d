"""Repetitions are answered with the message that they repeat, and messages that are refused later
are taken back from memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_core.message.message import Message
from queue_core.queues.competing import Appends, ClassicQueue
from queue_core.queues.deduplication_records import SeenKeys

if TYPE_CHECKING:
    from queue_core.commit.queue_log import Log
    from queue_core.routing.router import Match, Route
    from queue_core.vhost import Queue


def still_there(
    message: Message, route: Route[Queue], appends: Appends
) -> Callable[[], bool] | None:
    """Makes the question that a repetition asks at its commit: whether the repeated message is
    still on record, or was refused meanwhile."""
    taken = {log for log, _ in appends}
    windows = [match.queue.window for match in route if _is_repeated(message, match, taken)]
    return (lambda: all(each.holds(message) for each in windows if each)) if windows else None


def _is_repeated(message: Message, match: Match[Queue], taken: set[Log]) -> bool:
    queue = match.queue
    if isinstance(queue, ClassicQueue):
        return queue.window is not None and queue.log not in taken
    return isinstance(queue.window, SeenKeys) and queue.window.repeats(message)


def forget_live(message: Message, route: Route[Queue]) -> None:
    """Takes a refused message back from exchanges that remember in memory alone."""
    for queue, _ in route:
        if queue.is_memory and queue.window is not None:
            queue.window.forget(message)
