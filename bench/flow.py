"""Runs one load: senders, receivers, how far ahead, how long, and the figures of it.

Knows no protocol. Messages carry numbers, so that what arrives can be held to be complete and in
order; frames are encoded before the clock starts, as a ring that is sent again and again. Where a
rate is asked for, times count from when a message was due, not from when it was sent.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Times = NDArray[np.float64]

HEAD: Final = 8  # bytes of a payload that the check needs: stream and number
RING: Final = 65_535  # messages at most: as many as there are MQTT packet ids
RING_BYTES: Final = 64 * 2**20
BURST: Final = 50  # messages that go out in one piece, if there is room for them
TICK: Final = 0.0002  # seconds between looks at what is due
DRAIN_SECONDS: Final = 30.0  # what is on its way when time is up may take this long
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True, slots=True)
class Spec:
    """The settings of a load process; a protocol ignores fields that it does not have."""

    publish: str = "mqtt"
    consume: str = "mqtt"
    mqtt_port: int = 0
    amqp_port: int = 0
    seconds: float = 3.0
    rate: float = 0.0  # messages a second in all; 0: as many as go through
    publishers: int = 1
    consumers: int = 1
    queues: int = 1  # with more than one: one publisher in turn to each, one consumer of all
    is_paired: bool = False  # each publisher has a queue and a consumer of its own
    bystanders: int = 0  # further connections with a channel each that do nothing
    payload: int = 100
    window: int = 500  # published and not yet received by the slowest, at most; 0: no bound
    outstanding: int = 0  # published and not yet confirmed, at most; 0: no bound
    qos: int = 0
    durable: bool = False
    is_settled: bool = False  # AMQP 1.0: nobody answers for a message, and nobody receives it
    prefetch: int = 500
    source: str = "bench/topic"  # the topic, routing key or address to publish to
    topics: int = 1  # MQTT: with more than one, each message goes to another level below the source
    target: str = "bench/topic"  # the filter, queue or address to consume from
    properties: bool = False  # MQTT 5: with a content type and a user property
    queue: str = ""  # made over AMQP 0.9.1 before the run, and deleted after it
    bind: str = ""  # the key of amq.topic that this queue is bound by
    max_length: int = 0  # of this queue: its oldest are dropped; 0: no bound

    @property
    def streams(self) -> int:
        """The number of numberings: one for each queue or publisher."""
        return max(self.queues, self.publishers)

    def ring(self, frame_bytes: int) -> int:
        """Returns how many messages are encoded: a multiple of the queues."""
        count = min(RING, max(RING_BYTES // frame_bytes, 16))
        return max(count // self.queues, 1) * self.queues

    @property
    def burst(self) -> int:
        bounds = [bound for bound in (self.window, self.outstanding) if bound]
        return max(1, min(BURST, *(bound // 4 for bound in bounds))) if bounds else BURST


class Check:
    """Checks that what arrives is complete and in order, stream by stream."""

    def __init__(self, streams: int, modulus: int) -> None:
        self._next = np.zeros(streams, np.int64)
        self._modulus = modulus

    def take(self, heads: Bytes) -> None:
        """Takes rows of HEAD bytes, as they arrived. Ends the process where something is
        missing."""
        pairs = np.ascontiguousarray(heads).view(">u4").astype(np.int64).reshape(-1, 2)
        streams, numbers = pairs[:, 0], pairs[:, 1]
        order = np.argsort(streams, kind="stable")
        streams, numbers = streams[order], numbers[order]
        is_first = np.empty(len(streams), bool)
        is_first[0] = True
        np.not_equal(streams[1:], streams[:-1], out=is_first[1:])
        expected = np.empty_like(numbers)
        expected[1:] = (numbers[:-1] + 1) % self._modulus
        expected[is_first] = self._next[streams[is_first]]
        if not np.array_equal(numbers, expected):
            at = int(np.flatnonzero(numbers != expected)[0])
            raise Disorder(int(streams[at]), int(numbers[at]), int(expected[at]))
        is_last = np.roll(is_first, -1)
        self._next[streams[is_last]] = (numbers[is_last] + 1) % self._modulus


class Disorder(Exception):
    """Something was lost, doubled or out of its turn."""

    def __init__(self, stream: int, number: int, expected: int) -> None:
        super().__init__(f"stream {stream}: {number} came, {expected} was next")


def heads(spec: Spec, publisher: int, ring: int) -> Bytes:
    """Encodes the begin of each message of a publisher's ring: its stream and its number."""
    index = np.arange(ring)
    pairs = np.empty((ring, 2), ">u4")
    pairs[:, 0] = index % spec.queues if spec.queues > 1 else publisher
    pairs[:, 1] = index // spec.queues
    return pairs.view(np.uint8)


class Client(asyncio.Protocol):
    """One connection that is already open; keeps what arrives until it is whole."""

    transport: asyncio.Transport

    def __init__(self, flow: Flow, sock: socket.socket) -> None:
        self.flow = flow
        self.sock = sock
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        self.flow.fail(error or EOFError(f"the broker hung up on a {type(self).__name__}"))

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        try:
            whole = self.take(data)
        except Exception as error:
            self.flow.fail(error)
            return
        self._rest = data[whole:]
        self.flow.on_progress()

    def take(self, data: bytes) -> int:
        """Uses the whole frames of the data, and returns how many bytes they were."""
        raise TypeError("a client says what it does with its data")


class Sender(Client):
    """Sends a ring of frames of one length, round and round."""

    def __init__(self, flow: Flow, sock: socket.socket, frames: Bytes) -> None:
        super().__init__(flow, sock)
        self.send_times = Lateness(flow.spec, len(flow.senders))
        self._confirm_times = Lateness(flow.spec, len(flow.senders))
        flow.send_times.append(self.send_times)
        flow.confirm_times.append(self._confirm_times)
        self.ring, self._length = frames.shape
        self._frames = memoryview(frames.tobytes())
        self.sent = 0
        self.confirmed = 0
        self.room = sys.maxsize  # what the peer lets us send, where the protocol says so

    def send(self, count: int) -> None:
        while count:
            at = self.sent % self.ring
            taken = min(count, self.ring - at)
            self.transport.write(self._frames[at * self._length : (at + taken) * self._length])
            self.sent += taken
            count -= taken

    def confirm(self, count: int) -> None:
        self.confirmed += count
        self._confirm_times.add(count)


class Receiver(Client):
    def __init__(self, flow: Flow, sock: socket.socket, modulus: int) -> None:
        super().__init__(flow, sock)
        self.received = 0
        self._check = Check(flow.spec.streams, modulus)
        self._delivery_times = Lateness(flow.spec, len(flow.receivers))
        flow.delivery_times.append(self._delivery_times)

    def receive(self, heads: Bytes) -> None:
        self._check.take(heads)
        self.received += len(heads)
        self._delivery_times.add(len(heads))


class Lateness:
    """Records how long after it was due each message of one client came; nothing without a rate.
    Pairs take turns: the first message of each is due, then the second of each."""

    def __init__(self, spec: Spec, number: int) -> None:
        self._rate = spec.rate
        self._first, self._step = (number, spec.publishers) if spec.is_paired else (0, 1)
        self._count = 0
        self.late: list[Times] = []
        self.started = 0.0

    def add(self, count: int) -> None:
        if self._rate:
            turns = np.arange(self._count, self._count + count) * self._step + self._first
            self.late.append(time.perf_counter() - (turns / self._rate + self.started))
            self._count += count


def percentiles(times: list[Lateness]) -> list[float]:
    """Returns the PERCENTILES of lateness, in seconds."""
    late = [part for each in times for part in each.late]
    if not late:
        return []
    return [float(each) for each in np.percentile(np.concatenate(late), PERCENTILES)]


class Flow:
    """Lets senders send while there is room, until the time is up and all has arrived."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.delivery_times: list[Lateness] = []
        self.confirm_times: list[Lateness] = []
        self.send_times: list[Lateness] = []  # how late the load itself was
        self.needs_confirms = spec.qos > 0 or spec.outstanding > 0
        self._started = 0.0
        self._burst = spec.burst
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop_at = 0.0
        self._is_started = False

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for client in [*self.receivers, *self.senders]:
            await loop.create_connection(lambda each=client: each, sock=client.sock)  # type: ignore[misc]

    async def run(self) -> float:
        """Runs the load, and returns the seconds that it took."""
        started = self._started = time.perf_counter()
        for each in [*self.delivery_times, *self.confirm_times, *self.send_times]:
            each.started = started
        self._stop_at = started + self.spec.seconds
        self._is_started = True
        if self.spec.rate:
            self._start_clock()
        self.on_progress()
        await asyncio.wait_for(self._done, self.spec.seconds + DRAIN_SECONDS)
        return time.perf_counter() - started

    def fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def on_progress(self) -> None:
        if not self._is_started or self._done.done():
            return
        sent = sum(sender.sent for sender in self.senders)
        received = self._received()
        now = time.perf_counter()
        if now < self._stop_at:
            if self.spec.rate:
                self._send_due(now, sent)
            else:
                self._fill(sent, received)
        elif self.spec.is_settled or (received >= sent and self._is_confirmed(sent)):
            self._done.set_result(None)

    def _received(self) -> int:
        """Counts messages received: by all together where each has a queue of its own; else by the
        slowest."""
        counts = [receiver.received for receiver in self.receivers]
        return sum(counts) if self.spec.is_paired else min(counts, default=0)

    def deliveries(self) -> int:
        """Counts deliveries; where nobody receives or confirms messages, those that the peer has
        made room after."""
        if self.spec.is_settled:
            return sum(sender.confirmed for sender in self.senders)
        return sum(receiver.received for receiver in self.receivers)

    def _is_confirmed(self, sent: int) -> bool:
        return not self.needs_confirms or sum(each.confirmed for each in self.senders) >= sent

    def _fill(self, sent: int, received: int) -> None:
        """Lets each sender that has room send on, in bursts."""
        spec, burst = self.spec, self._burst
        share = spec.outstanding // spec.publishers
        for sender in self.senders:
            room = sender.room
            if spec.window:
                room = min(room, spec.window - (sent - received))
            if share:
                room = min(room, share - (sender.sent - sender.confirmed))
            if spec.publishers > 1:
                room = min(room, burst)  # in turn, so that all have their part of the window
            if room >= burst:
                count = room // burst * burst
                sender.send(count)
                sent += count

    def _send_due(self, now: float, sent: int) -> None:
        due = int((now - self._started) * self.spec.rate) + 1
        if len(self.senders) == 1:
            count = min(due - sent, self.senders[0].room)
            if count > 0:
                self._send(self.senders[0], count)
            return
        for number in range(sent, due):
            self._send(self.senders[number % len(self.senders)], 1)

    @staticmethod
    def _send(sender: Sender, count: int) -> None:
        sender.send_times.add(count)
        sender.send(count)

    def _start_clock(self) -> None:
        """Starts a thread that wakes the loop on time: its sleep is finer than the event loop's
        timer."""
        loop = asyncio.get_running_loop()
        tick = max(TICK, 1 / self.spec.rate)

        def run() -> None:
            while time.perf_counter() < self._stop_at + tick:
                time.sleep(tick)
                try:
                    loop.call_soon_threadsafe(self.on_progress)
                except RuntimeError:  # the loop has gone
                    return

        threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        for client in [*self.senders, *self.receivers]:
            client.transport.abort()


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 20)
    sock.settimeout(20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each handshake waits 40 ms
    return sock


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError("the broker hung up while we shook hands")
        data += piece
    return bytes(data)
