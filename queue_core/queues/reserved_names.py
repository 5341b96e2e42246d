"""Names of queues that the gateway keeps for itself. By its prefix, a queue serves a session, a
shared group, a subscription or an exchange, and clients neither declare nor use it by name."""

from __future__ import annotations

from typing import Final

STORED_PREFIX: Final = "$session/"
SHARE_PREFIX: Final = "$share/"
LIVE_PREFIX: Final = "$live/"  # of connected MQTT clients
LIVE_SESSION_PREFIX: Final = f"{LIVE_PREFIX}session/"
LIVE_SHARE_PREFIX: Final = f"{LIVE_PREFIX}share/"
RESERVED_PREFIXES: Final = (STORED_PREFIX, SHARE_PREFIX, LIVE_PREFIX)
SUBSCRIPTION_PREFIX: Final = "$subscription/"  # of AMQP 1.0; operators may delete such a queue
HISTORY_PREFIX: Final = "$history/"  # of exchanges that remember their last messages,
SEEN_PREFIX: Final = "$seen/"  # or which they have seen
MEMORY_PREFIXES: Final = (HISTORY_PREFIX, SEEN_PREFIX)
OWN_PREFIXES: Final = (*RESERVED_PREFIXES, SUBSCRIPTION_PREFIX, *MEMORY_PREFIXES)
SERVER_NAMED_PREFIX: Final = "amq."  # clients use queues named so, and never choose such a name


def is_reserved(queue_name: str) -> bool:
    """Tells whether a queue of that name is the gateway's own, and not for clients to declare."""
    return queue_name.startswith(RESERVED_PREFIXES)


def is_own(queue_name: str) -> bool:
    """Tells whether a queue of that name serves one session or subscription, and no client by its
    name."""
    return queue_name.startswith(OWN_PREFIXES)
