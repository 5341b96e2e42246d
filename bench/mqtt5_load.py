"""The load over MQTT 5.0: with properties that another protocol has to be told, if asked for, and
with deliveries that grow with their offset."""

from __future__ import annotations

import socket
import struct
from typing import Final

import numpy as np

from bench.flow import (
    HEAD,
    Bytes,
    Flow,
    Receiver,
    Spec,
    connect,
    heads,
    read_exactly,
)
from bench.mqtt_load import (
    PUBACK,
    PUBLISH,
    Publisher,
    acks,
    packet_length,
    varint,
)

CONNACK, SUBACK = 0x20, 0x90
CONTENT_TYPE, RECEIVE_MAXIMUM, USER = 0x03, 0x21, 0x26
DEFAULT_RECEIVE_MAXIMUM: Final = 65_535
FIXED: Final = {  # bytes of the properties that CONNACK may have before the receive maximum
    **dict.fromkeys((0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22), 2),
    **dict.fromkeys((0x11, 0x27), 4),
}


def text(value: str) -> bytes:
    octets = value.encode()
    return struct.pack("!H", len(octets)) + octets


# What a sensor says of its reading: one property with a place of its own elsewhere, one without.
PROPERTIES: Final = (
    bytes([CONTENT_TYPE]) + text("application/json") + bytes([USER]) + text("unit") + text("K")
)


def connect_packet(client_id: str, receive_maximum: int) -> bytes:
    properties = struct.pack("!BH", RECEIVE_MAXIMUM, receive_maximum)
    body = struct.pack("!H4sBBH", 4, b"MQTT", 5, 2, 0)
    body += varint(len(properties)) + properties + text(client_id)
    return b"\x10" + varint(len(body)) + body


def subscribe_packet(topic: str, qos: int) -> bytes:
    body = struct.pack("!HB", 1, 0) + text(topic) + bytes([qos])
    return b"\x82" + varint(len(body)) + body


def read_packet(sock: socket.socket) -> tuple[int, bytes]:
    """Reads a packet: its first byte, and what comes behind its length."""
    start = read_exactly(sock, 2)
    while start[-1] & 0x80:
        start += read_exactly(sock, 1)
    return start[0], read_exactly(sock, packet_length(start, 0) - len(start))


def receive_maximum_of(properties: bytes) -> int:
    """Finds the receive maximum in the properties of a CONNACK, which begin with their length."""
    end, at = properties[0] + 1, 1
    while at < end:
        number = properties[at]
        if number == RECEIVE_MAXIMUM:
            return int.from_bytes(properties[at + 1 : at + 3], "big")
        size = FIXED.get(number)
        if size is None:
            for _ in range(2 if number == USER else 1):
                at += 2 + int.from_bytes(properties[at + 1 : at + 3], "big")
            size = 0
        at += 1 + size
    return DEFAULT_RECEIVE_MAXIMUM


def dial(port: int, client_id: str, receive_maximum: int) -> tuple[socket.socket, int]:
    """Connects, and returns the socket with the receive maximum of the broker."""
    sock = connect(port)
    sock.sendall(connect_packet(client_id, receive_maximum))
    kind, rest = read_packet(sock)
    if kind != CONNACK or rest[1]:
        raise ConnectionError(f"CONNACK was {kind:02x} {rest.hex(' ')}")
    return sock, receive_maximum_of(rest[2:])


def publish_frames(spec: Spec, publisher: int) -> Bytes:
    """Encodes a ring of PUBLISH packets."""
    opening = text(spec.source)
    properties = varint(len(PROPERTIES)) + PROPERTIES if spec.properties else b"\0"
    remaining = len(opening) + 2 + len(properties) + spec.payload
    head = bytes([PUBLISH | spec.qos << 1]) + varint(remaining) + opening
    length = remaining + 1 + len(varint(remaining))
    ring = spec.ring(length)
    rows = np.zeros((ring, length), np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    ids = np.arange(1, ring + 1).astype(">u2")
    rows[:, len(head) : len(head) + 2] = ids.view(np.uint8).reshape(-1, 2)
    at = length - spec.payload
    rows[:, at - len(properties) : at] = np.frombuffer(properties, np.uint8)
    rows[:, at : at + HEAD] = heads(spec, publisher, ring)
    return rows


class Publisher5(Publisher):
    """A publisher that keeps to the receive maximum of the broker."""

    def send(self, count: int) -> None:
        self.room -= count
        super().send(count)

    def confirm(self, count: int) -> None:
        self.room += count
        super().confirm(count)


class Subscriber5(Receiver):
    """A subscriber to whom packets of one length stand together: a length lasts until an offset has
    a digit more."""

    def take(self, data: bytes) -> int:
        at = 0
        whole = np.frombuffer(data, np.uint8)
        while at < len(data):
            length = packet_length(data, at)
            count = (len(data) - at) // length if length else 0
            if not count:
                break
            rows = whole[at : at + count * length].reshape(count, length)
            # the first of another kind or length begins where a row begins
            differs = np.flatnonzero((rows[:, :3] != rows[0, :3]).any(axis=1))
            rows = rows[: differs[0]] if len(differs) else rows
            self._take_publishes(rows)
            at += rows.size
        return at

    def _take_publishes(self, rows: Bytes) -> None:
        if rows[0, 0] & 0xF0 != PUBLISH:
            raise ConnectionError(f"{rows[0].tobytes()[:20].hex(' ')} where a PUBLISH should be")
        start = 2 if rows[0, 1] < 0x80 else 3
        at = start + 2 + int(rows[0, start]) * 256 + int(rows[0, start + 1])
        self.transport.write(acks(PUBACK, rows[:, at : at + 2]))
        body = rows.shape[1] - self.flow.spec.payload
        self.receive(rows[:, body : body + HEAD])


def make_publisher(flow: Flow, number: int) -> Publisher5:
    spec = flow.spec
    sock, maximum = dial(spec.mqtt_port, f"bench-pub-{number}", spec.prefetch)
    publisher = Publisher5(flow, sock, publish_frames(spec, number))
    publisher.room = maximum
    return publisher


def make_subscriber(flow: Flow, number: int, modulus: int) -> Subscriber5:
    spec = flow.spec
    sock, _ = dial(spec.mqtt_port, f"bench-sub-{number}", spec.prefetch)
    sock.sendall(subscribe_packet(spec.target, spec.qos))
    kind, rest = read_packet(sock)
    if kind != SUBACK or rest[-1] != spec.qos:
        raise ConnectionError(f"SUBACK was {kind:02x} {rest.hex(' ')}")
    return Subscriber5(flow, sock, modulus)
