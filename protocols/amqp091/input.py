"""The input of one AMQP 0.9.1 connection: bytes that wait, and the frame in hand."""

from __future__ import annotations


class Input:
    """Everything before `position` has been handled. `number` and `index` name the channel and the
    method in hand, for errors."""

    __slots__ = ("buffer", "index", "number", "position")

    def __init__(self) -> None:
        self.buffer, self.position = b"", 0
        self.number = 0
        self.index = 0

    @property
    def is_empty(self) -> bool:
        return self.position >= len(self.buffer)

    def keep(self, data: bytes) -> None:
        """Adds bytes behind those that wait."""
        position, buffer = self.position, self.buffer
        self.buffer = buffer[position:] + data if position < len(buffer) else data
        self.position = 0
