"""One MQTT connection without its socket: bytes in, packets and commands out. No clock.

    receive(data, is_over)   handles what is whole; a command, if something must be waited for
    keep(data)               adds to what waits, and handles nothing
    perform(), proceed()     carry that command out, and go on behind it
    output                   the packets to send

Which packet may come when is a table in `states`; what a packet of a connected client sets going is
told in `client`. PUBLISH and acknowledgements, which come by the hundred thousand, are handled in
place in the chunk, by `take_hot`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from protocols.connection_report import ConnectionReport, ConnectionState
from protocols.mqtt.client import Client
from protocols.mqtt.context import Context
from protocols.mqtt.negotiated_terms import Terms
from protocols.mqtt.opening.handshake import Accepted, Opening, Refused
from protocols.mqtt.opening.login import ByMethod, LoginRefused
from protocols.mqtt.opening.wrong_protocol import mistake, named_version
from protocols.mqtt.output import Output
from protocols.mqtt.publish.fast_path import take_hot
from protocols.mqtt.publish.held_input import MOST_HELD_BYTES, HeldInput
from protocols.mqtt.publish.publisher_waits import obstacle
from protocols.mqtt.reports import mechanism_of, report_on
from protocols.mqtt.server_disconnect import last_words
from protocols.mqtt.states import RECEIVED, State, step
from protocols.mqtt.subscribe.pending_writes import PendingWrites
from protocols.mqtt.wire.codec import decode, needed_for, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Auth, ConnAck, Connect, Packet, Version
from protocols.mqtt.wire.property_set import PacketType
from protocols.mqtt.wire.reasons import RETURN_CODES, MqttError, ReasonCode, violation
from protocols.partial_input import add_piece
from queue_core.access.auth import Identity, Peer

log = logging.getLogger(__name__)

MAX_CONNECT_BYTES: Final = 512 * 1024  # a CONNECT's fields cannot sensibly be larger
MAX_NAME_CHARACTERS: Final = 80  # the log has no more of the name of a client not yet let in

Work = Coroutine[Any, Any, None]


class Perform(NamedTuple):
    """Work that takes time, as a login does: no other input is handled before it is done."""

    work: Callable[[], Work]


class HoldBack(NamedTuple):
    """A wait for subscribers that are behind. The client's own acknowledgements and pings are
    handled meanwhile, everything else waits."""

    work: Callable[[], Work]


Command = Perform | HoldBack


class Carrier(Protocol):
    """The connection that carries a machine's bytes, as the machine sees it."""

    def peer(self) -> Peer:
        """Describes the client's end of the connection."""
        ...

    def on_opened(self, accepted: Accepted) -> None:
        """Hears that the client is let in, once CONNACK is in the output."""

    def on_ended(self) -> None:
        """Hears that nothing more is said: the output is to leave, and the socket to end."""


class _Gone:
    """The carrier of a machine whose connection is gone."""

    def peer(self) -> Peer:
        return Peer.described_by(lambda _: None)

    def on_opened(self, accepted: Accepted) -> None:
        """Nobody hears it: such a client is ended at once."""

    def on_ended(self) -> None:
        """Nobody hears it: the connection has ended first."""


GONE: Final = _Gone()


def _never() -> bool:
    return False


class Machine:
    """One connection's packets, states and client. Implements `ClientLink` for its client."""

    __slots__ = (
        "_by_method",
        "_carrier",
        "_connect",
        "_context",
        "_follow_ups",
        "_has_ended",
        "_held",
        "_identity",
        "_limit",
        "_needed",
        "_opening",
        "_parts",
        "_version",
        "answers_early",
        "client",
        "command",
        "expected_bytes",
        "has_handled",
        "is_unfinished",
        "output",
        "size",
        "state",
    )

    def __init__(self, context: Context, output: Output, carrier: Carrier) -> None:
        self.output = output
        self.state = State.AWAITING_CONNECT
        self.client: Client | None = None  # once it is let in
        self.command: Command | None = None  # the command that is being carried out
        self.has_handled = False  # the last bytes made a packet whole
        self.is_unfinished = False  # there may be more to handle, without more input
        self.size = 0  # bytes that wait to be handled
        # Memory is to be reserved for these bytes: of a packet not all here, or of input held back.
        self.expected_bytes = 0
        self.answers_early = False  # publishes are answered before their fan-out begins
        self._context = context
        self._carrier = carrier
        self._version: int = Version.V5
        self._identity: Identity | None = None
        self._connect: Connect | None = None
        self._opening: Opening | None = None  # between CONNECT and CONNACK
        self._by_method: ByMethod | None = None  # how the client logged in, for logging in again
        self._limit = min(MAX_CONNECT_BYTES, context.settings.max_message_size)
        self._parts: list[bytes] = []  # pieces of a packet that is not all here
        self._needed = 0  # bytes that the first packet in `_parts` has, as far as is known
        self._held: HeldInput | None = None  # while subscribers of what it published are behind
        self._follow_ups = PendingWrites(context.spawn)
        self._has_ended = False  # nothing more is said

    @property
    def is_full(self) -> bool:
        """Tells whether so much is held back that no more should be read."""
        return self._held is not None and self._held.size > MOST_HELD_BYTES

    # --- input

    def must_keep(self, size: int) -> bool:
        """Tells whether so many more bytes are of no use yet: a command is under way, or the packet
        that they belong to is still not whole."""
        if self._held is not None:
            return False
        if self.command is not None:
            return True
        return bool(self._parts) and self.size + size < self._needed

    def keep(self, data: bytes) -> None:
        """Adds to what waits, and handles nothing."""
        if self._held is not None:
            self._held.add(data)
            return
        add_piece(self._parts, data)
        self.size += len(data)

    def receive(self, data: bytes, is_over: Callable[[], bool] = _never) -> Command | None:
        """Handles everything that is whole, in what has come before and in `data`, until `is_over`
        says that the time is up. A command is to be carried out, then `proceed`."""
        self.has_handled = self.is_unfinished = False
        if self._held is not None:
            self._held.add(data)
            self._pass_acknowledgements(self._held, is_over)
            return None
        if self._parts:
            if data:
                self._parts.append(data)
            data = b"".join(self._parts)
            self._parts = []
        try:
            position = self._parse(data, is_over)
        except Exception as error:
            self._end_by(error, data)
        else:
            self.has_handled = position > 0
            self.size = self._needed = self.expected_bytes = 0
            if position < len(data) and self.state is not State.CLOSED:
                self._keep_rest(data, position)
            if self.command is not None:
                self._hold_rest(is_over)
        return self.command

    def _parse(self, data: bytes, is_over: Callable[[], bool]) -> int:
        """Handles packets, and says where it stopped."""
        position, size, is_late = 0, len(data), False
        client, limit, pending_writes = self.client, self._limit, self._follow_ups
        submitted = 0
        if client is not None:
            submitted = client.publishing.vhost.writer.submitted
            client.publishing.begin_chunk()
        while position < size and self.command is None and self.state is not State.CLOSED:
            if client is not None and not pending_writes:
                publishing = client.publishing
                position = take_hot(publishing, client.deliverer, data, position, limit)
                if publishing.pressed or publishing.must_wait:
                    break
                if publishing.is_tired:
                    if is_late := is_over():
                        break
                    continue
                if position == size:  # most chunks end so: looking for a packet takes longer
                    break
            frame = split(data, position, limit)
            if frame is None:
                break
            if pending_writes and not pending_writes.may_overtake(frame.head):
                self.defer(pending_writes.done())
                break
            packet = decode(frame.head, data[frame.start : frame.end], self._version)
            position = frame.end
            self.state = step(RECEIVED, self.state, packet)
            if client is not None:
                client.receive(packet)
            else:
                self._receive_early(packet)
            if is_late := is_over():
                break
        if client is not None and not client.is_closed:
            client.publishing.end_of_chunk()
            client.deliverer.end_of_chunk()
            if self.command is None and not client.is_closed:
                self._hold_back_if_needed(client, submitted)
        self.is_unfinished = is_late and self.command is None and self.state is not State.CLOSED
        return position

    def _keep_rest(self, data: bytes, position: int) -> None:
        """Keeps the packet that is not all here."""
        rest = data[position:] if position else data
        if self.state is State.AWAITING_CONNECT and rest[0] >> 4 != PacketType.CONNECT:
            # The rest of it may never come: a client of another protocol waits for us.
            self._on_violation(violation("the first packet is no CONNECT"), data)
            return
        self._parts = [rest]
        self.size = len(rest)
        self._needed = needed_for(rest)
        self.expected_bytes = self._needed if self._needed > self.size else 0

    def _hold_rest(self, is_over: Callable[[], bool]) -> None:
        """Moves the rest of the chunk to what is held back, if the client is to wait."""
        if self._held is not None:
            parts, self._parts = self._parts, []
            self._held.add(b"".join(parts))
            self._pass_acknowledgements(self._held, is_over)

    def _pass_acknowledgements(self, held: HeldInput, is_over: Callable[[], bool]) -> None:
        """Handles the acknowledgements and pings in what is held back."""
        assert self.client is not None
        before = held.packets
        try:
            is_all = held.pass_on(self.client, self._version, self._limit, is_over)
        except Exception as error:
            self._end_by(error)
            return
        self.has_handled = self.has_handled or held.packets != before
        self.is_unfinished = not is_all
        self.expected_bytes = max(self._needed, held.size)

    def _hold_back_if_needed(self, client: Client, submitted: int) -> None:
        """Reads no more of a client that has brought more than others can take, until they can."""
        found = obstacle(client.publishing, submitted)
        if found is None:
            return
        if found.is_subscriber:
            self._context.counters.held_publishers += found.is_full_queue
            self._held = HeldInput()
            self.command = HoldBack(found.wait)
        else:
            self.command = Perform(found.wait)

    # --- commands

    def defer(self, work: Work) -> None:
        """Runs what takes time: the rest of the input waits for it, in order."""
        self.command = Perform(lambda: work)

    def follow_up(self, work: Work) -> None:
        """Runs what is left to do for a packet that acts already, in order, one after another.
        Further subscriptions do not wait for it, the rest of the input does."""
        self._follow_ups.add(self._attempt(work))

    async def perform(self, command: Command) -> None:
        """Carries a command out; an error of it ends the connection."""
        await self._attempt(command.work())

    async def _attempt(self, work: Work) -> None:
        try:
            await work
        except MqttError as error:
            self.fail(error.reason, str(error), is_said=isinstance(error, LoginRefused))
        except Exception as error:
            self._end_by(error)

    def proceed(self) -> bool:
        """Goes on behind a command that was carried out. True: there is input to handle."""
        self.command = None
        held, self._held = self._held, None
        if held is not None and held.size:
            self._parts = [held.rest()]
            self.size = held.size
        return bool(self._parts)

    # --- CONNECT

    def _receive_early(self, packet: Packet) -> None:
        """Handles a packet that comes before CONNACK."""
        if isinstance(packet, Connect):
            self._version = packet.version
            self._connect = replace(packet, password=None, will=None)  # nobody needs them again
        if isinstance(packet, Connect | Auth):
            self.defer(self._open(packet))
        else:  # DISCONNECT of a client that does not like our AUTH
            self.close()

    async def _open(self, packet: Connect | Auth) -> None:
        """Takes one step of the login: CONNECT, or an AUTH that its method asked for."""
        try:
            if isinstance(packet, Connect):
                self._opening = Opening(self._context, packet, self._carrier.peer())
                answer = await self._opening.begin()
            else:
                assert self._opening is not None
                answer = await self._opening.go_on(packet)
        except Refused as refused:
            self._opening = None
            self._context.counters.refused_connections += 1
            self.fail(refused.reason, str(refused), is_said=refused.is_said)
            return
        if isinstance(answer, Accepted):
            await self._let_in(answer)
        elif self.state is not State.CLOSED:
            self.state = State.AUTHENTICATING
            self._send_auth(answer)

    async def _let_in(self, accepted: Accepted) -> None:
        opening, self._opening = self._opening, None
        client = self._client_of(accepted)
        if self.state is State.CLOSED:  # the client did not wait for the answer
            client.end(is_clean=False)
            return
        self._context.counters.connections += 1
        self.client = client
        self.answers_early = client.publishing.is_async
        self._identity = accepted.identity
        self._by_method = None if opening is None else opening.by_method
        self.state = State.CONNECTED
        self._limit = self._context.settings.max_message_size
        self._send(accepted.answer)
        self._carrier.on_opened(accepted)
        await client.start()

    def _client_of(self, accepted: Accepted) -> Client:
        terms = Terms(
            self._context,
            accepted.session,
            accepted.identity,
            self._carrier.peer().address,
            accepted.agreement,
            self.output,
            self,
        )
        client = Client(terms, self)
        accepted.session.owner = client
        return client

    async def authenticate(self, packet: Auth) -> None:
        """Logs a connected client in again, by the same method and as the same user
        [MQTT-4.12.1-1]."""
        if self._by_method is None:  # [MQTT-4.12.0-7]
            raise violation("AUTH of a client whose CONNECT named no authentication method")
        assert self._identity is not None
        self._send_auth(await self._by_method.again(packet, self._identity))

    def _send_auth(self, packet: Auth) -> None:
        most = self._asked_size()
        if most is not None and len(encode(packet, self._version)) > most:  # [MQTT-3.1.2-24]
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "an AUTH does not fit into a packet")
        self._send(packet)

    def _asked_size(self) -> int | None:
        return None if self._connect is None else self._connect.properties.maximum_packet_size

    def _send(self, packet: Packet) -> None:
        self.output.put(encode(packet, self._version))

    # --- the client's socket and permissions

    def pause(self) -> None:
        """Stops deliveries: the client's socket is full."""
        if self.client is not None:
            self.client.pause()

    def resume(self) -> None:
        """Goes on with deliveries: the client's socket has room."""
        if self.client is not None and not self.client.is_closed:
            self.client.resume()

    def review(self) -> None:
        """Looks through the client's subscriptions after permissions have changed."""
        if self.client is not None and self.state is State.CONNECTED:
            self.client.review()

    def report(
        self, state: ConnectionState, published: int, keep_alive: int
    ) -> ConnectionReport | None:
        """Describes a connected client to people; None: it is not let in."""
        client, identity = self.client, self._identity
        if client is None or identity is None or self.state is not State.CONNECTED:
            return None
        method = None if self._by_method is None else self._by_method.method
        is_by_certificate = self._context.settings.certificate_login
        peer = self._carrier.peer()
        mechanism = mechanism_of(method, identity, peer, by_certificate=is_by_certificate)
        return report_on(client, state, published, mechanism, keep_alive)

    # --- the end

    def _end_by(self, error: Exception, data: bytes = b"") -> None:
        """Ends the connection: `data` is against the protocol, or brought a bug to light."""
        if isinstance(error, MqttError):
            self._on_violation(error, data)
        else:
            log.error("a bug: this connection ends", exc_info=error)
            self.fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")

    def _on_violation(self, error: MqttError, data: bytes) -> None:
        self._context.counters.protocol_errors += 1
        if self.state is State.AWAITING_CONNECT:
            self._refuse_first(error, data)
            return
        self.fail(error.reason, str(error))

    def _refuse_first(self, error: MqttError, data: bytes) -> None:
        """Refuses a first packet that is no good CONNECT. Whoever speaks some MQTT hears why."""
        self._version = min(named_version(data, MAX_CONNECT_BYTES), Version.V5)
        has_code = self._version >= Version.V31 and error.reason in RETURN_CODES
        if has_code or self._version == Version.V5:
            self.fail(error.reason, str(error))
        else:
            self._log_end(error.reason, mistake(data) or str(error))
            self.close()

    def fail(self, reason: ReasonCode, text: str, *, is_said: bool = False) -> None:
        """Ends the connection, and says why where the version has a packet for it. `is_said`: the
        log has the reason already."""
        if self._has_ended:
            return
        self._log_end(reason, text, is_said=is_said)
        is_new = self.client is None
        if self._version == Version.V5:
            asked, settings = self._asked_size(), self._context.settings
            packet = last_words(reason, text, settings, is_new=is_new, asked_size=asked)
            if packet is not None:
                self._send(packet)
        elif is_new and reason in RETURN_CODES:
            self._send(ConnAck(False, RETURN_CODES[reason]))
        self.close()

    def _log_end(self, reason: ReasonCode, text: str, *, is_said: bool = False) -> None:
        is_usual = is_said or reason is ReasonCode.SESSION_TAKEN_OVER
        level = logging.DEBUG if is_usual else logging.INFO
        log.log(level, "connection of %s ends: %s (0x%02X)", self.who(), text, reason)

    def who(self) -> str:
        """Names the client for the log."""
        host = self._carrier.peer().host
        asked = "" if self._connect is None else self._connect.client_id[:MAX_NAME_CHARACTERS]
        name = asked if self.client is None else self.client.session.client_id
        return f"'{name}' at {host}" if name else f"a client at {host}"

    def close(self) -> None:
        """Ends the connection after what is in the output."""
        if self._has_ended:
            return
        self._end()
        self._carrier.on_ended()

    def lost(self) -> None:
        """Ends everything: the socket is gone, whatever was said."""
        self._end()
        self._carrier = GONE  # the cyclic collector runs seldom in the gateway

    def _end(self) -> None:
        self._has_ended = True
        self.state = State.CLOSED
        self._parts, self._held = [], None
        if self.client is not None:
            self.client.end(is_clean=False)
