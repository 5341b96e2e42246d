"""Limits on file descriptors: how many connections of each kind may be open at one time.

Every connection takes one, and so does every connection to PostgreSQL and every file. Some are kept
for the gateway itself, and clients that have not logged in and HTTP have a share only, so that
clients that are logged in go on, whatever is thrown at the listeners. Where a share is full, its
oldest connection is closed for the new one: a client that does what it came for is done by then,
and others can log in.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

MOST_FILES: Final = 1_048_576
LEAST_RESERVED_FILES: Final = 32  # PostgreSQL, files, name resolution
MOST_RESERVED_FILES: Final = 256
LEAST_HTTP_CONNECTIONS: Final = 8
MOST_HTTP_CONNECTIONS: Final = 256
LEAST_STRANGER_CONNECTIONS: Final = 16


def allow_many_files() -> int:
    """Raises the limit on open files to what the system grants, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Divides `limit` file descriptors among the kinds of connections."""

    limit: int

    @property
    def reserve(self) -> int:
        """The descriptors that are kept for the database, files and name resolution."""
        return min(max(self.limit // 20, LEAST_RESERVED_FILES), MOST_RESERVED_FILES)

    @property
    def for_http(self) -> int:
        """The most connections to the management listener at one time."""
        return min(max(self.limit // 16, LEAST_HTTP_CONNECTIONS), MOST_HTTP_CONNECTIONS)

    @property
    def for_strangers(self) -> int:
        """The most connections of clients that have not logged in yet."""
        return max((self.limit - self.reserve) // 2, LEAST_STRANGER_CONNECTIONS)


class Place(Protocol):
    """A set of connections, in the order in which they came, of which the oldest can be ended."""

    def oldest(self) -> float | None:
        """Returns when the oldest connection came, by the loop's clock; None if there is none."""

    def end_oldest(self) -> None:
        """Ends the oldest connection. There must be one."""


def end_oldest(places: Iterable[Place]) -> bool:
    """Ends the connection that has been in any of the places longest; False if there is none."""
    taken = [(since, place) for place in places if (since := place.oldest()) is not None]
    if not taken:
        return False
    min(taken, key=lambda each: each[0])[1].end_oldest()
    return True


@dataclass(frozen=True, slots=True)
class Share:
    """The file descriptors that one listener may take."""

    descriptors: Descriptors
    most: int
    taken: Callable[[], int]  # how many there are, of those that `most` counts
    what: str
    displace: Callable[[], bool] = lambda: False  # ends the one that is there longest, if any is

    def shortage(self, descriptor: int) -> str | None:
        """Says why a connection with that descriptor cannot be accepted at all; None if it can. The
        system gives the lowest number that is free: as many are in use as the number says."""
        limit = self.descriptors.limit
        if descriptor >= limit - self.descriptors.reserve:
            return (
                f"{descriptor} of {limit} file descriptors are in use, and the others are kept for "
                "the database: raise the limit (ulimit -n, LimitNOFILE)"
            )
        return None

    def fullness(self) -> str | None:
        """Says why there is no room for one more connection unless another is closed; None if there
        is room."""
        if self.taken() < self.most:
            return None
        return (
            f"{self.most} {self.what}, as many as {self.descriptors.limit} file descriptors allow: "
            "raise the limit (ulimit -n, LimitNOFILE)"
        )
