"""Answers to flows with `echo`: the engine sends none, so the gateway writes the frame itself.

What such a frame says of the session is worked out from what is known for certain: the peer's own
count of its transfers, and ours, which is one for each message but for those that need several
frames; where one of those may be under way, the output is looked at. An answer waits until all that
was handed to the engine has left it, so that it is never ahead of a transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.amqp10.engine import proton as pn
from protocols.amqp10.engine.proton import Engine, Handle
from protocols.amqp10.engine.unreported_fields import (
    ATTACH,
    FRAME_HEADER_BYTES,
    Asked,
    Echo,
    fields_at,
)
from protocols.amqp10.wire.types import Described, Malformed, UInt, ULong, decode, encode

if TYPE_CHECKING:
    from protocols.amqp10.links.detaching import Link

PROTOCOL_HEADER: Final = b"AMQP"
TRANSFER: Final = b"\x00\x53\x14"
FLOW: Final = 0x13
SESSION_WINDOW: Final = (1 << 31) - 1  # as the engine announces it
TRANSFER_OVERHEAD_BYTES: Final = 512  # of a transfer frame around its payload, at most
MORE_FIELD: Final = 5  # the field's place in transfer


class Echoing:
    """The answers to flows with `echo` that one connection owes."""

    def __init__(self) -> None:
        self._asked: dict[Handle, Asked] = {}  # links, as the peer numbers them
        self._taken: set[tuple[int, int]] = set()  # channels and handles of the peer's
        self._unplaced: list[Handle] = []  # attaches of ours that have not left yet
        self._places: dict[Handle, tuple[int, int]] = {}  # our channel and handle of a link
        self._closed: dict[Handle, int] = {}  # sessions: messages sent by links that are gone
        self._continued: dict[Handle, int] = {}  # sessions: frames that were not a message's last
        self._counting: set[Handle] = set()  # sessions on which large messages are under way
        self._waiting: dict[Handle, Echo] = {}

    @property
    def is_busy(self) -> bool:
        """Whether output is to be looked at, or an answer to be written."""
        return bool(self._unplaced or self._counting or self._waiting)

    def attach(self, handle: Handle, asked: Asked) -> None:
        self._asked[handle] = asked
        if asked.handle >= 0:
            self._taken.add((asked.channel, asked.handle))
        self._unplaced.append(handle)

    def is_taken(self, asked: Asked) -> bool:
        """Whether another link has that handle on that channel."""
        return (asked.channel, asked.handle) in self._taken

    def asked(self, handle: Handle) -> Asked | None:
        return self._asked.get(handle)

    def ask(self, handle: Handle, echo: Echo) -> None:
        self._waiting[handle] = echo

    def detach(self, handle: Handle, session: Handle, sent: int) -> None:
        asked = self._asked.pop(handle, None)
        if asked is not None:
            self._taken.discard((asked.channel, asked.handle))
        if handle in self._unplaced:
            self._unplaced.remove(handle)
        self._places.pop(handle, None)
        self._waiting.pop(handle, None)
        if sent:
            self._closed[session] = self._closed.get(session, 0) + sent

    def end_session(self, session: Handle) -> None:
        self._closed.pop(session, None)
        self._continued.pop(session, None)
        self._counting.discard(session)

    def count_frames(self, session: Handle) -> None:
        """Counts the frames of a session from now on: a message was sent that may take several."""
        self._counting.add(session)

    # --- output

    def watch(self, output: bytes) -> None:
        """Learns handles and frame counts from the engine's output."""
        if self._unplaced:
            self._find_places(output)
        if self._counting:
            self._count(output)

    def _find_places(self, output: bytes) -> None:
        position = -1
        while self._unplaced and (position := output.find(ATTACH, position + 1)) >= 0:
            fields = fields_at(output, position)
            if fields is None:
                continue
            for handle in self._unplaced:
                if fields[0] == pn.name_of(handle) and fields[2] is not pn.is_sender(handle):
                    channel = int.from_bytes(output[position - 2 : position])
                    self._places[handle] = channel, int(str(fields[1]))
                    self._unplaced.remove(handle)
                    break

    def _count(self, output: bytes) -> None:
        sessions = {self._places[link][0]: pn.session_of(link) for link in self._places}
        position = len(PROTOCOL_HEADER) * 2 if output.startswith(PROTOCOL_HEADER) else 0
        while position + FRAME_HEADER_BYTES < len(output):
            body = position + FRAME_HEADER_BYTES
            if output[body : body + 3] == TRANSFER and _is_continued(output, body):
                session = sessions.get(int.from_bytes(output[body - 2 : body]))
                if session is not None:
                    self._continued[session] = self._continued.get(session, 0) + 1
            position += max(FRAME_HEADER_BYTES, int.from_bytes(output[position : position + 4]))
        for session in list(self._counting):
            if not pn.waiting_bytes(session):
                self._counting.discard(session)

    def answers(self, links: dict[Handle, Link]) -> bytes:
        """Encodes flow frames, to be written behind the engine's output."""
        frames = []
        for handle, echo in list(self._waiting.items()):
            link, place = links.get(handle), self._places.get(handle)
            if link is None or place is None:
                del self._waiting[handle]
                continue
            session = pn.session_of(handle)
            if pn.waiting_bytes(session):
                continue  # the peer's window is closed; it will say so when it is not
            del self._waiting[handle]
            sent = self._closed.get(session, 0) + self._continued.get(session, 0)
            for other, each in links.items():
                if pn.session_of(other) == session:
                    sent += each.sent_count
            is_sender = pn.is_sender(handle)
            count = link.delivery_count if is_sender else echo.delivery_count
            frames.append(_flow(place, echo.next_outgoing, sent, count, pn.credit_of(handle)))
        return b"".join(frames)


def _is_continued(output: bytes, position: int) -> bool:
    try:
        found, _ = decode(output, position)
    except Malformed:
        return False
    fields = found.value if isinstance(found, Described) else None
    return isinstance(fields, list) and len(fields) > MORE_FIELD and fields[MORE_FIELD] is True


def _flow(
    place: tuple[int, int], incoming: int, outgoing: int, delivery_count: int, credit: int
) -> bytes:
    channel, handle = place
    fields: list[object] = [
        UInt(incoming),
        UInt(SESSION_WINDOW),
        UInt(outgoing & 0xFFFFFFFF),
        UInt(SESSION_WINDOW),
        UInt(handle),
        UInt(delivery_count & 0xFFFFFFFF),
        UInt(max(0, credit)),
        UInt(0),
        False,
        False,
    ]
    body = encode(Described(ULong(FLOW), fields))
    return (FRAME_HEADER_BYTES + len(body)).to_bytes(4) + b"\x02\x00" + channel.to_bytes(2) + body


def largest_payload(engine: Engine) -> int:
    """Finds the size up to which a message surely fits into one frame of the peer's; 0: any
    does."""
    return max(1, engine.peers_max_frame - TRANSFER_OVERHEAD_BYTES) if engine.peers_max_frame else 0
