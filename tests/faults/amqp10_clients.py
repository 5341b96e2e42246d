"""AMQP 1.0 clients of fault tests, frame by frame: no engine stands between them and the wire.

A consumer uses receiver-settle-mode second: when the gateway settles, the settlement is committed.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.sections import split, value_of
from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong, decode
from tests.faults.actors import Actor
from tests.faults.history import Confirmed, Delivered, Ended, History, Name, Sent, Settled
from tests.support.amqp10_wire import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    OPEN,
    TRANSFER,
    frame,
)
from tests.support.until import PATIENCE_SECONDS

LAST_CONFIRMS_SECONDS: Final = 8
WINDOW: Final = (1 << 31) - 1
Frame = tuple[int, list[Any], bytes]
ACCEPTED: Final = Described(ULong(0x24), [])


class Amqp10Actor(Actor):
    EXPECTED = (OSError, EOFError, TimeoutError)

    def __init__(
        self, history: History, name: str, port: Callable[[], int], queue: str, *, window: int = 50
    ) -> None:
        super().__init__(history, name)
        self.queue = queue
        self._port = port  # asked anew each time: a gateway may come back elsewhere
        self._window = window
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def live(self, connection: str) -> None:
        port = self._port()
        opening = asyncio.open_connection("127.0.0.1", port)
        self._reader, self._writer = await asyncio.wait_for(opening, PATIENCE_SECONDS)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._begin()
            self._frames = asyncio.Queue()
            reading = asyncio.create_task(self._read())
            try:
                await self.work(f"{connection}@{port}")
            finally:
                reading.cancel()
        finally:
            self._writer.close()

    async def _begin(self) -> None:
        self._writer.write(
            HEADER
            + sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0guest"])
            + AMQP_HEADER
            + frame(0, OPEN, [self.name, None, UInt(65_536)])
            + frame(0, BEGIN, [None, UInt(0), UInt(WINDOW), UInt(WINDOW)])
            + frame(0, ATTACH, self.attach())
        )
        await self._reader.readexactly(8)
        await self.frame()
        await self.frame()
        await self._reader.readexactly(8)
        while (await self.frame())[0] != ATTACH:
            pass

    @abstractmethod
    def attach(self) -> list[object]:
        """The link that it works on."""

    @abstractmethod
    async def work(self, connection: str) -> None:
        """Publishes or consumes for as long as the connection lives."""

    async def frame(self) -> Frame:
        while True:
            size = int.from_bytes(await self._reader.readexactly(4))
            rest = await self._reader.readexactly(size - 4)
            if size > 8:
                break
        found, end = decode(rest, 4)
        assert isinstance(found, Described)
        assert isinstance(found.descriptor, int)
        assert isinstance(found.value, list)
        if found.descriptor in (CLOSE, DETACH):
            raise EOFError(str(found.value))
        return int(found.descriptor), [*found.value, *([None] * 12)], rest[end:]

    async def _read(self) -> None:
        """All frames from now on; None at the end."""
        try:
            while True:
                self._frames.put_nowait(await self.frame())
        except self.EXPECTED:
            self._frames.put_nowait(None)

    async def frame_soon(self) -> Frame | None:
        """The next frame; None when none comes within a moment."""
        try:
            found = await asyncio.wait_for(self._frames.get(), 0.2)
        except TimeoutError:
            return None
        if found is None:
            raise EOFError("the connection is gone")
        return found


class Amqp10Publisher(Amqp10Actor):
    """Sends numbered messages, `window` of them without an outcome at a time. What had none when
    the connection broke is not sent again: each name is sent once."""

    def __init__(
        self, history: History, name: str, port: Callable[[], int], queue: str, *, window: int = 50
    ) -> None:
        super().__init__(history, name, port, queue, window=window)
        self._numbers = count(1)

    def attach(self) -> list[object]:
        source, target = (
            Described(ULong(0x28), []),
            Described(ULong(0x29), [f"queue://{self.queue}"]),
        )
        return ["s", UInt(0), False, None, None, source, target, None, None, UInt(0)]

    async def work(self, connection: str) -> None:
        waiting: dict[int, Name] = {}
        sent = limit = 0
        stop_at: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            if self.is_stopping and stop_at is None:
                stop_at = loop.time() + LAST_CONFIRMS_SECONDS
            if stop_at is not None and (not waiting or loop.time() > stop_at):
                return
            while stop_at is None and sent < limit and len(waiting) < self._window:
                name = Name(self.queue, self.name, next(self._numbers))
                self.history.add(Sent(name))
                waiting[sent] = name
                self._writer.write(transfer(sent, name.encode(100)))
                sent += 1
            found = await self.frame_soon()
            if found is None:
                continue
            code, fields, _ = found
            if code == FLOW and fields[4] is not None:
                limit = int(fields[5] or 0) + int(fields[6] or 0)
            elif code == DISPOSITION:
                for number in range(fields[1], (fields[1] if fields[2] is None else fields[2]) + 1):
                    done = waiting.pop(number)
                    if fields[4].descriptor == 0x24:
                        self.history.add(Confirmed(done))


def transfer(number: int, body: bytes) -> bytes:
    durable = b"\x00\x53\x70\xc0\x02\x01\x41"
    payload = durable + b"\x00\x53\x75\xa0" + bytes((len(body),)) + body
    fields: list[object] = [UInt(0), UInt(number), number.to_bytes(4), UInt(0), False, False]
    return frame(0, TRANSFER, fields, payload)


class Amqp10Consumer(Amqp10Actor):
    """Takes what comes and accepts it; knows that it is settled when the gateway settles."""

    def attach(self) -> list[object]:
        source, target = (
            Described(ULong(0x28), [f"queue://{self.queue}"]),
            Described(ULong(0x29), []),
        )
        return ["r", UInt(0), True, None, 1, source, target]

    async def work(self, connection: str) -> None:
        held: dict[int, Name] = {}
        got = 0
        self._grant(0)
        try:
            while not self.is_stopping:
                found = await self.frame_soon()
                if found is None:
                    continue
                code, fields, payload = found
                if code == TRANSFER:
                    number, got = int(fields[1]), got + 1
                    name, is_flagged = read(payload)
                    held[number] = name
                    self.history.add(Delivered(name, connection, is_flagged))
                    self._dispose(number, number, settled=False)
                    if got % (self._window // 2 or 1) == 0:
                        self._grant(got)
                elif code == DISPOSITION and fields[3]:
                    last = fields[1] if fields[2] is None else fields[2]
                    for number in range(fields[1], last + 1):
                        self.history.add(Settled(held.pop(number)))
                    self._dispose(fields[1], last, settled=True)
        finally:
            self.history.add(Ended(connection))

    def _grant(self, got: int) -> None:
        fields: list[object] = [UInt(got), UInt(WINDOW), UInt(0), UInt(WINDOW), UInt(0)]
        self._writer.write(frame(0, FLOW, [*fields, UInt(got), UInt(self._window)]))

    def _dispose(self, first: int, last: int, *, settled: bool) -> None:
        fields: list[object] = [True, UInt(first), UInt(last), settled, ACCEPTED]
        self._writer.write(frame(0, DISPOSITION, fields))


def read(payload: bytes) -> tuple[Name, bool]:
    """The message's name, and whether it says that it was delivered before."""
    parts = split(payload)
    header = value_of(parts.header)
    assert isinstance(header, list)
    return Name.decode(parts.body), header[3] is not True
