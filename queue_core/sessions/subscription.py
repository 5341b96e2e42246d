"""What a subscriber asked for, and the names and tastes of the queues that serve subscribers.

A subscription travels as the options of a topic binding: it lies beside each message that it led to
a queue, in memory and in the table. What its fields mean on the wire is the adapter's business.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from queue_core.message.message import Message
from queue_core.queues.competing import Appends, EphemeralQueue
from queue_core.queues.context import QueueContext
from queue_core.queues.spec import QueueSpec

STORED_PREFIX: Final = "$session/"
SHARE_PREFIX: Final = "$share/"
LIVE_SESSION_PREFIX: Final = "$live/session/"
LIVE_SHARE_PREFIX: Final = "$live/share/"
RESERVED_PREFIXES: Final = (STORED_PREFIX, SHARE_PREFIX, "$live/")
SUBSCRIPTION_PREFIX: Final = "$subscription/"  # of AMQP 1.0; operators may delete such a queue
HISTORY_PREFIX: Final = "$history/"  # of exchanges that remember their last messages,
SEEN_PREFIX: Final = "$seen/"  # or which they have seen
MEMORY_PREFIXES: Final = (HISTORY_PREFIX, SEEN_PREFIX)
OWN_PREFIXES: Final = (*RESERVED_PREFIXES, SUBSCRIPTION_PREFIX, *MEMORY_PREFIXES)
SERVER_NAMED_PREFIX: Final = "amq."  # clients use queues named so, and never choose such a name


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subscription. `share` is the group that it competes in; with `queue` it is no topic
    filter at all, but a wish to compete on that queue, kept with the session."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int | None = None
    share: str | None = None
    queue: str | None = None
    extra: dict[str, Any] | None = None

    @property
    def address(self) -> str:
        """As it was subscribed: what tells the subscriptions of a session apart."""
        return self.filter if self.share is None else f"{SHARE_PREFIX}{self.share}/{self.filter}"


def is_reserved(queue_name: str) -> bool:
    """Whether a queue of that name is the gateway's own, and not for clients to declare."""
    return queue_name.startswith(RESERVED_PREFIXES)


def is_own(queue_name: str) -> bool:
    """Whether a queue of that name serves one session or subscription, and no client by its
    name."""
    return queue_name.startswith(OWN_PREFIXES)


def is_worth_storing(message: Message, options: tuple[object, ...]) -> bool:
    """Durable, and asked for by a subscription that wants it kept. A message without options came
    to the queue by its name, which asks for it, too."""
    if not message.durable:
        return False
    # a loop: 0.10 us for one subscription, 0.44 us with any()
    for option in options:
        if option.qos:  # type: ignore[attr-defined]
            return True
    return not options


class LiveQueue(EphemeralQueue):
    """Serves those who are connected. Where a stored queue stands beside it, it leaves to that one
    what is worth storing."""

    def __init__(self, spec: QueueSpec, context: QueueContext) -> None:
        super().__init__(spec, context)
        self.has_stored = False

    def take(
        self,
        message: Message,
        options: tuple[object, ...],
        appends: Appends,
        *,
        stays: bool = False,
    ) -> bool:
        if self.has_stored and is_worth_storing(message, options):
            return True
        return super().take(message, options, appends, stays=stays)
