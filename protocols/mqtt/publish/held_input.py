"""Input of a publisher that waits for its subscribers: its own acknowledgements go ahead.

A client that is held may be a subscriber as well, even of itself. If its acknowledgements waited
behind what it publishes, two clients that publish to each other would wait for each other. So
acknowledgements and pings overtake; everything else keeps its order. Knows no socket and no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.mqtt.publish.fast_path import take_pubacks
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.property_set import PacketType

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.mqtt.client import Client

MOST_HELD_BYTES: Final = 1 << 20  # are looked through for acknowledgements; then reading stops
MOST_LOOKED_AT_PACKETS: Final = 256  # before somebody looks at the time
PUBACK_HEAD: Final = PacketType.PUBACK << 4
# PUBREL does not overtake: it belongs to the messages that the client publishes.
OVERTAKING: Final = frozenset(
    (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP, PacketType.PINGREQ)
)


class HeldInput:
    """The bytes of one connection that came, or were left, while it is held."""

    __slots__ = ("_at", "_data", "_kept", "_kept_from", "packets", "size")

    def __init__(self) -> None:
        self._kept: list[bytes] = []  # input that was looked through, and is to be handled later
        self._data = b""
        self._kept_from = 0  # everything before it in `_data` is in `_kept`, or was handled
        self._at = 0  # bytes of `_data` that were looked through
        self.size = 0  # bytes that wait
        self.packets = 0  # whole packets that were looked at

    def add(self, data: bytes) -> None:
        self._data = self._data[self._kept_from :] + data
        self._at -= self._kept_from
        self._kept_from = 0
        self.size += len(data)

    def pass_on(
        self, client: Client, version: int, limit: int, is_over: Callable[[], bool]
    ) -> bool:
        """Gives the client what overtakes. False: the time was up first. Raises MqttError."""
        is_late = False
        while not is_late and self._look_through(client, version, limit):
            is_late = is_over()
        client.deliverer.end_of_chunk()
        return not is_late

    def _look_through(self, client: Client, version: int, limit: int) -> bool:
        """Looks through some packets. False: there are no more, or the last is not all here."""
        data, in_flight = self._data, client.deliverer.outbound.in_flight
        for _ in range(MOST_LOOKED_AT_PACKETS):
            start = self._at
            if start < len(data) and data[start] == PUBACK_HEAD:
                until = take_pubacks(data, start, in_flight)
                if until > start:
                    self._cut(start, until)
                    continue
            frame = split(data, start, limit)
            if frame is None:
                return False
            if frame.head >> 4 in OVERTAKING:
                self._cut(start, frame.end)
                client.receive(decode(frame.head, data[frame.start : frame.end], version))
            else:
                self._at = frame.end
                self.packets += 1
        return True

    def _cut(self, start: int, end: int) -> None:
        if start > self._kept_from:
            self._kept.append(self._data[self._kept_from : start])
        self._kept_from = self._at = end
        self.size -= end - start
        self.packets += 1

    def rest(self) -> bytes:
        """Returns everything that did not overtake, in its order."""
        return b"".join((*self._kept, self._data[self._kept_from :]))
