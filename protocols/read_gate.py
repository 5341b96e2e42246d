"""Why a socket is not read, in one place for all adapters.

Several parts of a connection stop reading for reasons of their own: a command that takes time, a
store that is behind, a peer that does not read its answers, memory that is short. Each shuts the
gate for its own reason and opens it for that one alone; reading goes on when no reason is left.
Nothing else calls `pause_reading` and `resume_reading` of a transport that has a gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

# Bits of one number: a connection that is idle pays for no set of names.
BUSY: Final = 1  # a command or packet takes time; what came behind it waits
STORE: Final = 2  # the database is behind
RESTING: Final = 4  # for a moment, so that others get their turn
UNREAD: Final = 8  # the peer does not take what we have sent
MEMORY: Final = 16  # the gateway has no room for what the peer would send
SUBSCRIBER: Final = 32  # a subscriber of what the peer published is behind
BACKLOG: Final = 64  # what has come is not handled yet: others get their turn
ALL: Final = -1  # every bit


class Readable(Protocol):
    """The part of a transport that a gate needs."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...


def _nothing() -> None:
    """Does nothing: such a connection handles all that comes at once, or is gone."""


class ReadGate:
    """One connection's gate; made when the transport is there. `on_backlog` is called when nothing
    but input that has come already is in the way: that goes on first, in a later turn."""

    __slots__ = ("_heeded", "_on_backlog", "_reasons", "_transport")

    def __init__(self, transport: Readable, on_backlog: Callable[[], None] = _nothing) -> None:
        self._transport = transport
        self._on_backlog = on_backlog
        self._reasons = 0
        self._heeded = ALL

    @property
    def is_open(self) -> bool:
        return not self._reasons & self._heeded

    @property
    def is_held(self) -> bool:
        """Whether something besides input that has come already is in the way."""
        return bool(self._reasons & self._heeded & ~BACKLOG)

    def close(self) -> None:
        """Lets go of the connection, which is gone: it is told of nothing any more."""
        self._on_backlog = _nothing

    def is_shut_for(self, reason: int) -> bool:
        return bool(self._reasons & reason)

    def shut(self, reason: int) -> None:
        """Stops reading, for this reason too."""
        was_open = self.is_open
        self._reasons |= reason
        if was_open and not self.is_open and not self._transport.is_closing():
            self._transport.pause_reading()
        self._look_for_backlog()

    def open(self, reason: int) -> bool:
        """Takes one reason away; True when that was the last, and reading goes on."""
        was_open = self.is_open
        if self._reasons & reason:
            self._reasons &= ~reason
            self._look_for_backlog()
        return self._go_on(was_open)

    def ignore(self, reasons: int) -> None:
        """Reads on in spite of these reasons, from now on: the peer is to go, and what it still
        sends is thrown away, all but its goodbye."""
        was_open = self.is_open
        self._heeded &= ~reasons
        self._look_for_backlog()
        self._go_on(was_open)

    def _look_for_backlog(self) -> None:
        if self._reasons & self._heeded == BACKLOG:
            self._on_backlog()

    def _go_on(self, was_open: bool) -> bool:
        if was_open or not self.is_open or self._transport.is_closing():
            return False
        self._transport.resume_reading()
        return True
