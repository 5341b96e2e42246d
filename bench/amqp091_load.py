"""The load over AMQP 0.9.1: confirms on, fixed-length frames, acks for many at once."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
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

METHOD, HEADER, BODY, END = 1, 2, 3, 0xCE
ACK_LENGTH: Final = 21  # a basic.ack or basic.nack with its frame
ACK, DELIVER = (60, 80), (60, 60)
FRAME_MAX: Final = 131_072


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack("!BHI", kind, channel, len(payload)) + payload + bytes([END])


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack("!HH", class_id, method_id) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


class Link:
    """A connection with one channel, for what is asked and answered in turn."""

    def __init__(self, port: int) -> None:
        self.sock = connect(port)
        self.sock.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(10, 10)
        login = b"\x00guest\x00guest"
        self._tell(0, 10, 11, struct.pack("!I", 0) + short("PLAIN") + _long(login) + short("en_US"))
        channels, frame_max, _heartbeat = struct.unpack("!HIH", self.expect(10, 30))
        self.frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        self._tell(0, 10, 31, struct.pack("!HIH", channels, self.frame_max, 0))
        self._tell(0, 10, 40, short("/") + short("") + b"\x00")
        self.expect(10, 41)
        self.ask(20, 10, short(""), (20, 11))

    def _tell(self, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
        self.sock.sendall(method(channel, class_id, method_id, arguments))

    def ask(
        self, class_id: int, method_id: int, arguments: bytes, answer: tuple[int, int]
    ) -> bytes:
        self._tell(1, class_id, method_id, arguments)
        return self.expect(*answer)

    def expect(self, class_id: int, method_id: int) -> bytes:
        """Reads the arguments of the method that must come now."""
        _kind, _channel, size = struct.unpack("!BHI", read_exactly(self.sock, 7))
        payload = read_exactly(self.sock, size + 1)[:-1]
        came = struct.unpack("!HH", payload[:4])
        if came != (class_id, method_id):
            raise ConnectionError(f"{came} came, {class_id, method_id} was next: {payload[4:]!r}")
        return payload[4:]

    def declare(self, queue: str, *, durable: bool, max_length: int = 0) -> None:
        bits = 2 if durable else 0
        table = short("x-max-length") + struct.pack("!ci", b"I", max_length) if max_length else b""
        arguments = struct.pack("!H", 0) + short(queue) + bytes([bits]) + _long(table)
        self.ask(50, 10, arguments, (50, 11))

    def bind(self, queue: str, key: str) -> None:
        names = short(queue) + short("amq.topic") + short(key)
        self.ask(50, 20, struct.pack("!H", 0) + names + b"\x00" + struct.pack("!I", 0), (50, 21))

    def delete(self, queue: str) -> None:
        self.ask(50, 40, struct.pack("!H", 0) + short(queue) + b"\x00", (50, 41))

    def close(self) -> None:
        arguments = struct.pack("!H", 200) + short("done") + struct.pack("!HH", 0, 0)
        self._tell(0, 10, 50, arguments)
        self.expect(10, 51)
        self.sock.close()


def _long(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def queue_names(spec: Spec) -> list[str]:
    """Names the queues of a run, all of one length, so that frames are."""
    count = spec.publishers if spec.is_paired else spec.queues
    if count == 1:
        return [spec.queue] if spec.queue else []
    return [f"{spec.queue}{number:04}" for number in range(count)]


@contextmanager
def declared(spec: Spec) -> Iterator[None]:
    """Declares the queues of a run, empty, while it lasts."""
    names = queue_names(spec)
    if not names:
        yield
        return
    link = Link(spec.amqp_port)
    for name in names:
        link.delete(name)
        link.declare(name, durable=spec.durable, max_length=spec.max_length)
        if spec.bind:
            link.bind(name, spec.bind)
    link.close()
    yield
    link = Link(spec.amqp_port)
    for name in names:
        link.delete(name)
    link.close()


@contextmanager
def bystanders(port: int, count: int) -> Iterator[None]:
    """Holds connections with a channel each that do nothing."""
    links = [Link(port) for _ in range(count)]
    yield
    for link in links:
        link.sock.close()


def publish_frames(spec: Spec, publisher: int, frame_max: int) -> Bytes:
    """Encodes a ring of basic.publish with its header and body, to the default exchange."""
    key = spec.source
    if spec.is_paired:
        key = queue_names(spec)[publisher]
    elif spec.queues > 1:
        key = queue_names(spec)[0]
    head = method(1, 60, 40, struct.pack("!H", 0) + short("") + short(key) + b"\x00")
    flags = struct.pack("!HHQHB", 60, 0, spec.payload, 0x1000, 2 if spec.durable else 1)
    head += frame(HEADER, 1, flags)
    body = bytes(spec.payload)
    step = frame_max - 8
    pieces = [frame(BODY, 1, body[i : i + step]) for i in range(0, len(body), step)]
    template = np.frombuffer(head + b"".join(pieces), np.uint8)
    ring = spec.ring(len(template))
    rows = np.tile(template, (ring, 1))
    at = len(head) + 7
    rows[:, at : at + HEAD] = heads(spec, publisher, ring)
    if spec.queues > 1:
        digits = b"".join(b"%04d" % (i % spec.queues) for i in range(ring))
        key_ends = 7 + 4 + 2 + 1 + 1 + len(key)
        rows[:, key_ends - 4 : key_ends] = np.frombuffer(digits, np.uint8).reshape(-1, 4)
    return rows


class Publisher(Sender):
    def __init__(self, flow: Flow, sock: socket.socket, frames: Bytes) -> None:
        super().__init__(flow, sock, frames)
        self._floor = 0  # all up to this tag are confirmed
        self._above: set[int] = set()

    def take(self, data: bytes) -> int:
        whole = len(data) // ACK_LENGTH * ACK_LENGTH
        before = self._floor + len(self._above)
        for at in range(0, whole, ACK_LENGTH):
            kind, class_id, method_id, tag, multiple = struct.unpack_from("!B6xHHQB", data, at)
            if kind != METHOD or (class_id, method_id) != ACK:
                raise ConnectionError(f"{class_id, method_id} instead of a confirm: {data[at:]!r}")
            if multiple:
                self._above = {each for each in self._above if each > tag} if self._above else set()
                self._floor = max(self._floor, tag)
            else:
                self._above.add(tag)
            while self._floor + 1 in self._above:
                self._floor += 1
                self._above.remove(self._floor)
        self.confirm(self._floor + len(self._above) - before)
        return whole


class Consumer(Receiver):
    """A consumer that learns from the first delivery how long all are; one that differs is learned
    anew."""

    _length = 0
    _payload_at = 0
    _tag_at = 0

    def take(self, data: bytes) -> int:
        at, tag = 0, 0
        whole = np.frombuffer(data, np.uint8)
        while at < len(data):
            if not self._length and not self._learn(data, at):
                break
            rows = self._run_of(whole, at)
            if not len(rows):
                if len(data) - at < self._length:
                    break
                self._length = 0  # whole, but of another shape
                continue
            self.receive(rows[:, self._payload_at : self._payload_at + HEAD])
            (tag,) = struct.unpack("!Q", rows[-1, self._tag_at : self._tag_at + 8].tobytes())
            at += rows.size
        if tag:
            self.transport.write(method(1, *ACK, struct.pack("!QB", tag, 1)))
        return at

    def _run_of(self, data: Bytes, at: int) -> Bytes:
        """Returns the whole deliveries of the known shape that stand here one after the other."""
        count = (len(data) - at) // self._length
        rows = data[at : at + count * self._length].reshape(count, self._length)
        fits = (rows[:, 0] == METHOD) & (rows[:, 8] == 60) & (rows[:, 10] == 60)
        fits &= (rows[:, self._payload_at - 7] == BODY) & (rows[:, -1] == END)
        others = np.flatnonzero(~fits)
        return rows[: others[0]] if len(others) else rows

    def _learn(self, data: bytes, at: int) -> bool:
        """Learns the shape of the delivery that begins here; False while it is not all there."""
        position, body_bytes = at, -1
        payload_at = 0
        while body_bytes:
            if len(data) - position < 8:
                return False
            kind, _channel, size = struct.unpack_from("!BHI", data, position)
            start = position + 7
            position = start + size + 1
            if len(data) < position:
                return False
            if kind == METHOD:
                came = struct.unpack_from("!HH", data, start)
                if came != DELIVER:
                    raise ConnectionError(f"{came} instead of a delivery: {data[start:][:200]!r}")
                self._tag_at = start + 5 + data[start + 4] - at
            elif kind == HEADER:
                (body_bytes,) = struct.unpack_from("!Q", data, start + 4)
            elif kind == BODY:
                payload_at = payload_at or start
                body_bytes -= size
        self._length, self._payload_at = position - at, payload_at - at
        return True


def make_publisher(flow: Flow, number: int) -> Publisher:
    spec = flow.spec
    link = Link(spec.amqp_port)
    link.ask(85, 10, b"\x00", (85, 11))
    return Publisher(flow, link.sock, publish_frames(spec, number, link.frame_max))


def make_consumer(flow: Flow, number: int, modulus: int) -> Consumer:
    spec = flow.spec
    link = Link(spec.amqp_port)
    link.ask(60, 10, struct.pack("!IHB", 0, spec.prefetch, 0), (60, 11))
    names = [spec.target]
    if spec.is_paired:
        names = [queue_names(spec)[number]]
    elif spec.queues > 1:
        names = queue_names(spec)
    for name in names:
        arguments = struct.pack("!H", 0) + short(name) + short(f"c-{name}") + b"\x00"
        link.ask(60, 20, arguments + struct.pack("!I", 0), (60, 21))
    return Consumer(flow, link.sock, modulus)
