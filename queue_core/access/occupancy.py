"""The connections that are there, by user and by virtual host, and the limits that operators have
set for them. A limit lets nobody in beyond it, and shows nobody out who is in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from queue_core.errors import QuotaReached


class Occupant(Protocol):
    """A connection, as far as limits look at it."""

    @property
    def channel_count(self) -> int:
        """Counts its channels (AMQP 0.9.1) or sessions (AMQP 1.0)."""
        ...


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits of one user; None or a negative number is no limit."""

    max_connections: int | None = None
    max_channels: int | None = None

    @property
    def set_ones(self) -> dict[str, int]:
        """Gives the limits that are set, as RabbitMQ names them."""
        given = {"max-connections": self.max_connections, "max-channels": self.max_channels}
        return {name: value for name, value in given.items() if value is not None}


NO_LIMITS: Final = UserLimits()


def is_reached(limit: int | None, count: int) -> bool:
    """Tells whether a limit leaves no room for one more."""
    return limit is not None and 0 <= limit <= count


class Occupancy:
    """Counts the connections of each user and of each virtual host."""

    def __init__(self) -> None:
        self._of_users: dict[str, set[Occupant]] = {}
        self._of_vhosts: Counter[str] = Counter()

    def add(self, occupant: Occupant, user: str, vhost: str) -> None:
        self._of_users.setdefault(user, set()).add(occupant)
        self._of_vhosts[vhost] += 1

    def remove(self, occupant: Occupant, user: str, vhost: str) -> None:
        occupants = self._of_users[user]
        occupants.discard(occupant)
        if not occupants:
            del self._of_users[user]
        self._of_vhosts[vhost] -= 1
        if not self._of_vhosts[vhost]:
            del self._of_vhosts[vhost]

    def require_connection(
        self, user: str, limits: UserLimits, vhost: str, vhost_limit: int | None
    ) -> None:
        """Refuses one more connection where a limit is reached. Raises QuotaReached."""
        if is_reached(vhost_limit, self._of_vhosts[vhost]):
            raise QuotaReached(
                f"access to vhost '{vhost}' refused for user '{user}': connection limit "
                f"({vhost_limit}) is reached; close others, or raise the vhost's max-connections"
            )
        limit = limits.max_connections
        if is_reached(limit, len(self._of_users.get(user, ()))):
            raise QuotaReached(
                f"connection refused for user '{user}': user connection limit ({limit}) is "
                "reached; close others, or raise the user's max-connections"
            )

    def require_channel(self, user: str, limits: UserLimits) -> None:
        """Refuses one more channel or session of a user. Raises QuotaReached."""
        limit = limits.max_channels
        if limit is None:
            return
        if is_reached(limit, sum(each.channel_count for each in self._of_users.get(user, ()))):
            raise QuotaReached(
                f"number of channels opened for user '{user}' has reached the maximum allowed "
                f"user limit of ({limit}); close others, or raise the user's max-channels"
            )


class Place:
    """Counts as a connection that is being opened, from the check of its limits until it is let
    in."""

    channel_count = 0

    def __init__(self, occupancy: Occupancy, user: str, vhost: str) -> None:
        self._occupancy = occupancy
        self._where = (user, vhost)

    def __enter__(self) -> None:
        self._occupancy.add(self, *self._where)

    def __exit__(self, *_: object) -> None:
        self._occupancy.remove(self, *self._where)
