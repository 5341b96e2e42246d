"""MQTT over WebSocket: the upgrade, then an ordinary connection behind a transport that frames.

The MQTT connection does not know of it: its output leaves in binary frames, and the payload of
binary frames, however cut, is its input. Frames are taken in slices of the loop's time, and no more
of them while the MQTT connection reads no more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from protocols.graceful_close import part
from protocols.mqtt.connection import Connection as MqttConnection
from protocols.mqtt.context import Context
from protocols.mqtt.wire.websocket_codec import (
    MAX_REQUEST_BYTES,
    CloseCode,
    Opcode,
    Receiver,
    UpgradeRefused,
    WebSocketError,
    answer_upgrade,
    frame,
    packet_frames,
)
from protocols.null_transport import NO_TRANSPORT
from protocols.read_gate import ALL, BACKLOG, BUSY, ReadGate
from queue_core.access.auth import Peer
from queue_core.scheduler import scheduler

log = logging.getLogger(__name__)

END_OF_REQUEST: Final = b"\r\n\r\n"
SLICES_AT_ONCE: Final = 4  # the receiver takes so many before others get their turn
MOST_EARLY_FRAMES: Final = 64  # without payload, from a client that has not logged in


class Connection(asyncio.Protocol):
    """One connection, from its upgrade request on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._transport: asyncio.Transport = NO_TRANSPORT  # until `connection_made`
        self._request = b""
        self._receiver = Receiver()
        self._share = scheduler().share()  # the connection's share of the loop's time
        self._gate = ReadGate(NO_TRANSPORT)
        self._mqtt: MqttConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def guest(self) -> object:
        """The connection that logs in: the one inside, once there is one."""
        return self._mqtt or self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # streams have nothing else
        self._gate = ReadGate(self._transport, lambda: self._share.wait(self._go_on))
        self._timer = asyncio.get_running_loop().call_later(
            self._context.settings.connect_timeout, self._on_no_upgrade
        )

    def _on_no_upgrade(self) -> None:
        self._context.counters.refused_connections += 1
        host = Peer.described_by(self._transport.get_extra_info).host
        log.info("a client at %s has not asked for a WebSocket in time; closed", host)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._mqtt is None:
            self._request += data
            data = self._upgrade()
        if not data or self._mqtt is None:
            return
        if self._gate.is_open:
            self._receive(self._mqtt, data)
        else:
            self._receiver.keep(data)
            self._gate.shut(BACKLOG)

    def _upgrade(self) -> bytes:
        """Answers the request, once it is whole, and hands what follows it to an MQTT
        connection."""
        end = self._request.find(END_OF_REQUEST)
        if end < 0:
            if len(self._request) > MAX_REQUEST_BYTES:
                self._refuse(UpgradeRefused("431 Request Header Fields Too Large", "too long\n"))
            return b""
        request, rest = self._request[:end], self._request[end + len(END_OF_REQUEST) :]
        self._request = b""
        try:
            answer = answer_upgrade(request, self._context.settings.path, self._admits)
        except UpgradeRefused as refused:
            self._refuse(refused)
            return b""
        self._transport.write(answer)
        if self._timer is not None:
            self._timer.cancel()
        self._mqtt = MqttConnection(self._context)
        self._mqtt.connection_made(FramingTransport(self._transport, self._gate))
        return rest

    def _admits(self, origin: str | None, host: str | None) -> bool:
        peer = Peer.described_by(self._transport.get_extra_info)
        return self._context.settings.origins.admit(origin, host, peer)

    def _refuse(self, refused: UpgradeRefused) -> None:
        self._context.counters.refused_connections += 1
        log.info("WebSocket upgrade refused: %s", str(refused).strip())
        self._transport.write(refused.answer)
        part(self._transport, is_stranger=True)

    # --- frames

    def _receive(self, mqtt: MqttConnection, data: bytes) -> None:
        """Takes frames as far as the loop's time and the MQTT connection allow."""
        receiver, share = self._receiver, self._share
        share.is_known = mqtt.is_let_in
        for _ in range(SLICES_AT_ONCE):
            if self._gate.is_held or not share.begin():
                receiver.keep(data)
                break
            try:
                payload = self._payload(mqtt, data)
            except WebSocketError as error:
                self._fail(mqtt, error)
                return
            finally:
                share.end()
            if payload:
                mqtt.data_received(payload)
            self._answer(mqtt)
            if not receiver.is_unfinished or mqtt.has_parted:
                self._gate.open(BACKLOG)
                return
            data = b""
        self._gate.shut(BACKLOG)

    def _payload(self, mqtt: MqttConnection, data: bytes) -> bytes:
        """Returns the payload of some frames. Raises WebSocketError."""
        payload = self._receiver.receive(data)
        if self._receiver.idle_frames > MOST_EARLY_FRAMES and not mqtt.is_let_in:
            self._context.counters.early_floods += 1
            why = f"more than {MOST_EARLY_FRAMES} frames that carry nothing, before the login"
            raise WebSocketError(CloseCode.POLICY_VIOLATION, why)
        return payload

    def _answer(self, mqtt: MqttConnection) -> None:
        receiver = self._receiver
        answers = b"".join(receiver.answers)
        receiver.answers.clear()
        if receiver.is_closed:
            self._end(mqtt, answers)
        elif answers and not mqtt.has_parted:
            self._transport.write(answers)
            mqtt.hold_back_if_unread()

    def _end(self, mqtt: MqttConnection, last: bytes) -> None:
        """Ends the WebSocket, and with it the connection that it carried."""
        if not mqtt.has_parted:
            self._transport.write(last)
            mqtt.lose_transport()
        self._gate.ignore(ALL)
        part(self._transport, is_stranger=not mqtt.is_let_in)

    def _fail(self, mqtt: MqttConnection, error: WebSocketError) -> None:
        self._context.counters.protocol_errors += 1
        log.info("WebSocket ends: %s", error)
        self._end(mqtt, frame(Opcode.CLOSE, error.code.to_bytes(2, "big")))

    def _go_on(self) -> None:
        """Handles what has come already, unless the MQTT connection reads no more."""
        if self._mqtt is not None and not self._mqtt.has_parted and not self._gate.is_held:
            self._receive(self._mqtt, b"")

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._share.close()
        self._gate.close()
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
            part(self._transport, is_stranger=True)


class FramingTransport(asyncio.Transport):
    """A transport whose writes are whole MQTT packets, which leave in one write with a frame around
    each, and which is read through a gate."""

    def __init__(self, inner: asyncio.Transport, gate: ReadGate) -> None:
        super().__init__()
        self._inner = inner
        self._has_ended = False  # the Close frame is out
        self._gate = gate

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(packet_frames(bytes(data)))

    def close(self) -> None:
        self._send_close()
        self._inner.close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Says by a Close frame that the WebSocket ends, over TLS, too."""
        self._send_close()
        if self._inner.can_write_eof():
            self._inner.write_eof()

    def _send_close(self) -> None:
        if not self._has_ended and not self.is_closing():
            self._has_ended = True
            self._inner.write(frame(Opcode.CLOSE, CloseCode.NORMAL.to_bytes(2, "big")))

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hands the transport over. The new protocol hears everything: frames that were put off are
        thrown away."""
        self._gate.ignore(ALL)
        self._inner.set_protocol(protocol)

    def abort(self) -> None:
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        self._gate.shut(BUSY)

    def resume_reading(self) -> None:
        self._gate.open(BUSY)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)
