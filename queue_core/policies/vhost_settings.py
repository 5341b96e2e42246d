"""The settings of one virtual host that operators change while it is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class VhostSettings:
    """The default type of queues, and limits; None or a negative number is no limit. The rest is
    for people and tools."""

    default_queue_type: str | None = None
    max_connections: int | None = None
    max_queues: int | None = None
    description: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits(self) -> dict[str, int]:
        """Gives the limits that are set, as RabbitMQ names them."""
        given = {"max-connections": self.max_connections, "max-queues": self.max_queues}
        return {name: value for name, value in given.items() if value is not None}


PLAIN_SETTINGS: Final = VhostSettings()
