"""Proton's C engine behind a seam of our own: bytes in, bytes out, events between.

The engine does framing, sessions, windows, and the bookkeeping of transfers and dispositions. This
is the only module that calls it. It goes through the C functions, not through the `proton` classes:
5.8 us a message where those take 80. Handles are the engine's pointers: they are equal when they
point to the same thing, and live until it is freed, which only we do.

It must not know what a queue is, nor what an address means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cproton_ffi import ffi, lib

from protocols.amqp10.errors import DECODE_ERROR, Amqp10Error
from protocols.amqp10.wire.types import (
    MOST_VALUES,
    Array,
    Malformed,
    decode_all,
    encode,
    is_crowded,
)

Handle = Any  # a pointer of the engine's

CONNECTION_OPEN: Final = int(lib.PN_CONNECTION_REMOTE_OPEN)
CONNECTION_CLOSE: Final = int(lib.PN_CONNECTION_REMOTE_CLOSE)
SESSION_OPEN: Final = int(lib.PN_SESSION_REMOTE_OPEN)
SESSION_CLOSE: Final = int(lib.PN_SESSION_REMOTE_CLOSE)
LINK_OPEN: Final = int(lib.PN_LINK_REMOTE_OPEN)
LINK_CLOSE: Final = int(lib.PN_LINK_REMOTE_CLOSE)
LINK_DETACH: Final = int(lib.PN_LINK_REMOTE_DETACH)
LINK_FLOW: Final = int(lib.PN_LINK_FLOW)
DELIVERY: Final = int(lib.PN_DELIVERY)
TRANSPORT_ERROR: Final = int(lib.PN_TRANSPORT_ERROR)

_SUBJECT: Final[dict[int, Callable[[Handle], Handle]]] = {  # what an event is about
    CONNECTION_OPEN: lib.pn_event_connection,
    CONNECTION_CLOSE: lib.pn_event_connection,
    SESSION_OPEN: lib.pn_event_session,
    SESSION_CLOSE: lib.pn_event_session,
    LINK_OPEN: lib.pn_event_link,
    LINK_CLOSE: lib.pn_event_link,
    LINK_DETACH: lib.pn_event_link,
    LINK_FLOW: lib.pn_event_link,
    DELIVERY: lib.pn_event_delivery,
    TRANSPORT_ERROR: lib.pn_event_transport,
}

RECEIVED: Final = int(lib.PN_RECEIVED)
ACCEPTED: Final = int(lib.PN_ACCEPTED)
REJECTED: Final = int(lib.PN_REJECTED)
RELEASED: Final = int(lib.PN_RELEASED)
MODIFIED: Final = int(lib.PN_MODIFIED)
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34

SENDER_SETTLES: Final = int(lib.PN_SND_SETTLED)
SENDER_UNSETTLED: Final = int(lib.PN_SND_UNSETTLED)
FIRST: Final = int(lib.PN_RCV_FIRST)
SECOND: Final = int(lib.PN_RCV_SECOND)

EXPIRES_WITH_LINK: Final = int(lib.PN_EXPIRE_WITH_LINK)
EXPIRES_WITH_SESSION: Final = int(lib.PN_EXPIRE_WITH_SESSION)
EXPIRES_WITH_CONNECTION: Final = int(lib.PN_EXPIRE_WITH_CONNECTION)
NEVER_EXPIRES: Final = int(lib.PN_EXPIRE_NEVER)

_QUOTATION: Final = re.compile("['\"`\\[]")

LOW_WATER_BYTES: Final = 1 << 19  # that wait in the engine before more are put there
_BUFFER_BYTES: Final = 1 << 17
_buffer: Final = ffi.new("char[]", _BUFFER_BYTES)  # all that passes through is copied out at once
_buffer_bytes: Final = ffi.buffer(_buffer)
_tag: Final = ffi.new("char[8]")
_tag_bytes: Final = ffi.buffer(_tag)
_tag_struct: Final = ffi.new("pn_bytes_t *", (8, _tag))[0]

# The hot functions, by names of our own: looking one up in `lib` takes as long as calling it.
_peek: Final = lib.pn_collector_peek
_pop: Final = lib.pn_collector_pop
_type_of: Final = lib.pn_event_type
_pending: Final = lib.pn_delivery_pending
_receive: Final = lib.pn_link_recv
_delivery: Final = lib.pn_delivery
_send: Final = lib.pn_link_send
unread_bytes: Final = _pending
is_partial: Final = lib.pn_delivery_partial
is_aborted: Final = lib.pn_delivery_aborted
is_settled: Final = lib.pn_delivery_settled
is_readable: Final = lib.pn_delivery_readable
link_of: Final = lib.pn_delivery_link
remote_state: Final = lib.pn_delivery_remote_state
advance: Final = lib.pn_link_advance
update: Final = lib.pn_delivery_update
settle: Final = lib.pn_delivery_settle
credit_of: Final = lib.pn_link_credit
grant: Final = lib.pn_link_flow
is_draining: Final = lib.pn_link_get_drain
drained: Final = lib.pn_link_drained


class Engine:
    """One connection's transport, connection and events."""

    def __init__(self, container: str, max_frame: int, channel_max: int, idle_ms: int) -> None:
        self.transport = lib.pn_transport()
        self.connection = lib.pn_connection()
        self.events = lib.pn_collector()
        lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, max_frame)
        lib.pn_transport_set_channel_max(self.transport, channel_max)
        lib.pn_transport_set_idle_timeout(self.transport, idle_ms)
        lib.pn_connection_set_container(self.connection, container.encode())
        lib.pn_connection_collect(self.connection, self.events)
        lib.pn_transport_bind(self.transport, self.connection)
        self.is_freed = False
        self.is_over = False  # it has nothing more to say, ever

    def free(self) -> None:
        """Frees the engine's memory; neither the engine nor its handles may be used after this."""
        if self.is_freed:
            return
        self.is_freed = True
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.events)
        lib.pn_decref(self.transport)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_collector_free(self.events)

    # --- bytes

    def push(self, data: bytes, start: int, most: int = 1 << 30) -> int:
        """Gives the engine what it has room for, `most` bytes at most, and returns how far it
        came."""
        transport, size = self.transport, len(data)
        room = lib.pn_transport_capacity(transport)
        if room <= 0:
            return size if room < 0 else start
        source = ffi.from_buffer(data)
        count = min(room, size - start, most)
        taken = lib.pn_transport_push(transport, source + start, count)
        return start + taken if taken >= 0 else size

    @property
    def is_deaf(self) -> bool:
        """Whether the engine takes no more input: it is over, or it could not read a frame."""
        return bool(lib.pn_transport_capacity(self.transport) < 0)

    @property
    def has_failure(self) -> bool:
        """Whether the engine has said itself what was wrong."""
        return bool(lib.pn_condition_is_set(lib.pn_transport_condition(self.transport)))

    @property
    def is_remote_closed(self) -> bool:
        return bool(lib.pn_connection_state(self.connection) & lib.PN_REMOTE_CLOSED)

    def take_output(self) -> bytes:
        """Takes the engine's output, or as much as one turn should write."""
        transport = self.transport
        pieces: list[bytes] = []
        pending = lib.pn_transport_pending(transport)
        while pending > 0:
            count = lib.pn_transport_peek(transport, _buffer, min(pending, _BUFFER_BYTES))
            if count <= 0:
                break
            pieces.append(ffi.buffer(_buffer, count)[:])
            lib.pn_transport_pop(transport, count)
            pending = lib.pn_transport_pending(transport)
        self.is_over = pending < 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def expect_input(self, idle_ms: int) -> None:
        """Sets how long the peer may be silent from now on; 0: for ever, because nobody listens."""
        lib.pn_transport_set_idle_timeout(self.transport, idle_ms)

    def tick(self, now_ms: int) -> int:
        """Keeps the idle time-outs, and returns when to call again; 0: never."""
        return int(lib.pn_transport_tick(self.transport, now_ms))

    def fail(self, condition: str, text: str) -> None:
        """Closes the connection with an error of the peer's."""
        _set(lib.pn_transport_condition(self.transport), condition, text)
        lib.pn_transport_close_tail(self.transport)

    @property
    def has_events(self) -> bool:
        return bool(_peek(self.events))

    def next(self) -> tuple[int, Handle] | None:
        """Takes the next event that matters, and its subject."""
        events = self.events
        while event := _peek(events):
            kind = _type_of(event)
            subject = _SUBJECT.get(kind)
            found = None if subject is None else (kind, subject(event))
            _pop(events)
            if found is not None:
                return found
        return None

    # --- the connection

    def open(self, offered: tuple[str, ...], properties: dict[object, object]) -> None:
        put(lib.pn_connection_offered_capabilities(self.connection), Array(offered))
        put(lib.pn_connection_properties(self.connection), properties)
        lib.pn_connection_open(self.connection)

    def close(self, condition: str | None = None, text: str = "") -> None:
        if condition is not None:
            _set(lib.pn_connection_condition(self.connection), condition, text)
        if not lib.pn_connection_state(self.connection) & lib.PN_LOCAL_ACTIVE:
            lib.pn_connection_open(self.connection)  # an error is told in a close, after an open
        lib.pn_connection_close(self.connection)

    @property
    def remote_container(self) -> str:
        return _string(lib.pn_connection_remote_container(self.connection)) or ""

    @property
    def remote_hostname(self) -> str:
        return _string(lib.pn_connection_remote_hostname(self.connection)) or ""

    @property
    def remote_properties(self) -> dict[str, object]:
        """The properties of the peer's open, as far as they are text and numbers."""
        found = get(lib.pn_connection_remote_properties(self.connection))
        if not isinstance(found, dict):
            return {}
        plain = (bool, int, float, str)
        return {str(name): each for name, each in found.items() if isinstance(each, plain)}

    @property
    def peers_max_frame(self) -> int:
        """The largest frame that the peer takes, in bytes; 0: any."""
        return int(lib.pn_transport_get_remote_max_frame(self.transport))

    @property
    def is_closed(self) -> bool:
        """Whether we have said that we close."""
        return bool(lib.pn_connection_state(self.connection) & lib.PN_LOCAL_CLOSED)

    @property
    def failure(self) -> str:
        """Why the engine gave the connection up, without the peer's bytes, which it quotes: there
        may be a password among them."""
        condition = lib.pn_transport_condition(self.transport)
        name = _string(lib.pn_condition_get_name(condition)) or ""
        description = _string(lib.pn_condition_get_description(condition)) or ""
        return f"{name}: {_QUOTATION.split(description, maxsplit=1)[0].rstrip(': ')}"


# --- sessions


def open_session(session: Handle) -> None:
    lib.pn_session_open(session)


def end_session(session: Handle, condition: str | None = None, text: str = "") -> None:
    if condition is not None:
        _set(lib.pn_session_condition(session), condition, text)
    lib.pn_session_close(session)


def free_session(session: Handle) -> None:
    lib.pn_session_free(session)


# --- links


@dataclass(frozen=True, slots=True)
class Terminus:
    """A source or a target, as the peer wrote it."""

    address: str | None
    kind: int
    is_dynamic: bool
    durability: int
    expiry: int
    timeout: int
    distribution: int
    capabilities: frozenset[str]
    properties: object
    filters: object
    outcomes: object

    @property
    def is_there(self) -> bool:
        return self.kind != int(lib.PN_UNSPECIFIED)

    @property
    def is_coordinator(self) -> bool:
        return self.kind == int(lib.PN_COORDINATOR)

    @property
    def is_durable(self) -> bool:
        return self.durability != int(lib.PN_NONDURABLE) and self.expiry == int(lib.PN_EXPIRE_NEVER)

    @property
    def copies(self) -> bool:
        return self.distribution == int(lib.PN_DIST_MODE_COPY)


@dataclass(frozen=True, slots=True)
class Attach:
    """A peer's attach, as far as the engine reads it."""

    handle: Handle
    session: Handle
    name: str
    is_from_peer: bool  # the peer sends
    source: Terminus
    target: Terminus
    sender_mode: int
    receiver_mode: int
    max_message_size: int


def attach_of(link: Handle) -> Attach:
    return Attach(
        link,
        lib.pn_link_session(link),
        name_of(link),
        bool(lib.pn_link_is_receiver(link)),
        _terminus(lib.pn_link_remote_source(link)),
        _terminus(lib.pn_link_remote_target(link)),
        int(lib.pn_link_remote_snd_settle_mode(link)),
        int(lib.pn_link_remote_rcv_settle_mode(link)),
        int(lib.pn_link_remote_max_message_size(link)),
    )


def name_of(link: Handle) -> str:
    return _string(lib.pn_link_name(link)) or ""


def session_of(link: Handle) -> Handle:
    return lib.pn_link_session(link)


def _terminus(terminus: Handle) -> Terminus:
    return Terminus(
        _string(lib.pn_terminus_get_address(terminus)),
        int(lib.pn_terminus_get_type(terminus)),
        bool(lib.pn_terminus_is_dynamic(terminus)),
        int(lib.pn_terminus_get_durability(terminus)),
        int(lib.pn_terminus_get_expiry_policy(terminus)),
        int(lib.pn_terminus_get_timeout(terminus)),
        int(lib.pn_terminus_get_distribution_mode(terminus)),
        symbols(get(lib.pn_terminus_capabilities(terminus))),
        get(lib.pn_terminus_properties(terminus)),
        get(lib.pn_terminus_filter(terminus)),
        get(lib.pn_terminus_outcomes(terminus)),
    )


def symbols(value: object) -> frozenset[str]:
    """Reads the symbols of a field that holds one or many."""
    many = value if isinstance(value, list) else [] if value is None else [value]
    return frozenset(str(each) for each in many)


@dataclass(frozen=True, slots=True)
class Answer:
    """Our answer to an attach: the peer's own terminus, but for what is named here."""

    address: str | None = None
    filters: dict[object, object] | None = None
    capabilities: tuple[str, ...] | None = None
    is_dynamic: bool = False
    is_transient: bool = False  # durability was asked for, and is not given
    properties: dict[object, object] | None = None
    sender_mode: int | None = None
    receiver_mode: int | None = None
    max_message_size: int = 0
    expiry: int | None = None
    timeout: int = 0


def accept_link(link: Handle, answer: Answer) -> None:
    source, target = lib.pn_link_source(link), lib.pn_link_target(link)
    lib.pn_terminus_copy(source, lib.pn_link_remote_source(link))
    lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
    ours = target if lib.pn_link_is_receiver(link) else source
    if answer.address is not None:
        lib.pn_terminus_set_type(ours, lib.PN_TARGET if ours == target else lib.PN_SOURCE)
        lib.pn_terminus_set_address(ours, answer.address.encode())
        lib.pn_terminus_set_dynamic(ours, answer.is_dynamic)
    if answer.is_transient:
        lib.pn_terminus_set_durability(ours, lib.PN_NONDURABLE)
    if answer.expiry is not None:
        lib.pn_terminus_set_expiry_policy(ours, answer.expiry)
        lib.pn_terminus_set_timeout(ours, answer.timeout)
    if answer.filters is not None:
        put(lib.pn_terminus_filter(ours), answer.filters or None)
    if answer.capabilities is not None:
        put(lib.pn_terminus_capabilities(ours), Array(answer.capabilities))
    if answer.properties is not None:
        put(lib.pn_terminus_properties(ours), answer.properties)
    sender_mode, receiver_mode = answer.sender_mode, answer.receiver_mode
    if sender_mode is None:
        sender_mode = lib.pn_link_remote_snd_settle_mode(link)
    if receiver_mode is None:
        receiver_mode = lib.pn_link_remote_rcv_settle_mode(link)
    lib.pn_link_set_snd_settle_mode(link, sender_mode)
    lib.pn_link_set_rcv_settle_mode(link, receiver_mode)
    if answer.max_message_size:
        lib.pn_link_set_max_message_size(link, answer.max_message_size)
    lib.pn_link_open(link)


def refuse_link(link: Handle, condition: str, text: str) -> None:
    """Answers an attach without our terminus, and at once with a detach that says why [2.6.3]."""
    if lib.pn_link_is_receiver(link):
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    else:
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close_link(link, condition, text)


def close_link(link: Handle, condition: str | None = None, text: str = "") -> None:
    if condition is not None:
        _set(lib.pn_link_condition(link), condition, text)
    lib.pn_link_close(link)


def detach_link(link: Handle) -> None:
    lib.pn_link_detach(link)


def free_link(link: Handle) -> None:
    lib.pn_link_free(link)


# --- deliveries


def read(link: Handle, delivery: Handle) -> bytes:
    """Reads what has come of the current delivery and was not read yet."""
    size = _pending(delivery)
    if size <= _BUFFER_BYTES:
        count = _receive(link, _buffer, size)
        return _buffer_bytes[:count] if count > 0 else b""
    room = ffi.new("char[]", size)
    count = lib.pn_link_recv(link, room, size)
    return ffi.buffer(room, count)[:] if count > 0 else b""


def is_current(delivery: Handle) -> bool:
    """Whether a delivery is its link's current one: we never leave one of ours so."""
    return bool(lib.pn_link_current(link_of(delivery)) == delivery)


def pass_over(link: Handle) -> None:
    """Passes over the current delivery, if it is complete, without an answer."""
    delivery = lib.pn_link_current(link)
    if delivery and not is_partial(delivery):
        advance(link)


def discard(link: Handle) -> None:
    """Releases everything that has come on a link that has ended on our side."""
    while delivery := lib.pn_link_current(link):
        while _pending(delivery) and _receive(link, _buffer, _BUFFER_BYTES) > 0:
            pass
        if is_partial(delivery):
            return
        if not is_settled(delivery):
            update(delivery, RELEASED)
        settle(delivery)


def send(link: Handle, number: int, data: bytes) -> Handle:
    """Sends a whole message, with the number as its tag."""
    _tag_bytes[:] = number.to_bytes(8)
    delivery = _delivery(link, _tag_struct)
    _send(link, data, len(data))
    advance(link)
    return delivery


def waiting_bytes(session: Handle) -> int:
    """Counts the bytes that are to be sent on a session, and may not be yet."""
    return int(lib.pn_session_outgoing_bytes(session))


def is_sender(link: Handle) -> bool:
    return bool(lib.pn_link_is_sender(link))


def reject(delivery: Handle, condition: str, text: str) -> None:
    local = lib.pn_delivery_local(delivery)
    _set(lib.pn_disposition_condition(local), condition, text)
    lib.pn_delivery_update(delivery, REJECTED)


def declare(delivery: Handle, txn_id: bytes) -> None:
    put(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), [txn_id])
    lib.pn_delivery_update(delivery, DECLARED)


def accept_in_transaction(delivery: Handle, txn_id: bytes, outcome: object) -> None:
    put(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), [txn_id, outcome])
    lib.pn_delivery_update(delivery, TRANSACTIONAL)


def state_data(delivery: Handle) -> object:
    """Reads the fields of a remote state that the engine does not know."""
    return get(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))


def rejection(delivery: Handle) -> str:
    """Reads why a peer has rejected a delivery."""
    condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
    name = _string(lib.pn_condition_get_name(condition))
    text = _string(lib.pn_condition_get_description(condition))
    return ": ".join(part for part in (name, text) if part)


def modification(delivery: Handle) -> tuple[bool, bool, bytes]:
    """Reads delivery-failed, undeliverable-here, and the annotations, encoded, of a `modified`."""
    remote = lib.pn_delivery_remote(delivery)
    return (
        bool(lib.pn_disposition_is_failed(remote)),
        bool(lib.pn_disposition_is_undeliverable(remote)),
        encoded(lib.pn_disposition_annotations(remote)),
    )


# --- values


def get(data: Handle) -> object:
    """Decodes the value that a `pn_data_t` holds; None when it is empty. Raises Amqp10Error: the
    engine passes on what it does not look at, and that may be no value at all."""
    found = encoded(data)
    try:
        if is_crowded(found):
            raise Malformed(f"more than {MOST_VALUES} values")
        return decode_all(found) if found else None
    except Malformed as error:
        raise Amqp10Error(DECODE_ERROR, f"a field that cannot be read: {error}") from None


def encoded(data: Handle) -> bytes:
    """Encodes the value that a `pn_data_t` holds, as it is on the wire."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    lib.pn_data_rewind(data)
    room = ffi.new("char[]", size)
    count = lib.pn_data_encode(data, room, size)
    return bytes(ffi.buffer(room, count)[:]) if count > 0 else b""


def put(data: Handle, value: object) -> None:
    lib.pn_data_clear(data)
    if value is not None:
        encoded = encode(value)
        lib.pn_data_decode(data, ffi.from_buffer(encoded), len(encoded))


def _string(text: Handle) -> str | None:
    return None if text == ffi.NULL else ffi.string(text).decode(errors="replace")


def _set(condition: Handle, name: str, text: str) -> None:
    lib.pn_condition_set_name(condition, name.encode())
    lib.pn_condition_set_description(condition, text.replace("\0", "").encode(errors="replace"))
