"""The receive maximum for messages from the client: how many may be open at once.

What is open counts each message once: one of QoS 2 while its answer is in line and until PUBCOMP.
What an earlier connection published counts only when it is published again on this one, as a client
begins each with all of its quota [MQTT-4.9.0-1]. The twin for messages to the client is
`deliver.send_window`.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Final

from protocols.mqtt.wire.reasons import MqttError, ReasonCode

NOTHING_LEFT: Final[set[int]] = set()  # shared by clients that left nothing; never added to


class ReceiveWindow:
    """Counts the messages of one connection that are open: answers in line, and QoS 2 identifiers
    that are not released. Both are `Inbound`'s own, and counted in place."""

    __slots__ = ("_answers", "_maximum", "_open", "_version", "doubled", "left")

    def __init__(self, version: int, maximum: int, answers: Sized, opened: Collection[int]) -> None:
        self._version = version
        self._maximum = maximum  # the receive maximum that CONNACK announced
        self._answers = answers
        self._open = opened
        self.doubled = 0  # answers in line whose messages are open, too
        self.left = set(opened) if opened else NOTHING_LEFT  # open since before

    def has_room(self) -> bool:
        """Tells whether one more QoS 1 or 2 message may come now. 3.x knows no maximum."""
        return self._version < 5 or self._count() < self._maximum

    def _count(self) -> int:
        """Counts the messages of this connection that are open."""
        return len(self._answers) - self.doubled + len(self._open) - len(self.left)

    def room(self, most: int) -> int:
        """Tells how many of so many more messages may come now."""
        if self._version < 5:
            return most
        return min(most, self._maximum - self._count())

    def check_room(self) -> None:
        """Raises MqttError where more messages are open than the receive maximum allows
        [MQTT-3.3.4-7]."""
        if not self.has_room():
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._maximum} messages are open at once",
            )
