"""`python -m bench.churn`: measures if the gateway's memory stays level over thousands of
connections.

One gateway; connections of each protocol come, publish, consume and go, orderly or cut off in the
middle. Tells its resident memory after each tenth, and fails if it has grown over the second half
by more than a bound for each connection.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.brokers import free_ports, running_howdah
from bench.canary import (
    AMQP_10,
    OPEN_10,
    UPGRADE,
    connect_packet,
    opened_091,
    publish_packet,
    published_091,
    web_frame,
)
from bench.processes import resident_bytes
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.methods import BasicConsume, ConnectionClose, QueueDeclare, TxSelect
from protocols.mqtt.wire.websocket_codec import Opcode

MOST_BYTES: Final = 256  # that memory may grow for each connection, over the second half
MOST_BUSY_BYTES: Final = 4096  # the same for one that moved ten thousand messages
TENTHS: Final = 10
AT_ONCE: Final = 16
MOST_SECONDS: Final = 900.0
MESSAGES: Final = 20
BUSY_MESSAGES: Final = 10_000
BUSY_SHARE: Final = 12  # one busy connection stands for so many others

CHUNK_BYTES: Final = 65_536

_RESET: Final = struct.pack("ii", 1, 0)


def queue_091(number: int) -> bytes:
    name = f"churn{number % AT_ONCE}"
    return (
        method_frame(1, QueueDeclare(0, name, auto_delete=True))
        + method_frame(1, BasicConsume(0, name, "t"))
        + published_091(name, b"\0\0", b"x") * MESSAGES
    )


def closed_091() -> bytes:
    return method_frame(0, ConnectionClose(200, "", 0, 0))


def busy_091(number: int) -> bytes:
    """Encodes a client that publishes ten thousand messages to itself, and closes behind them."""
    name = f"busy{number % AT_ONCE}"
    return (
        opened_091()
        + method_frame(1, QueueDeclare(0, name, auto_delete=True))
        + method_frame(1, BasicConsume(0, name, "t", no_ack=True))
        + published_091(name, b"\0\0", b"x") * BUSY_MESSAGES
        + closed_091()
    )


Life = Callable[[int], bytes]  # what the n-th connection says before it ends

LIVES: Final[dict[str, tuple[str, tuple[Life, ...]]]] = {
    "mqtt": (
        "mqtt",
        (
            lambda n: connect_packet(f"c{n}") + publish_packet("t", b"x") * MESSAGES + b"\xe0\0",
            lambda n: connect_packet(f"c{n}") + b"\x30\x7f",
            lambda _: b"\x10",
            lambda _: connect_packet("same"),
        ),
    ),
    "mqtt_ws": (
        "mqtt_ws",
        (
            lambda n: UPGRADE + web_frame(Opcode.BINARY, connect_packet(f"c{n}")),
            lambda _: UPGRADE + web_frame(Opcode.CLOSE),
            lambda _: b"GET",
        ),
    ),
    "amqp091": (
        "amqp",
        (
            lambda n: opened_091() + queue_091(n) + closed_091(),
            lambda n: opened_091() + queue_091(n),
            lambda _: (
                opened_091() + method_frame(1, TxSelect()) + published_091("q", b"\0\0", b"x")
            ),
            lambda _: opened_091() + published_091("q", b"\0\0", b"x")[:-5],
            lambda _: opened_091() + b"\x77" * 20,
            lambda _: b"AMQP\0\0\x09\x01",
            lambda _: opened_091()[:-30],
        ),
    ),
    "amqp091-busy": ("amqp", (busy_091,)),
    "amqp10": (
        "amqp",
        (
            lambda _: AMQP_10 + OPEN_10,
            lambda _: AMQP_10 + OPEN_10 + b"\0\0\0\x0c\x02\0\0\0\0\x53\x18\x45",
            lambda _: AMQP_10 + OPEN_10 + b"\xff" * 40,
            lambda _: b"AMQP\3\1\0\0",
            lambda _: AMQP_10,
        ),
    ),
}


async def live(port: int, said: bytes, *, is_cut: bool) -> None:
    """Runs one connection up to the end of what the gateway has to say, or cuts it off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        async with asyncio.timeout(10):
            while await reader.read(CHUNK_BYTES) and len(said) > CHUNK_BYTES:
                pass  # a busy one hears all its messages; of others it is enough that it was heard
        if is_cut:
            link: socket.socket = writer.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def churn(port: int, lives: tuple[Life, ...], first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def one_after_the_other() -> None:
        for number in numbers:
            said = lives[number % len(lives)](number)
            if said in (b"\x10", b"GET"):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(said)
                await writer.drain()
                writer.close()
            else:
                await live(port, said, is_cut=number % 2 == 0)

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


def measure(name: str, ports: dict[str, int], pid: int, count: int) -> bool:
    listener, lives = LIVES[name]
    if name.endswith("-busy"):
        count = max(TENTHS, count // BUSY_SHARE)
    sizes: list[int] = []
    began = time.monotonic()
    for tenth in range(TENTHS):
        asyncio.run(churn(ports[listener], lives, tenth * count // TENTHS, count // TENTHS))
        time.sleep(0.5)
        sizes.append(resident_bytes(pid))
        if time.monotonic() - began > MOST_SECONDS:
            break
    half = len(sizes) // 2
    grown = (sizes[-1] - sizes[half - 1]) / (count * (len(sizes) - half) / TENTHS)
    is_level = grown <= (MOST_BUSY_BYTES if name.endswith("-busy") else MOST_BYTES)
    shown = " ".join(f"{size / 2**20:.1f}" for size in sizes)
    print(
        f"{name:8} {count:6} connections  MiB after each tenth: {shown}"
        f"  {grown:.0f} bytes each over the second half: {'level' if is_level else 'GROWS'}",
        flush=True,
    )
    return is_level


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.churn", description=__doc__)
    parser.add_argument("protocols", nargs="*", metavar="protocol", help=", ".join(LIVES))
    parser.add_argument("--connections", type=int, default=20_000, help="of each protocol")
    asked = parser.parse_args()
    unknown = set(asked.protocols) - set(LIVES)
    if unknown:
        parser.error(f"no protocol is called {', '.join(sorted(unknown))}")
    listeners = ("mqtt", "mqtt_ws", "amqp")
    with tempfile.TemporaryDirectory(prefix="howdah-churn-") as folder:
        ports = dict(zip(listeners, free_ports(len(listeners)), strict=True))
        with running_howdah(Path(folder), ports) as pid:
            count = min(asked.connections, 100_000)
            level = [measure(name, ports, pid, count) for name in asked.protocols or LIVES]
    return 0 if all(level) else 1


if __name__ == "__main__":
    sys.exit(main())
