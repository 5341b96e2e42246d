"""File descriptors: who may take how many of those that the system grants.

Every connection is one, and so is every connection to PostgreSQL and every file. Some are kept for
the gateway itself, and strangers and HTTP have a share only, so that clients who are logged in go
on, whatever is thrown at the listeners. Where a share is taken, whoever has dawdled there longest
gives way to who comes: clients that do what they came for are done by then, and others can log in.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

MOST_FILES: Final = 1_048_576
LEAST_RESERVE: Final = 32  # PostgreSQL, files, name resolution
MOST_RESERVE: Final = 256
LEAST_HTTP: Final = 8
MOST_HTTP: Final = 256
LEAST_STRANGERS: Final = 16


def allow_many_files() -> int:
    """Takes what the system grants beyond its default; how many it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The shares of so many descriptors."""

    limit: int

    @property
    def reserve(self) -> int:
        """For what is no connection of a client."""
        return min(max(self.limit // 20, LEAST_RESERVE), MOST_RESERVE)

    @property
    def for_http(self) -> int:
        """Connections to the management listener at one time."""
        return min(max(self.limit // 16, LEAST_HTTP), MOST_HTTP)

    @property
    def for_strangers(self) -> int:
        """Connections of clients that have not logged in yet."""
        return max((self.limit - self.reserve) // 2, LEAST_STRANGERS)


class Place(Protocol):
    """Where connections wait, in the order in which they came."""

    def oldest(self) -> float | None:
        """Since when the first of them is there, by the loop's clock; None: there is none."""

    def end_oldest(self) -> None:
        """Ends that one. Only where there is one."""


def end_oldest(places: Iterable[Place]) -> bool:
    """Ends the connection that has been in any of the places longest; False: there is none."""
    taken = [(since, place) for place in places if (since := place.oldest()) is not None]
    if not taken:
        return False
    min(taken, key=lambda each: each[0])[1].end_oldest()
    return True


@dataclass(frozen=True, slots=True)
class Share:
    """What one listener may take."""

    descriptors: Descriptors
    most: int
    taken: Callable[[], int]  # how many there are, of those that `most` counts
    what: str
    displace: Callable[[], bool] = lambda: False  # ends the one that is there longest, if any is

    def shortage(self, descriptor: int) -> str | None:
        """Why a connection with that descriptor is not taken, whoever gives way. The system gives
        the lowest number that is free: as many are in use as the number says."""
        limit = self.descriptors.limit
        if descriptor >= limit - self.descriptors.reserve:
            return (
                f"{descriptor} of {limit} file descriptors are in use, and the others are kept for "
                "the database: raise the limit (ulimit -n, LimitNOFILE)"
            )
        return None

    def fullness(self) -> str | None:
        """Why there is no room for one more, unless somebody gives way."""
        if self.taken() < self.most:
            return None
        return (
            f"{self.most} {self.what}, as many as {self.descriptors.limit} file descriptors allow: "
            "raise the limit (ulimit -n, LimitNOFILE)"
        )
