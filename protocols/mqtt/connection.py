"""One MQTT connection on asyncio: bytes in, bytes out, time, and pressure from both sides.

Thin: rules live in the machine and the client. Everything that a chunk brings is handled in one go,
and everything that is to be sent leaves in one write at the end of the loop's turn. While something
takes time (CONNECT, SUBSCRIBE), the rest of the input waits, in order, and the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from protocols.mqtt.broker import Broker, Services
from protocols.mqtt.client import ROOM_FOR_REASONS, Client
from protocols.mqtt.codec import decode, split
from protocols.mqtt.connect_codec import version_of
from protocols.mqtt.encoder import encode
from protocols.mqtt.handshake import Accepted, Opening, Refused
from protocols.mqtt.hot import take_hot
from protocols.mqtt.login import ByMethod
from protocols.mqtt.machine import RECEIVED, State, step
from protocols.mqtt.mistakes import CONNECT_HEAD, mistake
from protocols.mqtt.packets import Auth, ConnAck, Connect, Disconnect, Packet, Version
from protocols.mqtt.property_set import NO_PROPERTIES, PropertySet
from protocols.mqtt.reasons import (
    PASSING_TROUBLE,
    RETURN_CODES,
    MqttError,
    ReasonCode,
    connack_reason,
    disconnect_reason,
    violation,
)
from protocols.mqtt.settings import Settings
from queue_core.auth import Identity, Peer

log = logging.getLogger(__name__)

MAX_CONNECT: Final = 512 * 1024  # bytes of a CONNECT: its fields cannot sensibly be larger
MANY_FRAMES: Final = 512  # to be sent: more than these do not wait for the end of the turn
MOST_UNREAD: Final = 4 * 1024 * 1024  # bytes of answers that a client leaves lying
LINGER: Final = 5.0  # seconds for the peer to take the last bytes
MANY_PARTS: Final = 64
MOST_OF_A_NAME: Final = 80  # characters of what a client calls itself, before it is let in
PACKETS_A_TURN: Final = 1000  # through the codec, before others get their turn

_brokers: WeakKeyDictionary[Services, Broker] = WeakKeyDictionary()


def broker_of(services: Services, settings: Settings) -> Broker:
    """One broker for all connections on the same services."""
    broker = _brokers.get(services)
    if broker is None:
        broker = _brokers[services] = Broker(services, settings)
        broker.start()
    return broker


class Connection(asyncio.Protocol):
    """Implements `ClientLink`."""

    __slots__ = (
        "_broker",
        "_by_method",
        "_client",
        "_connect",
        "_heard",
        "_identity",
        "_is_busy",
        "_is_flushing",
        "_is_reading",
        "_is_writable",
        "_keep_alive",
        "_limit",
        "_loop",
        "_needed",
        "_opening",
        "_parts",
        "_size",
        "_state",
        "_timer",
        "_transport",
        "_version",
        "out",
    )

    def __init__(self, services: Services | Broker, settings: Settings | None = None) -> None:
        if isinstance(services, Broker):
            self._broker = services
        else:
            self._broker = broker_of(services, settings or Settings())
        self.out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._state = State.AWAITING_CONNECT
        self._version: int = Version.V5
        self._client: Client | None = None
        self._identity: Identity | None = None
        self._connect: Connect | None = None
        self._opening: Opening | None = None  # between CONNECT and CONNACK
        self._by_method: ByMethod | None = None  # how it showed who it is, to show it again
        self._limit = min(MAX_CONNECT, self._broker.settings.max_message_size)
        self._parts: list[bytes] = []  # of a packet that is not all here
        self._size = 0
        self._needed = 0  # bytes that the first packet in `_parts` has, as far as is known
        self._is_busy = False
        self._is_reading = True
        self._is_writable = True
        self._is_flushing = False
        self._heard = 0.0
        self._keep_alive = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # streams have nothing else
        transport = self._transport
        transport.set_write_buffer_limits(high=self._broker.settings.write_buffer_bytes)
        self._broker.connections.add(self)
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(
            self._broker.settings.connect_timeout, self._on_no_connect
        )

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._broker.counters.bytes_received += len(data)
        if self._is_busy or self._parts:
            self._parts.append(data)
            self._size += len(data)
            if self._is_busy or self._size < self._needed:
                if len(self._parts) > MANY_PARTS:
                    self._parts = [b"".join(self._parts)]
                return
            data = b"".join(self._parts)
            self._parts = []
        self._take(data)

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self._state = State.CLOSED
        self._broker.connections.discard(self)
        self._broker.services.auth.let_go(self)
        self._parts = []
        self.out.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._client is not None:
            self._client.end(is_clean=False)

    def pause_writing(self) -> None:
        self._is_writable = False
        if self._client is not None:
            self._client.pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._client is not None and not self._client.is_closed:
            self._client.resume()
        self._read_on()

    # --- input

    def _take(self, data: bytes) -> None:
        """Everything that is whole; the rest is kept."""
        try:
            position = self._parse(data)
        except MqttError as error:
            self._on_violation(error, data)
            return
        except Exception:
            log.exception("a bug: this connection ends")
            self.fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")
            return
        if position < len(data) and self._state is not State.CLOSED:
            rest = data[position:] if position else data
            if self._state is State.AWAITING_CONNECT and rest[0] != CONNECT_HEAD:
                # The rest of it may never come: a client of another protocol waits for us.
                self._on_violation(violation("the first packet is no CONNECT"), data)
                return
            self._parts.insert(0, rest)
            self._size = len(rest)
            self._needed = needed_for(rest)
        else:
            self._size = self._needed = 0

    def _parse(self, data: bytes) -> int:
        position, size, packets = 0, len(data), 0
        client = self._client
        if client is not None:
            client.publishing.begin_chunk()
        while position < size and not self._is_busy and self._state is not State.CLOSED:
            if client is not None:
                position = take_hot(
                    client.publishing, client.deliverer, data, position, self._limit
                )
                if client.publishing.is_tired:
                    self.defer(asyncio.sleep(0))
                    break
            frame = split(data, position, self._limit)
            if frame is None:
                break
            packets += 1
            if packets > PACKETS_A_TURN:
                self.defer(asyncio.sleep(0))
                break
            packet = decode(frame.head, data[frame.start : frame.end], self._version)
            position = frame.end
            self._state = step(RECEIVED, self._state, packet)
            if client is not None:
                client.receive(packet)
            else:
                self._receive_early(packet)
        if client is not None and not client.is_closed:
            client.publishing.end_of_chunk()
            client.deliverer.end_of_chunk()
            self._hold_back_if_needed(client)
        return position

    def _receive_early(self, packet: Packet) -> None:
        """Before CONNACK."""
        if isinstance(packet, Connect):
            self._version = packet.version
            self._connect = replace(packet, password=None, will=None)  # nobody needs them again
            self.defer(self._open(packet))
        elif isinstance(packet, Auth):
            self.defer(self._go_on_opening(packet))
        else:  # DISCONNECT of a client that does not like our AUTH
            self.close()

    def _hold_back_if_needed(self, client: Client) -> None:
        """The disk, the workers or the client itself is behind: it is not read until they are
        not."""
        if self._is_busy:
            return
        fan_out = self._broker.fan_out
        if client.publishing.vhost.writer.is_congested:
            self.defer(client.publishing.vhost.writer.uncongested())
        elif fan_out is not None and fan_out.worker(client.publishing.client_id).is_full:
            self.defer(fan_out.worker(client.publishing.client_id).room())
        elif client.publishing.inbound.is_long:
            self.defer(client.publishing.vhost.writer.flushed())
        elif (laggard := client.publishing.laggard()) is not None:
            self.defer(laggard.catch_up())
        else:
            self.hold_back_if_unread()

    def hold_back_if_unread(self) -> None:
        """Who does not take our answers is not asked for more to be answered."""
        if not self._is_writable and self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._stop_reading()

    def defer(self, work: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._stop_reading()
        self._broker.spawn(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MqttError as error:
            self.fail(error.reason, str(error))
        except Exception:
            log.exception("a bug: this connection ends")
            self.fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        self._is_busy = False
        if self._state is State.CLOSED:
            return
        if self._parts:
            data = b"".join(self._parts)
            self._parts = []
            self._take(data)
        self._read_on()

    def _stop_reading(self) -> None:
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if not self._is_reading and not self._is_busy and not self._transport.is_closing():
            self._is_reading = True
            self._heard = self._loop.time()  # what it said meanwhile is yet to be read
            self._transport.resume_reading()

    # --- CONNECT

    async def _open(self, connect: Connect) -> None:
        peer = Peer.described_by(self._transport.get_extra_info)
        try:
            self._opening = Opening(self._broker, self, connect, peer)
            answer = await self._opening.begin()
        except Refused as refused:
            self._refuse(refused)
            return
        await self._answer_opening(answer)

    async def _go_on_opening(self, packet: Auth) -> None:
        assert self._opening is not None
        try:
            answer = await self._opening.go_on(packet)
        except Refused as refused:
            self._refuse(refused)
            return
        await self._answer_opening(answer)

    def _refuse(self, refused: Refused) -> None:
        self._opening = None
        self._broker.counters.refused_connections += 1
        self.fail(refused.reason, str(refused))

    async def _answer_opening(self, answer: Accepted | Auth) -> None:
        if isinstance(answer, Auth):
            if self._state is not State.CLOSED:
                self._state = State.AUTHENTICATING
                self._send_auth(answer)
            return
        opening, self._opening = self._opening, None
        client = answer.client
        if self._state is State.CLOSED:  # it did not wait for the answer
            client.end(is_clean=False)
            return
        self._broker.counters.connections += 1
        self._client = client
        self._identity = answer.identity
        vhost = client.session.vhost.name
        self._broker.services.auth.let_in(self, answer.identity, vhost)
        self._by_method = None if opening is None else opening.by_method
        self._state = State.CONNECTED
        self._limit = self._broker.settings.max_message_size
        self._send(answer.answer)
        self._watch(answer.keep_alive)
        if not self._is_writable:
            client.pause()
        await client.start()

    async def authenticate(self, packet: Auth) -> None:
        """Again, by the same method and as the same user [MQTT-4.12.1-1]."""
        if self._by_method is None:  # [MQTT-4.12.0-7]
            raise violation("AUTH of a client whose CONNECT named no authentication method")
        assert self._identity is not None
        self._send_auth(await self._by_method.again(packet, self._identity))

    def _send_auth(self, packet: Auth) -> None:
        if not self._fits(packet):
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "an AUTH does not fit into a packet")
        self._send(packet)

    # --- time

    def _on_no_connect(self) -> None:
        self._timer = None
        if self._state is State.AWAITING_CONNECT or self._client is None:
            self._broker.counters.refused_connections += 1
            log.info("%s has not connected in time; closed", self._who())
            self._transport.abort()

    def _watch(self, keep_alive: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep_alive = keep_alive * 1.5
        if keep_alive:
            self._timer = self._loop.call_later(self._keep_alive, self._on_silence)

    def _on_silence(self) -> None:
        """One and a half times the keep alive without a packet ends it [MQTT-3.1.2-22]."""
        left = self._heard + self._keep_alive - self._loop.time()
        if left > 0 or not self._is_reading:  # while we do not read, it cannot be heard
            self._timer = self._loop.call_later(max(left, 1.0), self._on_silence)
            return
        self._timer = None
        self._broker.counters.keep_alive_timeouts += 1
        self.fail(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long")

    # --- output

    def flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def flush_if_large(self) -> None:
        if len(self.out) > MANY_FRAMES:
            self._write()

    def _flush(self) -> None:
        self._is_flushing = False
        self._write()

    def _write(self) -> None:
        out = self.out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if not self._transport.is_closing():
            self._broker.counters.bytes_sent += len(data)
            self._transport.write(data)

    def _asked_size(self) -> int | None:
        return None if self._connect is None else self._connect.properties.maximum_packet_size

    def _fits(self, packet: Packet) -> bool:
        """Into the client's packets [MQTT-3.1.2-24]."""
        most = self._asked_size()
        return most is None or len(encode(packet, self._version)) <= most

    def _send(self, packet: Packet) -> None:
        if not self.out:
            self.flush_soon()
        self.out.append(encode(packet, self._version))

    # --- the end

    def _on_violation(self, error: MqttError, data: bytes) -> None:
        self._broker.counters.protocol_errors += 1
        if self._state is State.AWAITING_CONNECT:
            self._refuse_first(error, data)
            return
        self.fail(error.reason, str(error))

    def _refuse_first(self, error: MqttError, data: bytes) -> None:
        """What came first is no good CONNECT. Whoever speaks some MQTT hears why."""
        try:
            frame = split(data, 0, MAX_CONNECT)
        except MqttError:
            frame = None
        named = version_of(data[frame.start : frame.end]) if frame and frame.head == 0x10 else 0
        self._version = min(named, Version.V5) if named else 0
        is_known = self._version >= Version.V31
        has_code = self._version == Version.V5 or error.reason in RETURN_CODES
        if is_known and has_code:
            self.fail(error.reason, str(error))
        else:
            self._log_end(error.reason, mistake(data) or str(error))
            self.close()

    def fail(self, reason: ReasonCode, text: str) -> None:
        """Says why, where the version has words for it, and ends the connection."""
        if self._state is State.CLOSED and self._transport.is_closing():
            return
        self._log_end(reason, text)
        is_new = self._client is None
        if self._version == Version.V5:
            told, properties = self._last_words(reason, text)
            self._send_last(
                ConnAck(False, connack_reason(told), properties)
                if is_new
                else Disconnect(disconnect_reason(told), properties)
            )
        elif is_new and reason in RETURN_CODES:
            self._send(ConnAck(False, RETURN_CODES[reason]))
        self.close()

    def _send_last(self, packet: ConnAck | Disconnect) -> None:
        """A client may take so little that even this is too much: then the end says it all."""
        if self._fits(packet):
            self._send(packet)

    def _last_words(self, reason: ReasonCode, text: str) -> tuple[ReasonCode, PropertySet]:
        """The code and the properties of a 5.0 goodbye. Whoever this gateway cannot serve now hears
        of the one that can, where the operator named it (section 4.11)."""
        if (self._asked_size() or ROOM_FOR_REASONS) < ROOM_FOR_REASONS:  # [MQTT-3.2.2-19]
            return reason, NO_PROPERTIES
        reference = self._broker.settings.server_reference if reason in PASSING_TROUBLE else None
        told = reason if reference is None else ReasonCode.USE_ANOTHER_SERVER
        return told, PropertySet(reason_string=text[:1024], server_reference=reference)

    def _log_end(self, reason: ReasonCode, text: str) -> None:
        log.info("connection of %s ends: %s (0x%02X)", self._who(), text, reason)

    def _who(self) -> str:
        """For the log: by what it can be found."""
        host = Peer.described_by(self._transport.get_extra_info).host
        if self._client is not None:
            return f"'{self._client.session.client_id}' at {host}"
        asked = "" if self._connect is None else self._connect.client_id
        return f"'{asked[:MOST_OF_A_NAME]}' at {host}" if asked else f"a client at {host}"

    def shut_down(self, reason: str) -> None:
        """The gateway says goodbye. Wills stay as they are for a lost connection."""
        self.fail(ReasonCode.SERVER_SHUTTING_DOWN, reason)

    def expel(self, reason: str) -> None:
        """The user may not be here any more."""
        self.fail(ReasonCode.NOT_AUTHORIZED, reason)

    def review(self) -> None:
        """Permissions have changed."""
        if self._client is not None and self._state is State.CONNECTED:
            self._client.review()

    def close(self) -> None:
        """Sends what is to be sent, and no more."""
        self._state = State.CLOSED
        if self._client is not None:
            self._client.end(is_clean=False)
        self._write()
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(LINGER, self._abort)

    def _abort(self) -> None:
        self._transport.abort()


def needed_for(rest: bytes) -> int:
    """How many bytes the packet that begins here has; one more than are here if that is not
    known."""
    length = shift = 0
    for at in range(1, min(len(rest), 5)):
        length |= (rest[at] & 0x7F) << shift
        if rest[at] < 0x80:
            return at + 1 + length
        shift += 7
    return len(rest) + 1
