"""Fields of a peer's frames that the engine does not report, read from the bytes themselves.

The engine reads neither the default-outcome of a source nor `echo` in a flow, and keeps to itself
which handles the peer has chosen. Nothing is looked at until the engine reports an attach or a
flow: then the frame is found in what came last. A payload that looks like such a frame of the same
link deceives only its own sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocols.amqp10.wire.types import Described, Malformed, decode

ATTACH: Final = b"\x00\x53\x12"
FLOW: Final = b"\x00\x53\x13"
FRAME_HEADER_BYTES: Final = 8
KEPT_BYTES: Final = 16_384  # for an attach that comes in pieces
MOST_ECHOES: Final = 16_384  # of flows that were seen, and not asked for yet
OVERLAP_BYTES: Final = 128  # a flow without properties is smaller
LIST8: Final = 0xC0
ECHO_FIELD: Final = 9  # its place in flow, and so the fields that come before it


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of an attach that the engine does not report."""

    channel: int = -1  # as the peer numbers them
    handle: int = -1
    default_outcome: object = None


@dataclass(frozen=True, slots=True)
class Echo:
    """A flow that wants an answer."""

    next_outgoing: int
    delivery_count: int


NOT_SEEN: Final = Asked()


class Watch:
    """The last bytes of one connection, and the attaches and flows found in them."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._start = 0  # of the first chunk, in all that ever came
        self._attached = 0  # up to where attaches were read, likewise
        self._scanned = 0  # chunks whose flows were read
        self._echoes: dict[tuple[int, int], Echo] = {}

    def see(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)

    def forget(self) -> None:
        """Drops bytes that were dealt with, but for a frame that may still be incomplete."""
        chunks = self._chunks
        while self._size > KEPT_BYTES and len(chunks) > 1:
            self._drop(len(chunks[0]))
            del chunks[0]
            self._scanned = max(0, self._scanned - 1)
        if self._size > KEPT_BYTES:
            self._drop(self._size - KEPT_BYTES)
            chunks[0] = chunks[0][-KEPT_BYTES:]
        elif len(chunks) > 64:  # of a peer that sends in tiny pieces
            chunks[:] = [b"".join(chunks)]
            self._scanned = 1

    def _drop(self, count: int) -> None:
        self._size -= count
        self._start += count

    # --- attach

    def attach(self, name: str, *, is_receiver: bool) -> Asked:
        """Finds the next attach of that name and role. The engine reports them in their order."""
        data = b"".join(self._chunks)
        position = max(0, self._attached - self._start)
        while (position := data.find(ATTACH, position)) >= 0:
            fields = fields_at(data, position)
            position += len(ATTACH)
            if fields is not None and fields[0] == name and bool(fields[2]) is is_receiver:
                self._attached = self._start + position
                source = fields[5]
                said = source.value if isinstance(source, Described) else None
                outcome = said[8] if isinstance(said, list) and len(said) > 8 else None
                header = position - len(ATTACH) - 2
                channel = int.from_bytes(data[header : header + 2])
                handle = fields[1]
                return Asked(channel, handle if isinstance(handle, int) else -1, outcome)
        return NOT_SEEN

    # --- flow

    def echo(self, channel: int, handle: int) -> Echo | None:
        """Finds a flow of that link that asks for an answer, once."""
        chunks = self._chunks
        for number in range(self._scanned, len(chunks)):
            data = chunks[number]
            before = b""
            earlier = number
            while earlier and len(before) < OVERLAP_BYTES:
                earlier -= 1
                before = chunks[earlier][-OVERLAP_BYTES:] + before
            if FLOW in data or FLOW in before + data[:2]:
                self._find_echoes(before + data, len(before))
        self._scanned = len(chunks)
        return self._echoes.pop((channel, handle), None) if self._echoes else None

    def _find_echoes(self, data: bytes, known: int) -> None:
        """Notes the flows with `echo` whose frames end behind what was known before."""
        position = -1
        while (position := data.find(FLOW, position + 1)) >= 0:
            start = position + len(FLOW)
            head = data[start : start + 9]
            if len(head) < 9:
                continue
            count = head[2] if head[0] == LIST8 else int.from_bytes(head[5:9])
            if count <= ECHO_FIELD:
                continue
            fields = fields_at(data, position)
            if fields is None or fields[ECHO_FIELD] is not True or fields[4] is None:
                continue
            start = position - FRAME_HEADER_BYTES
            if start + int.from_bytes(data[start : start + 4]) <= known:
                continue
            channel = int.from_bytes(data[position - 2 : position])
            handle, outgoing, delivered = fields[4], fields[2], fields[5]
            if (
                isinstance(handle, int)
                and isinstance(outgoing, int)
                and len(self._echoes) < MOST_ECHOES
            ):
                said = delivered if isinstance(delivered, int) else 0
                self._echoes[channel, int(handle)] = Echo(int(outgoing), int(said))


def fields_at(data: bytes, position: int) -> list[object] | None:
    """Decodes the fields of a performative whose descriptor stands there, filled up with None; None
    when it is no whole frame."""
    start = position - FRAME_HEADER_BYTES
    if start < 0 or data[start + 4 : start + 6] != b"\x02\x00":
        return None
    end = start + int.from_bytes(data[start : start + 4])
    if end > len(data):
        return None
    try:
        found, stop = decode(data, position)
    except (Malformed, IndexError):
        return None
    if stop != end or not isinstance(found, Described) or not isinstance(found.value, list):
        return None
    return [*found.value, *([None] * 14)]
