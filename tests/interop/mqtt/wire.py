"""A relay between a client and the gateway that keeps a copy of what is really said, and reads it.

A test that claims a property of a packet finds it here, or fails: that a client's interface took an
option says little about what it sent.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.packets import Connect, Packet, Version
from protocols.mqtt.wire.property_set import PacketType, PropertySet
from protocols.mqtt.wire.reasons import MqttError
from tests.interop.mqtt.rows import CLIENT, GATEWAY, Row
from tests.interop.relay import CHUNK, Relay

LIMIT: Final = 64 * 1024 * 1024
CONTINUED, BINARY = 0x0, 0x2


class Wire(Relay):
    """To one listener of the gateway."""

    def __init__(self, port: int, *, is_websocket: bool = False) -> None:
        super().__init__(port)
        self._is_websocket = is_websocket
        self._changed = threading.Condition()
        self._copies: list[tuple[bytearray, bytearray]] = []  # of each connection, both ways
        self._by_client: dict[socket.socket, tuple[bytearray, bytearray]] = {}

    def forget(self) -> None:
        """Forgets what was said so far: that is another test's."""
        with self._changed:
            self._copies.clear()

    def waits_for(self, rows: frozenset[Row], seconds: float) -> frozenset[Row]:
        """Waits until all rows have been said; returns those that were not by then."""
        with self._changed:
            self._changed.wait_for(lambda: rows <= self._rows(), seconds)
            return rows - self._rows()

    def waits_for_packet(self, sender: str, packet: type[Packet], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: any(
                    who == sender and isinstance(each, packet) for who, each in self._packets()
                ),
                seconds,
            )

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        client = target if is_answer else source
        with self._changed:
            copies = self._by_client.pop(client, None)
            if copies is None:  # the first of its two threads
                copies = self._by_client[client] = (bytearray(), bytearray())
                self._copies.append(copies)
        with suppress(OSError):
            while data := source.recv(CHUNK):
                with self._changed:
                    copies[is_answer].extend(data)
                    self._changed.notify_all()
                target.sendall(data)
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        source.close()

    # --- reading

    def _rows(self) -> frozenset[Row]:
        return frozenset(row for who, packet in self._packets() for row in rows_of(who, packet))

    def _packets(self) -> Iterator[tuple[str, Packet]]:
        for asked, answered in self._copies:
            version: int = Version.V5
            for sender, copy in ((CLIENT, bytes(asked)), (GATEWAY, bytes(answered))):
                data = unframed(copy) if self._is_websocket else copy
                for packet in packets_in(data, version):
                    if isinstance(packet, Connect):
                        version = packet.version
                    yield sender, packet


def packets_in(data: bytes, version: int) -> Iterator[Packet]:
    """Yields the packets that are whole. CONNECT says which version the rest is in."""
    position = 0
    while (frame := split(data, position, LIMIT)) is not None:
        try:
            packet = decode(frame.head, data[frame.start : frame.end], version)
        except MqttError as error:
            raise AssertionError(f"a packet that is none: {error}") from error
        if isinstance(packet, Connect):
            version = packet.version
        yield packet
        position = frame.end


def rows_of(sender: str, packet: Packet) -> Iterator[Row]:
    """The properties that a packet has."""
    kind = PacketType[type(packet).__name__.upper()]
    properties = getattr(packet, "properties", None)
    if properties is not None:
        yield from (Row(sender, kind, field) for field in fields_of(properties))
    if isinstance(packet, Connect) and packet.will is not None:
        fields = fields_of(packet.will.properties)
        yield from (Row(sender, PacketType.WILL, field) for field in fields)


def fields_of(properties: PropertySet) -> Iterator[str]:
    for field in PropertySet.__struct_fields__:
        if getattr(properties, field) not in (None, ()):
            yield field


def unframed(data: bytes) -> bytes:
    """The MQTT inside of a WebSocket connection, without the handshake and control frames."""
    _, _, rest = data.partition(b"\r\n\r\n")
    parts: list[bytes] = []
    while len(rest) >= 2:
        opcode, is_masked, length = rest[0] & 0x0F, rest[1] & 0x80, rest[1] & 0x7F
        start = 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length = int.from_bytes(rest[2 : 2 + size], "big")
            start += size
        mask = rest[start : start + 4] if is_masked else bytes(4)
        start += 4 if is_masked else 0
        if len(rest) < start + length:
            break
        if opcode in (CONTINUED, BINARY):
            body = rest[start : start + length]
            parts.append(bytes(byte ^ mask[at % 4] for at, byte in enumerate(body)))
        rest = rest[start + length :]
    return b"".join(parts)
