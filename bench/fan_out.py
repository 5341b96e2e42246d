"""`python -m bench.fan_out`: measures one topic with many subscribers, in both fan-out modes.

For each mode a gateway of its own. Tells how long the handshake of a QoS 2 and of a QoS 1 publish
takes while its fan-out goes on, how many deliveries a second the subscribers get when a publisher
sends as fast as it is answered, and how long a bystander's round trip takes meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.brokers import Broker, howdah

TOPIC: Final = b"bench/fan/out"
PAYLOAD: Final = bytes(100)
HANDSHAKES: Final = 300
WINDOW: Final = 50  # QoS 1 messages that are not answered, at most
MOST_SECONDS: Final = 20.0  # for what is on its way to arrive


def connect(port: int, name: str) -> socket.socket:
    """Connects a 3.1.1 client."""
    client = socket.create_connection(("127.0.0.1", port), 10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
    client.sendall(bytes((0x10, len(body))) + body)
    assert client.recv(4) == b"\x20\x02\x00\x00", "not let in"
    return client


def subscribe(client: socket.socket, topic: bytes) -> None:
    body = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic + b"\x00"
    client.sendall(bytes((0x82, len(body))) + body)
    assert client.recv(5)[0] == 0x90, "not subscribed"


def publish(topic: bytes, qos: int, packet_id: int = 0) -> bytes:
    identifier = packet_id.to_bytes(2, "big") if qos else b""
    body = len(topic).to_bytes(2, "big") + topic + identifier + PAYLOAD
    assert 0x80 <= len(body) < 0x4000 or len(body) < 0x80
    size = (
        bytes((len(body),))
        if len(body) < 0x80
        else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    )
    return bytes((0x30 | qos << 1,)) + size + body


FRAME: Final = len(publish(TOPIC, 0))


def listen(port: int, count: int) -> None:
    """Runs the subscribers, in a process of their own: answers each line with the bytes that
    came."""
    clients = [connect(port, f"listener-{i}") for i in range(count)]
    for client in clients:
        subscribe(client, TOPIC)
        client.setblocking(False)
    poll = select.epoll()
    by_number = {client.fileno(): client for client in clients}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    poll.register(0, select.EPOLLIN)
    print("ready", flush=True)
    received = 0
    while True:
        for number, _ in poll.poll():
            if number == 0:
                if not os.read(0, 1):
                    return
                print(received, flush=True)
                continue
            received += len(by_number[number].recv(262_144))


class Listeners:
    """The process of subscribers, seen from the publisher."""

    def __init__(self, port: int, count: int) -> None:
        command = [sys.executable, "-m", "bench.fan_out", "--listen", str(port), str(count)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def received(self) -> int:
        """Asks how many messages all subscribers together have got."""
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        return int(self._line()) // FRAME

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while self.received() < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.received():,} of {count:,} deliveries came")
            time.sleep(0.005)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def handshakes(client: socket.socket, qos: int) -> list[float]:
    """Measures milliseconds from PUBLISH to PUBCOMP or PUBACK, one after the other."""
    took = []
    for i in range(1, HANDSHAKES + 1):
        begun = time.perf_counter()
        client.sendall(publish(TOPIC, qos, i))
        answer = client.recv(4, socket.MSG_WAITALL)
        if qos == 2:
            assert answer[0] == 0x50
            client.sendall(b"\x62\x02" + i.to_bytes(2, "big"))
            answer = client.recv(4, socket.MSG_WAITALL)
        assert answer[0] == (0x70 if qos == 2 else 0x40)
        took.append((time.perf_counter() - begun) * 1000)
    return took


def flood(client: socket.socket, seconds: float) -> int:
    """Publishes at QoS 1 as fast as it is answered, and returns how many."""
    sent = answered = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        room = WINDOW - (sent - answered)
        if room:
            client.sendall(
                b"".join(publish(TOPIC, 1, (sent + i) % 60_000 + 1) for i in range(room))
            )
            sent += room
        answered += len(client.recv(65_536)) // 4
    while answered < sent:
        answered += len(client.recv(65_536)) // 4
    return sent


@contextmanager
def bystander(port: int, took: list[float]) -> Iterator[None]:
    """Runs a client that publishes to itself all the while, 100 times a second."""
    over = threading.Event()
    topic = b"bench/bystander"
    frame = publish(topic, 0)

    def run() -> None:
        with contextlib.closing(connect(port, "bystander")) as client:
            subscribe(client, topic)
            while not over.wait(0.01):
                begun = time.perf_counter()
                client.sendall(frame)
                client.recv(len(frame), socket.MSG_WAITALL)
                took.append((time.perf_counter() - begun) * 1000)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def percentiles(took: list[float]) -> str:
    cuts = statistics.quantiles(took, n=100)
    return f"p50 {cuts[49]:7.2f}  p99 {cuts[98]:7.2f}  max {max(took):7.2f} ms"


def measure(broker: Broker, mode: str, count: int, seconds: float) -> None:
    assert broker.mqtt_port is not None
    port = broker.mqtt_port
    listeners = Listeners(port, count)
    expected = 0
    with contextlib.closing(connect(port, "publisher")) as client:
        for qos in (2, 1):
            took = handshakes(client, qos)
            expected += HANDSHAKES * count
            listeners.wait_for(expected)
            print(f"{mode:5} {count:6,} subscribers  QoS {qos} handshake   {percentiles(took)}")
        waits: list[float] = []
        with bystander(port, waits):
            begun = time.monotonic()
            expected += flood(client, seconds) * count
            listeners.wait_for(expected)
            took_all = time.monotonic() - begun
        rate = (expected - 2 * HANDSHAKES * count) / took_all
        print(f"{mode:5} {count:6,} subscribers  {rate:10,.0f} deliveries/s")
        print(
            f"{mode:5} {count:6,} subscribers  a bystander       {percentiles(waits)}", flush=True
        )
    listeners.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fan_out", description=__doc__)
    parser.add_argument("--subscribers", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--seconds", type=float, default=3.0, help="of the flood")
    parser.add_argument("--listen", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.listen:
        listen(*arguments.listen)
        return 0
    for count in arguments.subscribers:
        for mode in ("sync", "async"):
            os.environ["HOWDAH_BROKER__ASYNC_FAN_OUT"] = "true" if mode == "async" else "false"
            with tempfile.TemporaryDirectory() as folder, howdah(Path(folder)) as broker:
                measure(broker, mode, count, arguments.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
