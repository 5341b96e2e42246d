"""Publishes in a row that differ by body alone: found by comparing bytes, and not decoded again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.amqp091.channel import Channel
from protocols.amqp091.states import ChannelState
from protocols.amqp091.wire.content import Facts
from protocols.amqp091.wire.frames import FRAME_END

if TYPE_CHECKING:
    from protocols.amqp091.publish.publishing import Target

_OPEN: Final = ChannelState.OPEN


class Stamp:
    """The last publish that came in one piece. Most in a row have the same exchange, key,
    properties and length: then all but the body is the same bytes, and need not be read again."""

    __slots__ = ("channel", "facts", "offset", "size", "start", "target")

    def __init__(
        self, start: bytes, length: int, channel: Channel, target: Target, facts: Facts
    ) -> None:
        self.start = start  # everything before the body
        self.offset = len(start)
        self.size = self.offset + length + 1
        self.channel = channel
        self.target = target
        self.facts = facts

    def bodies(self, buffer: bytes, position: int, last: int) -> tuple[list[bytes], int]:
        """Finds the bodies of publishes like this one that stand here in a row, whole, and begin
        before `last`; and where they end. Finds none if the channel takes no publish now."""
        bodies: list[bytes] = []
        if self.channel.state is not _OPEN or self.channel.arrival is not None:
            return bodies, position
        start, offset, size, end = self.start, self.offset, self.size, len(buffer)
        after = position + size
        while after <= end and buffer[after - 1] == FRAME_END:
            bodies.append(buffer[position + offset : after - 1])
            position, after = after, after + size
            if position >= last or not buffer.startswith(start, position):
                break
        return bodies, position
