"""A connection without a network: when it is read, and when silence ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocols.mqtt.connection import Connection
from protocols.mqtt.context import Context
from protocols.mqtt.settings import Settings
from protocols.mqtt.websocket_transport import Connection as WebSocketConnection
from protocols.mqtt.wire.websocket_codec import Opcode, masked
from protocols.read_gate import BUSY
from queue_core.memory_account import Memory
from tests.support.until import turns, until_turned

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Transport(asyncio.Transport):
    """The transport of a peer that takes nothing from its socket until it is `read`."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol
        self.unread = 0
        self.is_reading_now = True
        self._high = 1 << 62
        self._is_full = self._is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def write(self, data: Any) -> None:
        self.unread += len(data)
        if self.unread > self._high and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()

    def read(self) -> None:
        self.unread, self._is_full = 0, False
        self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return self._is_closed

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self._is_closed = True

    write_eof = close
    abort = close


class Clock:
    """Stands in for the loop: time is what the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.calls.append(call)
        return asyncio.get_running_loop().call_later(1000, lambda: None)


def context(settings: Settings | None = None) -> Context:
    services: Any = SimpleNamespace(memory=Memory())
    return Context(services, settings or Settings())


def connected(protocol: asyncio.Protocol) -> Transport:
    transport = Transport()
    transport.protocol = protocol
    protocol.connection_made(transport)
    return transport


async def test_who_sends_pings_of_websocket_and_takes_no_answer_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Connection, "is_let_in", True)
    web = WebSocketConnection(context())
    transport = connected(web)
    web.data_received(UPGRADE)
    body, mask = b"x" * 125, b"mask"
    ping = bytes((0x80 | Opcode.PING, 0x80 | len(body))) + mask + masked(body, mask)
    sent = 0
    while transport.is_reading_now:
        assert sent < 2 * Settings().write_buffer_bytes, "as much as it likes"
        web.data_received(ping * 500)
        sent += len(ping) * 500
        await turns(20)  # what is left of a chunk is taken in later ones
    transport.read()
    await turns(20)
    assert transport.is_reading_now


async def test_who_never_asks_for_a_websocket_is_closed_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    shared = context(Settings(connect_timeout=0))
    transport = connected(WebSocketConnection(shared))
    await until_turned(transport.is_closing)
    assert shared.counters.refused_connections == 1
    assert "has not asked for a WebSocket in time" in caplog.text


async def test_silence_is_counted_from_when_a_client_is_read_again() -> None:
    """A packet that the client sent meanwhile lies in its socket, and may well be a ping."""
    connection, clock = Connection(context()), Clock()
    connection._loop = clock  # type: ignore[assignment]
    transport = connected(connection)
    connection._watch(10)
    connection._gate.shut(BUSY)
    clock.now += 1000
    connection._read_on(BUSY)
    clock.calls[-1]()
    assert not transport.is_closing()
    clock.now += 16
    clock.calls[-1]()
    assert transport.is_closing()
