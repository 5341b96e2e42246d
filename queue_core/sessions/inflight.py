"""Keeps the in-flight state of sessions: which exchange of packets stands where, in memory and as
committed.

What the states mean is the adapter's business; here 0 is the end of an exchange, and the newest
record of a packet counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queue_core.commit.unit import PacketRecord

PacketKey = tuple[bool, int]  # is it outgoing, and its number


class PacketState(NamedTuple):
    """Says where an exchange of packets stands, and which message it is about."""

    state: int
    queue_id: int | None = None
    offset: int | None = None


class PacketLedger:
    """Packet state as the database has it. It trails what sessions hold in memory by what is still
    on its way to the disk: a new generation of the journal must not promise more than that."""

    def __init__(self) -> None:
        self._by_session: dict[int, dict[PacketKey, PacketRecord]] = {}

    def open(self, session_id: int, records: Iterable[PacketRecord] = ()) -> None:
        self._by_session[session_id] = {}
        self.commit(records)

    def forget(self, session_id: int) -> None:
        """The session ended; what is still on its way for it does not count any more."""
        self._by_session.pop(session_id, None)

    def commit(self, records: Iterable[PacketRecord]) -> None:
        for record in records:
            held = self._by_session.get(record.session_id)
            if held is None:
                continue
            held.pop((record.is_outgoing, record.packet_id), None)  # the newest stands last
            if record.state:
                held[record.is_outgoing, record.packet_id] = record

    def records(self) -> Iterator[PacketRecord]:
        """Returns a record of everything in flight."""
        for held in self._by_session.values():
            yield from held.values()
