"""Roles of the HTTP API: which tags of a user open which routes, as in RabbitMQ.

The tags gate what can be asked at all; ordinary permissions still apply to what is done to queues
and exchanges. The built-in guest and clients without credentials have no row with tags: from
loopback they are administrators, as RabbitMQ's guest is, and from elsewhere plain users of the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from queue_core.access.auth import Identity, Peer


class Role(StrEnum):
    """What a route asks of whoever calls it."""

    ANYBODY = "anybody"  # no login
    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"


TAGS: Final[dict[Role, frozenset[str]]] = {
    Role.MANAGEMENT: frozenset(("management", "policymaker", "monitoring", "administrator")),
    Role.POLICYMAKER: frozenset(("policymaker", "administrator")),
    Role.MONITORING: frozenset(("monitoring", "administrator")),
    Role.ADMINISTRATOR: frozenset(("administrator",)),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Tells who called, from where, and by which tags."""

    identity: Identity
    peer: Peer

    @property
    def tags(self) -> frozenset[str]:
        if self.identity.is_built_in:
            is_local = self.peer.is_loopback
            return frozenset((Role.ADMINISTRATOR if is_local else Role.MANAGEMENT,))
        return self.identity.tags

    def has(self, role: Role) -> bool:
        return role is Role.ANYBODY or bool(self.tags & TAGS[role])
