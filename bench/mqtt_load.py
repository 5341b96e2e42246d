"""The load over MQTT 3.1.1: frames of one length, read as matrices with a row a message."""

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
    Sender,
    Spec,
    connect,
    heads,
    read_exactly,
)

ACK_LENGTH: Final = 4
PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x30, 0x40, 0x50, 0x62, 0x70


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)


def connect_packet(client_id: str) -> bytes:
    body = struct.pack("!H4sBBH", 4, b"MQTT", 4, 2, 0)
    body += struct.pack("!H", len(client_id)) + client_id.encode()
    return b"\x10" + varint(len(body)) + body


def subscribe_packet(topic: str, qos: int) -> bytes:
    body = struct.pack("!HH", 1, len(topic)) + topic.encode() + bytes([qos])
    return b"\x82" + varint(len(body)) + body


def dial(port: int, client_id: str) -> socket.socket:
    """Connects, and waits for the CONNACK."""
    sock = connect(port)
    sock.sendall(connect_packet(client_id))
    answer = read_exactly(sock, 4)
    if answer[0] != 0x20 or answer[3]:
        raise ConnectionError(f"CONNACK was {answer.hex(' ')}")
    return sock


def publish_frames(spec: Spec, publisher: int) -> Bytes:
    """Encodes a ring of PUBLISH packets."""
    topic = f"{spec.source}/000".encode() if spec.topics > 1 else spec.source.encode()
    remaining = 2 + len(topic) + (2 if spec.qos else 0) + spec.payload
    head = bytes([PUBLISH | spec.qos << 1]) + varint(remaining)
    head += struct.pack("!H", len(topic)) + topic
    length = remaining + 1 + len(varint(remaining))
    ring = spec.ring(length)
    rows = np.zeros((ring, length), np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    if spec.topics > 1:
        levels = b"".join(b"%03d" % (i % spec.topics) for i in range(ring))
        rows[:, len(head) - 3 : len(head)] = np.frombuffer(levels, np.uint8).reshape(-1, 3)
    at = length - spec.payload
    if spec.qos:
        ids = np.arange(1, ring + 1).astype(">u2")
        rows[:, at - 2 : at] = ids.view(np.uint8).reshape(-1, 2)
    rows[:, at : at + HEAD] = heads(spec, publisher, ring)
    return rows


def acks(kind: int, ids: Bytes) -> bytes:
    """Encodes one acknowledgement of a kind for each packet id."""
    rows = np.empty((len(ids), ACK_LENGTH), np.uint8)
    rows[:, 0] = kind
    rows[:, 1] = 2
    rows[:, 2:] = ids
    return rows.tobytes()


class Publisher(Sender):
    def take(self, data: bytes) -> int:
        count = len(data) // ACK_LENGTH
        rows = np.frombuffer(data, np.uint8, count * ACK_LENGTH).reshape(count, ACK_LENGTH)
        if self.flow.spec.qos == 2:
            received = rows[rows[:, 0] == PUBREC]
            if len(received):
                self.transport.write(acks(PUBREL, received[:, 2:]))
            self.confirm(int(np.count_nonzero(rows[:, 0] == PUBCOMP)))
        else:
            self.confirm(count)
        return count * ACK_LENGTH


class Subscriber(Receiver):
    """A subscriber that learns from the first PUBLISH how long all of them are."""

    _length = 0

    def take(self, data: bytes) -> int:
        at = 0
        whole = np.frombuffer(data, np.uint8)
        while at < len(data):
            taken = self._take_run(data, whole, at)
            if not taken:
                break
            at += taken
        return at

    def _take_run(self, data: bytes, whole: Bytes, at: int) -> int:
        """Takes the packets of one kind that begin here, and returns how many bytes they are."""
        if data[at] & 0xF0 == PUBLISH:
            self._length = self._length or packet_length(data, at)
            rows = run_of(whole, at, self._length, PUBLISH)
            if len(rows):
                self._take_publishes(rows)
        else:
            rows = run_of(whole, at, ACK_LENGTH, PUBREL & 0xF0)
            if len(rows):
                self.transport.write(acks(PUBCOMP, rows[:, 2:]))
        return rows.size

    def _take_publishes(self, rows: Bytes) -> None:
        at = self._length - self.flow.spec.payload
        qos = rows[0, 0] >> 1 & 3
        if qos:
            self.transport.write(acks(PUBACK if qos == 1 else PUBREC, rows[:, at - 2 : at]))
        self.receive(rows[:, at : at + HEAD])


def packet_length(data: bytes, at: int) -> int:
    """Returns the length of the packet that begins here; 0 while that is not known."""
    remaining = 0
    for index in range(at + 1, min(at + 5, len(data))):
        remaining |= (data[index] & 0x7F) << 7 * (index - at - 1)
        if not data[index] & 0x80:
            return index - at + 1 + remaining
    return 0


def run_of(data: Bytes, at: int, length: int, kind: int) -> Bytes:
    """Returns the whole packets of one kind and length that stand here one after the other, as
    rows."""
    count = (len(data) - at) // length if length else 0
    rows = data[at : at + count * length].reshape(count, length or 1)
    others = np.flatnonzero(rows[:, 0] & 0xF0 != kind)
    return rows[: others[0]] if len(others) else rows


def make_publisher(flow: Flow, number: int) -> Publisher:
    spec = flow.spec
    sock = dial(spec.mqtt_port, f"bench-pub-{number}")
    return Publisher(flow, sock, publish_frames(spec, number))


def make_subscriber(flow: Flow, number: int, modulus: int) -> Subscriber:
    spec = flow.spec
    sock = dial(spec.mqtt_port, f"bench-sub-{number}")
    sock.sendall(subscribe_packet(spec.target, spec.qos))
    answer = read_exactly(sock, 5)
    if answer[0] != 0x90 or answer[4] != spec.qos:
        raise ConnectionError(f"SUBACK was {answer.hex(' ')}")
    return Subscriber(flow, sock, modulus)
