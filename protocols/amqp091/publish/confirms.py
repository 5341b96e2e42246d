"""Publisher confirms of one channel: every publish gets a number, and is told of in that order.

One `basic.ack` with `multiple` speaks for all that were settled since the last one. Knows nothing
of queues: it is told what became of which number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

_ACK: Final = Struct(">BHIIQBB")  # a whole frame; basic.nack has the same fields
_METHOD: Final = 1
_BASIC_ACK: Final = 60 << 16 | 80
_BASIC_NACK: Final = 60 << 16 | 120
_PAYLOAD_BYTES: Final = 13
_END: Final = 0xCE


class Confirms:
    """The numbers of one channel's publishes: given out, ended, told of."""

    __slots__ = ("_ahead", "_floor", "_last", "_nacks", "_told", "refused")

    def __init__(self) -> None:
        self._last = 0  # the last number given out
        self._floor = 0  # everything up to here has ended
        self._told = 0  # and the client knows up to here
        self._ahead: dict[int, bool] = {}  # ended before something earlier; True: well
        self._nacks: list[int] = []  # up to the floor, not told yet
        self.refused = 0

    def next(self, count: int = 1) -> int:
        """Gives out so many numbers, and returns the first."""
        first = self._last + 1
        self._last += count
        return first

    @property
    def confirmed(self) -> int:
        """Counts the publishes that ended well, whether or not the client was told of them."""
        return self._floor + len(self._ahead) - self.refused

    @property
    def outstanding(self) -> int:
        return self._last - self._told

    def accept(self, tag: int) -> None:
        """Ends one publish well: its message is safe."""
        if tag == self._floor + 1 and not self._ahead:
            self._floor = tag
        else:
            self._end(((tag, True),))

    def accept_all(self, tags: Sequence[int]) -> None:
        """Ends publishes well: their messages are safe. The numbers come in their order."""
        if tags[0] == self._floor + 1 and tags[-1] - tags[0] == len(tags) - 1 and not self._ahead:
            self._floor = tags[-1]
        else:
            self._end((tag, True) for tag in tags)

    def refuse(self, tags: Iterable[int]) -> None:
        """Ends publishes badly: their messages were not taken, and never will be."""
        ended = [(tag, False) for tag in tags]
        self.refused += len(ended)
        self._end(ended)

    def _end(self, ended: Iterable[tuple[int, bool]]) -> None:
        ahead = self._ahead
        ahead.update(ended)
        while (is_well := ahead.pop(self._floor + 1, None)) is not None:
            self._floor += 1
            if not is_well:
                self._nacks.append(self._floor)

    def take(self, channel: int) -> bytes:
        """Encodes the acks and nacks that the client does not know of yet."""
        frames = b""
        for nack in self._nacks:
            frames += self._ack_up_to(channel, nack - 1)
            frames += _ACK.pack(_METHOD, channel, _PAYLOAD_BYTES, _BASIC_NACK, nack, 0, _END)
            self._told = nack
        self._nacks.clear()
        return frames + self._ack_up_to(channel, self._floor)

    def _ack_up_to(self, channel: int, tag: int) -> bytes:
        count = tag - self._told
        if count <= 0:
            return b""
        self._told = tag
        return _ACK.pack(_METHOD, channel, _PAYLOAD_BYTES, _BASIC_ACK, tag, count > 1, _END)
