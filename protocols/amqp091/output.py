"""The output of one connection: frames gather here, and leave in one write per turn of the loop.

Output is pulled (`take`): the connection is woken when there is something to pull.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.methods import Method
from queue_core.memory_account import Piece

if TYPE_CHECKING:
    from protocols.amqp091.channel import Channel

FLUSH_BYTES: Final = 1 << 20  # do not wait for the end of the turn with more than this


def _nothing() -> None:
    """Does nothing: the connection is gone."""


class Output:
    """Frames for one client, in order, as pieces of bytes."""

    __slots__ = ("_on_full", "_wake", "confirming", "is_blocked", "pieces", "size")

    def __init__(self, wake: Callable[[], None], on_full: Callable[[], None]) -> None:
        self.pieces: list[Piece] = []
        self.size = 0  # bytes in large pieces; small ones are not worth counting
        self.confirming: list[Channel] = []  # those with confirms to tell
        self.is_blocked = False  # the socket is full: consumers wait
        self._wake = wake
        self._on_full = on_full

    def send(self, channel: int, method: Method) -> None:
        self.write(method_frame(channel, method))

    def write(self, data: bytes) -> None:
        self.wake()
        self.pieces.append(data)
        self.add_size(len(data))

    def wake(self) -> None:
        """Has the output written at the end of the turn; to be called before `pieces` is added
        to."""
        if not self.pieces and not self.confirming:
            self._wake()

    def add_size(self, size: int) -> None:
        self.size += size
        if self.size >= FLUSH_BYTES:
            self._on_full()

    def confirm(self, channel: Channel) -> None:
        """Has a channel's confirms sent at the end of the turn."""
        self.wake()
        self.confirming.append(channel)

    def close(self) -> None:
        """Lets go of the connection, which is gone: nobody takes the output from now on."""
        self.pieces.clear()
        self.confirming.clear()
        self.size = 0
        self._wake = self._on_full = _nothing

    def take(self) -> bytes:
        """Takes everything since the last time."""
        data, _ = self.take_pieces()
        return data

    def take_pieces(self) -> tuple[bytes, list[Piece]]:
        """Takes everything since the last time, joined, and the pieces that it was made of."""
        pieces = self.pieces
        if self.confirming:
            pieces.extend([channel.take_confirms() for channel in self.confirming])
            self.confirming.clear()
        self.pieces, self.size = [], 0
        return b"".join(pieces), pieces
