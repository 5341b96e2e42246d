"""Judges what a client may read: by its subscriptions, and among messages that have waited for it.

A message that comes while a client is connected comes by a subscription that is allowed: a
permission that goes takes the subscription with it, and the connection. A message that waited in
the session's queue may be older than that, so it is judged when it is delivered, and no other is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from queue_core.access.auth import MAX_KEPT_NAME_CHARACTERS, Action, Auth, Identity, Resource
from queue_core.message.memo import Memo
from queue_core.message.message import TOPIC_EXCHANGE
from queue_core.message.topic_forms import dotted

if TYPE_CHECKING:
    from queue_core.message.message import Message
    from queue_core.queues.queue import Queue
    from queue_core.sessions.subscription import Subscription

MOST_KEPT_ANSWERS: Final = 1000  # by filter or topic


def right_of(vhost: str, subscription: Subscription) -> Resource:
    """Returns the resource that the subscriber must be allowed to read."""
    if subscription.queue is not None:
        return Resource("queue", vhost, subscription.queue)
    return topic_right(vhost, subscription.filter)


def topic_right(vhost: str, written: str) -> Resource:
    """Returns the resource of a topic or a filter."""
    words = dotted(written).split(".")
    pattern = ".".join("*" if word == "+" else word for word in words)
    return Resource("topic", vhost, TOPIC_EXCHANGE, pattern)


class WaitingRights:
    """The rights of one client to the messages in its session's queue."""

    __slots__ = ("_answers", "_auth", "_identity", "_revision", "_vhost", "doubtful_below")

    def __init__(self, vhost: str, identity: Identity, auth: Auth) -> None:
        self._vhost = vhost
        self._identity = identity
        self._auth = auth
        self._revision = auth.revision
        self._answers: Memo[str, bool] = Memo(MOST_KEPT_ANSWERS)
        self.doubtful_below = 0  # offsets of the session's queue

    def doubt(self, queue: Queue) -> None:
        """Has all messages judged that are in the queue, or on their way there."""
        self.doubtful_below = queue.next_offset

    def allow(self, message: Message, options: Sequence[Subscription]) -> bool:
        """Allows a message by its own topic, or by a filter that brought it, whether or not its
        client is still subscribed to that. A message that came by the name of the queue is for
        whoever has the session."""
        if self._revision != self._auth.revision:
            self._revision = self._auth.revision
            self._answers.clear()
        if not options or self._may_read(message.topic):
            return True
        return any(self._may_read(option.filter) for option in options)

    def _may_read(self, written: str) -> bool:
        answer = self._answers.get(written)
        if answer is None:
            right = topic_right(self._vhost, written)
            answer = self._auth.authorize(self._identity, Action.READ, right)
            if len(written) <= MAX_KEPT_NAME_CHARACTERS:
                self._answers.keep(written, answer)
        return answer
