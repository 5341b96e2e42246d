"""The settings of one virtual host that operators change while it is in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class VhostSettings:
    """The default type of queues, and limits; None or a negative number is no limit."""

    default_queue_type: str | None = None
    max_connections: int | None = None
    max_queues: int | None = None


PLAIN_SETTINGS: Final = VhostSettings()


def is_reached(limit: int | None, count: int) -> bool:
    """Tells whether there is no room for one more."""
    return limit is not None and 0 <= limit <= count
