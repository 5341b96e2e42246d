"""Opens connections that do nothing: `python -m bench.idle_load PROTOCOL PORT COUNT [QUEUES]`.

PROTOCOL is mqtt or amqp091; over the latter, each has a channel, and QUEUES durable queues are
declared before. Prints `ready` when all are there, and holds them until its input ends.
"""

from __future__ import annotations

import resource
import socket
import sys
from typing import Final

from bench.amqp091_load import Link
from bench.flow import connect, read_exactly
from bench.mqtt_load import connect_packet

BATCH: Final = 100  # connections that are made at once
SPARE_FILES: Final = 100


def main() -> None:
    protocol, (port, count, *queues) = sys.argv[1], map(int, sys.argv[2:])
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + SPARE_FILES:
        sys.exit(f"{count:,} connections need {count + SPARE_FILES:,} open files, {hard:,} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = mqtt(port, count) if protocol == "mqtt" else amqp091(port, count, *queues)
    print("ready", flush=True)
    sys.stdin.read()
    for sock in held:
        sock.close()


def mqtt(port: int, count: int) -> list[socket.socket]:
    held: list[socket.socket] = []
    for start in range(0, count, BATCH):
        batch = [connect(port) for _ in range(min(BATCH, count - start))]
        for number, sock in enumerate(batch, start):
            sock.sendall(connect_packet(f"bench-idle-{number:05}"))
        for sock in batch:
            if read_exactly(sock, 4)[3]:
                sys.exit("the broker refused a connection")
        held += batch
    return held


def amqp091(port: int, count: int, queues: int = 0) -> list[socket.socket]:
    links = [Link(port) for _ in range(count)]
    for number in range(queues):
        links[number % count].declare(f"bench-idle-{number:05}", durable=True)
    return [link.sock for link in links]


if __name__ == "__main__":
    main()
