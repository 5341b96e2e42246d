"""One port, two protocols: who gets the connection, and what a stranger hears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway import amqp_port
from gateway.amqp_port import AMQP_091, AMQP_10, AMQP_10_SASL, AmqpPort, HeaderReader
from protocols.graceful_close import Farewell
from tests.support.until import until_turned


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False
        self.protocol: object = None

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None: ...

    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 4711) if name == "peername" else default


class FakeConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: object = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None: ...

    def data_received(self, data: bytes) -> None:
        self.received += data

    def shut_down(self, reason: str) -> None: ...


class OldAmqp(FakeConnection): ...


class NewAmqp(FakeConnection): ...


BOTH: dict[bytes, Callable[[], FakeConnection]] = {
    AMQP_091: OldAmqp,
    AMQP_10: NewAmqp,
    AMQP_10_SASL: NewAmqp,
}


@pytest.fixture
async def transport() -> FakeTransport:
    return FakeTransport()


def port(
    transport: FakeTransport, protocols: dict[bytes, Callable[[], FakeConnection]] = BOTH
) -> HeaderReader:
    AmqpPort(protocols).connection_made(transport)
    assert isinstance(transport.protocol, HeaderReader)
    return transport.protocol


def cuts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((data[:i], data[i:]) for i in range(len(data)))


@pytest.mark.parametrize(
    ("header", "kind"), [(AMQP_091, OldAmqp), (AMQP_10, NewAmqp), (AMQP_10_SASL, NewAmqp)]
)
async def test_the_header_decides_however_the_bytes_arrive(
    header: bytes, kind: type[FakeConnection]
) -> None:
    for first, second in cuts(header + b"more"):
        transport = FakeTransport()
        port(transport)
        for part in (first, second):
            if part:
                transport.protocol.data_received(part)  # type: ignore[attr-defined]
        assert isinstance(transport.protocol, kind)
        assert transport.protocol.transport is transport
        assert transport.protocol.received == header + b"more"
        assert not transport.is_closed


@pytest.mark.parametrize(
    ("sent", "answer", "words"),
    [
        pytest.param(b"AMQP\x01\x01\x00\x0a", AMQP_091, "no protocol", id="AMQP 0-10"),
        pytest.param(b"AMQP\x00\x01\x00\x01", AMQP_10, "no protocol", id="AMQP 1.0.1"),
        pytest.param(b"\x16\x03\x01\x02\x00", AMQP_091, "speaks TLS", id="TLS on a plain port"),
        pytest.param(b"GET / HTTP/1.1\r\n", AMQP_091, "speaks HTTP", id="HTTP"),
        pytest.param(b"\x10\x10\x00\x04MQTT", AMQP_091, "speaks MQTT", id="MQTT"),
        pytest.param(b"X", AMQP_091, "no protocol", id="one wrong byte is enough"),
    ],
)
async def test_a_stranger_hears_what_is_spoken_here_and_is_closed(
    transport: FakeTransport,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    answer: bytes,
    words: str,
) -> None:
    port(transport).data_received(sent)
    assert transport.written == answer
    assert transport.is_closed
    assert words in caplog.text
    assert isinstance(transport.protocol, Farewell)  # and no adapter


async def test_an_adapter_that_is_not_there_is_not_offered(transport: FakeTransport) -> None:
    port(transport, {AMQP_091: OldAmqp}).data_received(AMQP_10)
    assert transport.written == AMQP_091
    assert transport.is_closed


async def test_who_says_nothing_is_not_waited_for(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_port, "HEADER_SECONDS", 0.0)
    port(transport).data_received(b"AMQ")
    await until_turned(lambda: transport.is_closed)


async def test_who_spoke_in_time_is_left_alone(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_port, "HEADER_SECONDS", 0.0)
    port(transport).data_received(AMQP_091)
    await asyncio.sleep(0.001)  # a timer behind the header's, which is due before
    assert not transport.is_closed
