"""A bare MQTT loop: `python -m bench.bare PORT` shows what plain asyncio.Protocol can do, and no
more.

No sessions, no checks, no store: it splits packets, acknowledges and passes on. A gateway that does
all of that is held against it, so a slower machine moves both.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import cast

import uvloop

from bench.mqtt_load import packet_length


class Loop(asyncio.Protocol):
    """One connection; `subscribers` is shared by all: transport to the QoS it asked for."""

    transport: asyncio.Transport

    def __init__(self, subscribers: dict[asyncio.Transport, int]) -> None:
        self._subscribers = subscribers
        self._rest = b""
        self._next_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._subscribers.pop(self.transport, None)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at, published, answers = 0, [], []
        while at < len(data):
            length = packet_length(data, at)
            if not length or len(data) - at < length:
                break
            packet = data[at : at + length]
            at += length
            kind = packet[0] >> 4
            if kind == 3:
                published.append(packet)
            elif kind == 1:
                answers.append(b"\x20\x02\x00\x00")
            elif kind == 8:
                self._subscribers[self.transport] = packet[-1]
                answers.append(b"\x90\x03" + packet[2:4] + packet[-1:])
        self._rest = data[at:]
        if published:
            self._pass_on(published, answers)
        if answers:
            self.transport.write(b"".join(answers))

    def _pass_on(self, published: list[bytes], answers: list[bytes]) -> None:
        if published[0][0] & 6:
            published = [self._numbered(packet, answers) for packet in published]
        data = b"".join(published)
        for subscriber in self._subscribers:
            subscriber.write(data)

    def _numbered(self, packet: bytes, answers: list[bytes]) -> bytes:
        """Gives the packet an id of ours, and adds its PUBACK to the answers."""
        start = 2 if packet[1] < 0x80 else 3
        at = start + 2 + (packet[start] << 8 | packet[start + 1])
        answers.append(b"\x40\x02" + packet[at : at + 2])
        self._next_id = self._next_id % 65_535 + 1
        return packet[:at] + struct.pack("!H", self._next_id) + packet[at + 2 :]


async def serve(port: int) -> None:
    subscribers: dict[asyncio.Transport, int] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: Loop(subscribers), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
