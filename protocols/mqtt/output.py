"""The output of one connection: packets gather here and leave in one write per turn of the loop.

Output is pulled (`take`): whoever owns the socket is woken when there is something to pull. Nobody
else here knows that there is a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MANY_PIECES: Final = 512  # more than these do not wait for the end of the turn


class Output:
    """Packets for one client, in order, as pieces of bytes.

    `pieces` stays the same list for the connection's whole life: hot paths keep it, call `wake`
    before they put the first piece in, and append.
    """

    __slots__ = ("_flush", "pieces", "unsent", "wake")

    def __init__(
        self, wake: Callable[[], None], flush: Callable[[], None], unsent: Callable[[], int]
    ) -> None:
        self.pieces: list[bytes] = []  # empty: nobody was woken
        self.wake = wake  # has the pieces written at the end of this turn of the loop
        self.unsent = unsent  # counts the bytes that the client's socket has not taken yet
        self._flush = flush

    def put(self, frame: bytes) -> None:
        """Adds one packet, or several."""
        pieces = self.pieces
        if not pieces:
            self.wake()
        pieces.append(frame)

    def flush_if_large(self) -> None:
        """Has the pieces written now if there are many: a full socket is noticed in time."""
        if len(self.pieces) > MANY_PIECES:
            self._flush()

    def close(self) -> None:
        """Lets go of the connection, which is gone: nobody takes what is put here from now on."""
        self.pieces.clear()
        self.wake = self._flush = _nothing
        self.unsent = _zero


def _nothing() -> None:
    """Stands in for a connection that is gone."""


def _zero() -> int:
    """Stands in for a socket that is gone: nothing waits in it."""
    return 0
