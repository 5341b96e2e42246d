"""Trust of a node in itself: for how long it may take for granted that nobody has fenced it.

A node that is cut off, or was stopped and goes on, does not know what others have decided
meanwhile. So it hands out messages of durable queues only for a while after the start of its last
answered beat, which is shorter than the silence after which others fence it. A gateway without a
cluster beats for nobody: it goes on until it hears that another has taken its database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

TRUST_SHARE: Final = 0.75  # of the lease, after the start of the last answered beat
NEVER: Final = float("inf")
RELEASED_AT_ONCE: Final = 64  # of those that waited for trust, in one turn of the loop


def boot_seconds() -> float:
    """Reads a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Held(Protocol):
    """Somebody who waits until messages may be handed out."""

    def run(self) -> None: ...


class Trust(Protocol):
    """The answer to whether messages of durable queues may be handed out now."""

    def is_given(self) -> bool: ...

    def wait(self, held: Held) -> None:
        """Has `held` run when trust is given; once, however often it asks."""

    def end(self) -> None:
        """Ends trust at once: another gateway has what this one had."""


class SoleTrust:
    """Trust of a gateway that has the database for itself. What was handed out comes back while it
    stops, and must not go to the clients that are still there: the next owner hands it out."""

    __slots__ = ("_is_over",)

    def __init__(self) -> None:
        self._is_over = False

    def is_given(self) -> bool:
        return not self._is_over

    def wait(self, held: Held) -> None:
        """Forgets `held`: trust that has ended here is never given again."""

    def end(self) -> None:
        self._is_over = True


class LeasedTrust:
    """The span of time in which this node may hand out, and whoever waits for it to begin. `later`
    calls a function in a later turn of the loop."""

    __slots__ = ("_clock", "_is_planned", "_later", "_waiting", "begins", "can_write", "until")

    def __init__(
        self,
        later: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.begins = NEVER  # not before a fenced node has lost its own trust
        self.until = -NEVER
        self.can_write: Callable[[], bool] = lambda: True  # the session that writes was checked
        self._clock = clock
        self._later = later
        self._waiting: dict[Held, None] = {}
        self._is_planned = False

    def is_given(self) -> bool:
        return self.begins <= self._clock() < self.until and self.can_write()

    def wait(self, held: Held) -> None:
        self._waiting[held] = None

    def end(self) -> None:
        self.until = -NEVER

    def renew(self) -> None:
        """Lets those that wait go on, if trust is given by now; for after every beat. A few of them
        in each turn of the loop, since there may be one for each queue."""
        if self._waiting and not self._is_planned and self.is_given():
            self._is_planned = True
            self._later(self._release)

    def _release(self) -> None:
        self._is_planned = False
        for _ in range(min(RELEASED_AT_ONCE, len(self._waiting))):
            held = next(iter(self._waiting))
            del self._waiting[held]
            held.run()  # waits again where trust has ended
        self.renew()
