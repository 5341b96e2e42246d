"""MQTT over WebSocket: the upgrade, then an ordinary connection behind a transport that frames.

The MQTT connection does not know: what it writes leaves in binary frames, and what comes in binary
frames, however cut, is its input.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from protocols.mqtt.broker import Broker, Services
from protocols.mqtt.connection import Connection as MqttConnection
from protocols.mqtt.connection import broker_of
from protocols.mqtt.settings import Settings
from protocols.mqtt.websocket_codec import (
    MAX_REQUEST,
    CloseCode,
    Opcode,
    Receiver,
    UpgradeRefused,
    WebSocketError,
    answer_upgrade,
    frame,
    packet_frames,
)
from queue_core.auth import Peer

log = logging.getLogger(__name__)

END_OF_REQUEST: Final = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection, from its upgrade request on."""

    def __init__(self, services: Services | Broker, settings: Settings | None = None) -> None:
        if isinstance(services, Broker):
            self._broker = services
        else:
            self._broker = broker_of(services, settings or Settings())
        self._transport: asyncio.Transport
        self._request = b""
        self._receiver = Receiver()
        self._mqtt: MqttConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # streams have nothing else
        self._timer = asyncio.get_running_loop().call_later(
            self._broker.settings.connect_timeout, self._on_no_upgrade
        )

    def _on_no_upgrade(self) -> None:
        self._broker.counters.refused_connections += 1
        host = Peer.described_by(self._transport.get_extra_info).host
        log.info("a client at %s has not asked for a WebSocket in time; closed", host)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._mqtt is None:
            self._request += data
            data = self._upgrade()
        if data and self._mqtt is not None:
            self._receive(self._mqtt, data)

    def _upgrade(self) -> bytes:
        """What follows the request, once it is whole and accepted."""
        end = self._request.find(END_OF_REQUEST)
        if end < 0:
            if len(self._request) > MAX_REQUEST:
                self._refuse(UpgradeRefused("431 Request Header Fields Too Large", "too long\n"))
            return b""
        request, rest = self._request[:end], self._request[end + len(END_OF_REQUEST) :]
        self._request = b""
        try:
            answer = answer_upgrade(request, self._broker.settings.path)
        except UpgradeRefused as refused:
            self._refuse(refused)
            return b""
        self._transport.write(answer)
        if self._timer is not None:
            self._timer.cancel()
        self._mqtt = MqttConnection(self._broker)
        self._mqtt.connection_made(FramingTransport(self._transport))
        return rest

    def _refuse(self, refused: UpgradeRefused) -> None:
        self._broker.counters.refused_connections += 1
        log.info("WebSocket upgrade refused: %s", str(refused).strip())
        self._transport.write(refused.answer)
        self._transport.close()

    def _receive(self, mqtt: MqttConnection, data: bytes) -> None:
        receiver = self._receiver
        try:
            payload = receiver.receive(data)
        except WebSocketError as error:
            self._broker.counters.protocol_errors += 1
            log.info("WebSocket ends: %s", error)
            self._transport.write(frame(Opcode.CLOSE, error.code.to_bytes(2, "big")))
            self._transport.close()
            return
        if payload:
            mqtt.data_received(payload)
        if receiver.answers and not self._transport.is_closing():
            self._transport.write(b"".join(receiver.answers))
            mqtt.hold_back_if_unread()
        receiver.answers.clear()
        if receiver.is_closed:
            self._transport.close()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._mqtt is not None:
            self._mqtt.connection_lost(error)

    def pause_writing(self) -> None:
        if self._mqtt is not None:
            self._mqtt.pause_writing()

    def resume_writing(self) -> None:
        if self._mqtt is not None:
            self._mqtt.resume_writing()

    def shut_down(self, reason: str) -> None:
        if self._mqtt is not None:
            self._mqtt.shut_down(reason)
        else:
            self._transport.close()


class FramingTransport(asyncio.Transport):
    """A transport whose every write is one binary frame."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(packet_frames(bytes(data)))

    def close(self) -> None:
        if not self._inner.is_closing():
            self._inner.write(frame(Opcode.CLOSE, CloseCode.NORMAL.to_bytes(2, "big")))
            self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)
