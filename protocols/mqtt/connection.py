"""One MQTT connection on asyncio: bytes in, bytes out, time, and pressure from both sides.

Thin: rules live in the machine and the client. A chunk is handled in slices of the loop's time, and
what is to be sent leaves in one write at the end of a turn. While something takes time (CONNECT),
or others have their turn, the rest of the input waits, in order, and the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from protocols.farewell import part
from protocols.memory_share import MemoryShare
from protocols.mqtt.client import Client
from protocols.mqtt.context import Context
from protocols.mqtt.last_packet import last_words
from protocols.mqtt.opening.handshake import Accepted, Opening, Refused
from protocols.mqtt.opening.login import ByMethod, LoginRefused
from protocols.mqtt.opening.wrong_protocol import mistake, named_version
from protocols.mqtt.output import Output
from protocols.mqtt.publish.fast_path import take_hot
from protocols.mqtt.publish.held_input import MOST_HELD_BYTES, HeldInput
from protocols.mqtt.publish.obstacles import obstacle
from protocols.mqtt.states import RECEIVED, State, step
from protocols.mqtt.subscribe.follow_ups import FollowUps
from protocols.mqtt.terms import Terms
from protocols.mqtt.wire.codec import decode, needed_for, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Auth, ConnAck, Connect, Packet, Version
from protocols.mqtt.wire.property_set import PacketType
from protocols.mqtt.wire.reasons import RETURN_CODES, MqttError, ReasonCode, violation
from protocols.read_gate import ALL, BACKLOG, BUSY, MEMORY, UNREAD, ReadGate
from queue_core.access.auth import Identity, Peer
from queue_core.scheduler import scheduler

log = logging.getLogger(__name__)

MAX_CONNECT: Final = 512 * 1024  # bytes of a CONNECT: its fields cannot sensibly be larger
LINGER: Final = 5.0  # seconds for the peer to take the last bytes
MANY_PARTS: Final = 64
MOST_OF_A_NAME: Final = 80  # characters of what a client calls itself, before it is let in
HEARD_BYTES: Final = 16 * 1024  # of a packet under way, that count as much as a whole one


class Connection(asyncio.Protocol):
    """Implements `ClientLink`."""

    __slots__ = (
        "_by_method",
        "_client",
        "_connect",
        "_context",
        "_follow_ups",
        "_gate",
        "_heard",
        "_held",
        "_identity",
        "_is_busy",
        "_is_flushing",
        "_is_writable",
        "_keep_alive",
        "_limit",
        "_loop",
        "_memory",
        "_needed",
        "_opening",
        "_parts",
        "_share",
        "_size",
        "_state",
        "_timer",
        "_transport",
        "_unheard",
        "_version",
        "_waiting",
        "has_parted",
        "output",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self.output = Output(self._flush_soon, self._write, self.unsent)
        self._loop = asyncio.get_running_loop()
        self._share = scheduler().share()  # of the loop's time
        self._transport: asyncio.Transport
        self._state = State.AWAITING_CONNECT
        self._version: int = Version.V5
        self._client: Client | None = None
        self._identity: Identity | None = None
        self._connect: Connect | None = None
        self._opening: Opening | None = None  # between CONNECT and CONNACK
        self._by_method: ByMethod | None = None  # how it showed who it is, to show it again
        self._limit = min(MAX_CONNECT, self._context.settings.max_message_size)
        self._parts: list[bytes] = []  # of a packet that is not all here
        self._size = 0
        self._needed = 0  # bytes that the first packet in `_parts` has, as far as is known
        self._is_busy = False
        self._held: HeldInput | None = None  # while subscribers of what it published are behind
        self._waiting: asyncio.Task[Any] | None = None  # for them
        self._follow_ups = FollowUps(self._context.spawn)
        self._gate: ReadGate
        self._is_writable = True
        self._is_flushing = False
        self.has_parted = False  # nothing is read or written any more
        self._memory = MemoryShare(self._context.services.memory, self)
        self._heard = 0.0
        self._unheard = 0  # bytes since then
        self._keep_alive = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio's side

    @property
    def awaits_us(self) -> bool:
        """Whether the client has asked for something, as to be let in, and gets its answer yet."""
        return self._is_busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # streams have nothing else
        self._gate = ReadGate(self._transport, lambda: self._share.wait(self._go_on))
        self._transport.set_write_buffer_limits(high=self._context.settings.write_buffer_bytes)
        self._context.connections.add(self)
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(
            self._context.settings.connect_timeout, self._on_no_connect
        )

    def data_received(self, data: bytes) -> None:
        self._context.counters.bytes_received += len(data)
        self._unheard += len(data)
        if self._unheard >= HEARD_BYTES:
            self._hear()
        if self._held is not None:
            self._held.add(data)
            if not self._gate.is_shut_for(BACKLOG):
                self._let_acknowledgements_pass(self._held)
            return
        is_busy = self._is_busy or self._gate.is_shut_for(BACKLOG)
        if is_busy or self._parts:
            self._parts.append(data)
            self._size += len(data)
            if is_busy or self._size < self._needed:
                if len(self._parts) > MANY_PARTS:
                    self._parts = [b"".join(self._parts)]
                return
            data = b"".join(self._parts)
            self._parts = []
        self._take(data)

    def _hear(self) -> None:
        """A whole packet [MQTT-3.1.2-22], or a good piece of one, is a sign of life."""
        self._heard = self._loop.time()
        self._unheard = 0

    def lose_transport(self) -> None:
        """What carries the connection is at its end, without a word of MQTT."""
        self.has_parted = True
        self._gate.ignore(ALL)
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._state = State.CLOSED
        self._context.connections.discard(self)
        self._context.services.auth.let_go(self)
        self._share.close()
        self._gate.close()
        self._drop_input()
        self.output.close()
        self._memory.end()
        self._watch(0)
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
        self._read_on(UNREAD)

    @property
    def is_let_in(self) -> bool:
        """The client has shown who it is."""
        return self._client is not None

    # --- input

    def _take(self, data: bytes) -> None:
        """Everything that is whole, as far as a slice of the loop's time goes; the rest is kept."""
        if not self._share.begin():
            self._parts.insert(0, data)
            self._gate.shut(BACKLOG)
            return
        try:
            position = self._parse(data)
        except Exception as error:
            self._end_by(error, data)
            return
        finally:
            self._share.end()
        if position:
            self._hear()
        if position < len(data) and self._state is not State.CLOSED:
            rest = data[position:] if position else data
            if self._state is State.AWAITING_CONNECT and rest[0] >> 4 != PacketType.CONNECT:
                # The rest of it may never come: a client of another protocol waits for us.
                self._on_violation(violation("the first packet is no CONNECT"), data)
                return
            self._parts.insert(0, rest)
            self._size = len(rest)
            self._needed = needed_for(rest)
            self._memory.expect(self._needed if self._needed > len(rest) else 0)
        else:
            self._size = self._needed = 0
            self._memory.expect(0)
        if self._held is not None:
            parts, self._parts = self._parts, []
            self._held.add(b"".join(parts))
            self._let_acknowledgements_pass(self._held)

    def _parse(self, data: bytes) -> int:
        position, size, is_over = 0, len(data), False
        client, share = self._client, self._share
        submitted, received = 0, self._context.counters.messages_received
        if client is not None:
            submitted = client.publishing.vhost.writer.submitted
            client.publishing.begin_chunk()
        while position < size and not self._is_busy and self._state is not State.CLOSED:
            if client is not None and not self._follow_ups:
                position = take_hot(
                    client.publishing, client.deliverer, data, position, self._limit
                )
                if client.publishing.pressed or client.publishing.must_wait:
                    break
                if client.publishing.is_tired:
                    if is_over := share.is_over():
                        break
                    continue
            frame = split(data, position, self._limit)
            if frame is None:
                break
            if self._follow_ups and not self._follow_ups.may_overtake(frame.head):
                self.defer(self._follow_ups.done())
                break
            packet = decode(frame.head, data[frame.start : frame.end], self._version)
            position = frame.end
            self._state = step(RECEIVED, self._state, packet)
            if client is not None:
                client.receive(packet)
            else:
                self._receive_early(packet)
            if is_over := share.is_over():
                break
        if client is not None and not client.is_closed:
            client.publishing.end_of_chunk()
            client.deliverer.end_of_chunk()
            if self._context.counters.messages_received != received:
                self._memory.hold_if_short()
            if client.publishing.is_async:
                self._write()  # answers leave before their fan-out begins
            self._hold_back_if_needed(client, submitted)
        if is_over and not self._is_busy and self._state is not State.CLOSED:
            self._gate.shut(BACKLOG)
        else:
            self._read_on(BACKLOG)
        return position

    def _go_on(self) -> None:
        """What has come already has its turn, unless something else is in the way by now."""
        if self._state is State.CLOSED or self._gate.is_held:
            return
        if self._held is not None:
            self._let_acknowledgements_pass(self._held)
        else:
            parts, self._parts = self._parts, []
            self._take(b"".join(parts))

    def _let_acknowledgements_pass(self, held: HeldInput) -> None:
        """Takes them out of what waits, as far as a slice of the loop's time goes."""
        assert self._client is not None
        if not self._share.begin():
            self._gate.shut(BACKLOG)
            return
        before = held.packets
        try:
            is_all = held.pass_on(self._client, self._version, self._limit, self._share)
        except Exception as error:
            self._end_by(error)
            return
        finally:
            self._share.end()
        if held.packets != before:
            self._hear()
        if not is_all:
            self._gate.shut(BACKLOG)
            return
        self._memory.expect(max(self._needed, held.size))
        if held.size > MOST_HELD_BYTES:
            self._gate.shut(BUSY)
        self._read_on(BACKLOG)

    def _end_by(self, error: Exception, data: bytes = b"") -> None:
        """What came, in `data`, is against the protocol, or brought a bug to light."""
        if isinstance(error, MqttError):
            self._on_violation(error, data)
        else:
            log.error("a bug: this connection ends", exc_info=error)
            self.fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")

    def _receive_early(self, packet: Packet) -> None:
        """Before CONNACK."""
        if isinstance(packet, Connect):
            self._version = packet.version
            self._connect = replace(packet, password=None, will=None)  # nobody needs them again
        if isinstance(packet, Connect | Auth):
            self.defer(self._open(packet))
        else:  # DISCONNECT of a client that does not like our AUTH
            self.close()

    def _hold_back_if_needed(self, client: Client, submitted: int) -> None:
        """Who has brought more than others can take is not read until they can."""
        if self._is_busy:
            return
        found = obstacle(client.publishing, submitted)
        if found is None:
            self.hold_back_if_unread()
        elif found.is_subscriber:
            self._context.counters.held_publishers += found.is_full_queue
            self._wait(found.wait)
        else:
            self.defer(found.wait())

    def hold_back_if_unread(self) -> None:
        """Who does not take our answers is not asked for more to be answered."""
        most = self._context.settings.write_buffer_bytes
        if not self._is_writable and self._transport.get_write_buffer_size() > most:
            self._gate.shut(UNREAD)

    # --- memory: implements `Holder`

    def on_short(self) -> None:
        self._gate.shut(MEMORY)

    def on_room(self) -> None:
        self._read_on(MEMORY)

    def received_bytes(self) -> int:
        return self._size

    def is_read(self) -> bool:
        return self._gate.is_open and not self._is_busy

    def unsent(self) -> int:
        """Bytes that the client's socket has not taken yet."""
        return self._transport.get_write_buffer_size()

    unsent_bytes = unsent

    def relieve(self, reason: str) -> None:
        self.fail(ReasonCode.QUOTA_EXCEEDED, reason)

    def defer(self, work: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._gate.shut(BUSY)
        self._context.spawn(self._run(lambda: work))

    def _wait(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Handles nothing but acknowledgements until the subscribers have room again."""
        self._is_busy = True
        self._held = HeldInput()
        self._waiting = self._context.spawn(self._run(work))

    def follow_up(self, work: Coroutine[Any, Any, None]) -> None:
        self._follow_ups.add(self._attempt(work))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._attempt(work())
        self._is_busy = False
        held, self._held = self._held, None
        if held is not None and held.size:
            self._parts = [held.rest()]
            self._size = held.size
        if self._parts:
            self._gate.shut(BACKLOG)
        self._read_on(BUSY)

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MqttError as error:
            self.fail(error.reason, str(error), is_said=isinstance(error, LoginRefused))
        except Exception as error:
            self._end_by(error)

    def _read_on(self, reason: int) -> None:
        """One reason not to read is gone."""
        if self._gate.open(reason):
            self._heard = self._loop.time()  # what it said meanwhile is yet to be read

    # --- CONNECT

    async def _open(self, packet: Connect | Auth) -> None:
        """One step of it: CONNECT, or an AUTH that its method asked for."""
        try:
            if isinstance(packet, Connect):
                peer = Peer.described_by(self._transport.get_extra_info)
                self._opening = Opening(self._context, packet, peer)
                answer = await self._opening.begin()
            else:
                assert self._opening is not None
                answer = await self._opening.go_on(packet)
        except Refused as refused:
            self._opening = None
            self._context.counters.refused_connections += 1
            self.fail(refused.reason, str(refused), is_said=refused.is_said)
            return
        await self._answer_opening(answer)

    async def _answer_opening(self, answer: Accepted | Auth) -> None:
        if isinstance(answer, Auth):
            if self._state is not State.CLOSED:
                self._state = State.AUTHENTICATING
                self._send_auth(answer)
            return
        opening, self._opening = self._opening, None
        client = self._client_of(answer)
        if self._state is State.CLOSED:  # it did not wait for the answer
            client.end(is_clean=False)
            return
        self._context.counters.connections += 1
        self._client = client
        self._share.is_known = True
        self._identity = answer.identity
        vhost = client.session.vhost.name
        self._context.services.auth.let_in(self, answer.identity, vhost)
        self._by_method = None if opening is None else opening.by_method
        self._state = State.CONNECTED
        self._limit = self._context.settings.max_message_size
        self._send(answer.answer)
        self._watch(answer.keep_alive)
        if not self._is_writable:
            client.pause()
        await client.start()

    def _client_of(self, accepted: Accepted) -> Client:
        terms = Terms(
            self._context,
            accepted.session,
            accepted.identity,
            Peer.described_by(self._transport.get_extra_info).address,
            accepted.agreement,
            self.output,
            self,
        )
        client = Client(terms, self)
        accepted.session.owner = client
        return client

    async def authenticate(self, packet: Auth) -> None:
        """Again, by the same method and as the same user [MQTT-4.12.1-1]."""
        if self._by_method is None:  # [MQTT-4.12.0-7]
            raise violation("AUTH of a client whose CONNECT named no authentication method")
        assert self._identity is not None
        self._send_auth(await self._by_method.again(packet, self._identity))

    def _send_auth(self, packet: Auth) -> None:
        most = self._asked_size()
        if most is not None and len(encode(packet, self._version)) > most:  # [MQTT-3.1.2-24]
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "an AUTH does not fit into a packet")
        self._send(packet)

    # --- time

    def _on_no_connect(self) -> None:
        self._timer = None
        if self._state is State.AWAITING_CONNECT or self._client is None:
            self._context.counters.refused_connections += 1
            log.info("%s has not connected in time; closed", self.who())
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
        if left > 0 or not self._gate.is_open:  # while we do not read, it cannot be heard
            self._timer = self._loop.call_later(max(left, 1.0), self._on_silence)
            return
        self._timer = None
        self._context.counters.keep_alive_timeouts += 1
        self.fail(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long")

    # --- output

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._write()

    def _write(self) -> None:
        out = self.output.pieces
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        if not self.has_parted and not self._transport.is_closing():
            self._context.counters.bytes_sent += len(data)
            self._memory.write(self._transport, data, out)
        out.clear()

    def _asked_size(self) -> int | None:
        return None if self._connect is None else self._connect.properties.maximum_packet_size

    def _send(self, packet: Packet) -> None:
        self.output.put(encode(packet, self._version))

    # --- the end

    def _on_violation(self, error: MqttError, data: bytes) -> None:
        self._context.counters.protocol_errors += 1
        if self._state is State.AWAITING_CONNECT:
            self._refuse_first(error, data)
            return
        self.fail(error.reason, str(error))

    def _refuse_first(self, error: MqttError, data: bytes) -> None:
        """What came first is no good CONNECT. Whoever speaks some MQTT hears why."""
        self._version = min(named_version(data, MAX_CONNECT), Version.V5)
        has_code = self._version >= Version.V31 and error.reason in RETURN_CODES
        if has_code or self._version == Version.V5:
            self.fail(error.reason, str(error))
        else:
            self._log_end(error.reason, mistake(data) or str(error))
            self.close()

    def fail(self, reason: ReasonCode, text: str, *, is_said: bool = False) -> None:
        """Says why, where the version has words for it, and ends the connection. `is_said`: the log
        has it already."""
        if self._state is State.CLOSED and (self.has_parted or self._transport.is_closing()):
            return
        self._log_end(reason, text, is_said=is_said)
        is_new = self._client is None
        if self._version == Version.V5:
            asked, settings = self._asked_size(), self._context.settings
            words = last_words(reason, text, settings, is_new=is_new, asked_size=asked)
            if words is not None:
                self._send(words)
        elif is_new and reason in RETURN_CODES:
            self._send(ConnAck(False, RETURN_CODES[reason]))
        self.close()

    def _log_end(self, reason: ReasonCode, text: str, *, is_said: bool = False) -> None:
        is_usual = is_said or reason is ReasonCode.SESSION_TAKEN_OVER
        level = logging.DEBUG if is_usual else logging.INFO
        log.log(level, "connection of %s ends: %s (0x%02X)", self.who(), text, reason)

    def who(self) -> str:
        """For the log: by what it can be found."""
        host = Peer.described_by(self._transport.get_extra_info).host
        asked = "" if self._connect is None else self._connect.client_id[:MOST_OF_A_NAME]
        name = asked if self._client is None else self._client.session.client_id
        return f"'{name}' at {host}" if name else f"a client at {host}"

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

    def _drop_input(self) -> None:
        """Nothing more is handled, and no subscriber is waited for: none is to end for it."""
        self._parts, self._held = [], None
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def close(self) -> None:
        """Sends what is to be sent, and no more."""
        self._state = State.CLOSED
        self._drop_input()
        if self._client is not None:
            self._client.end(is_clean=False)
        self._write()
        if not self.has_parted and not self._transport.is_closing():
            self.has_parted = True
            self._gate.ignore(ALL)
            part(self._transport, LINGER, is_stranger=not self.is_let_in)
