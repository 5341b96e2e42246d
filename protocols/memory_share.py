"""One connection's part in the account of memory, the same for all adapters.

Most connections never hold what is worth counting: only one that does is entered into the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from queue_core.memory_account import (
    LARGE_PIECE_BYTES,
    LARGE_WRITE_BYTES,
    SMALL_HOLDING_BYTES,
    WATCHED_OUTPUT_BYTES,
    Holder,
    Holding,
    Memory,
    Piece,
)


class MemoryShare:
    """One connection's holding; made with the connection, and ended with it."""

    __slots__ = ("_holder", "_holding", "_memory")

    def __init__(self, memory: Memory, holder: Holder) -> None:
        self._memory = memory
        self._holder: Holder | None = holder
        self._holding: Holding | None = None

    def _hold(self) -> Holding | None:
        """Enters the connection into the account. None: the connection is over, and what it holds
        is about to go."""
        if self._holding is None and self._holder is not None:
            self._holding = self._memory.open(self._holder)
        return self._holding

    @property
    def is_short(self) -> bool:
        return self._memory.is_short

    @property
    def partial(self) -> int:
        """Counts the bytes reserved for messages that have come in part."""
        return 0 if self._holding is None else self._holding.partial

    def expect(self, size: int) -> None:
        """Reserves room for messages that are not all here, by the size that was declared."""
        holding = self._hold() if size > SMALL_HOLDING_BYTES else self._holding
        if holding is None:
            return
        if size > SMALL_HOLDING_BYTES:
            holding.expect(size)
        elif holding.partial or holding.wanted:
            holding.expect(0)

    def add_transaction(self, size: int) -> None:
        """Counts bytes that open transactions hold more than before; less, if below zero."""
        holding = self._hold()
        if holding is not None:
            holding.add_transaction(size)

    def hold_if_short(self, *, is_read: bool = False) -> None:
        """Holds a publisher while memory is short. One that is read all the same hears when there
        is room."""
        if self._memory.is_short and (holding := self._hold()) is not None:
            holding.hold(is_read=is_read)

    def write(
        self, transport: asyncio.WriteTransport, data: bytes, pieces: Sequence[Piece]
    ) -> None:
        """Writes `data`, which was made of these pieces. Where much waits already, or is written at
        once, it is counted, and large pieces go out as they are: a body that many get is not
        copied for each."""
        waiting = transport.get_write_buffer_size()
        if waiting < WATCHED_OUTPUT_BYTES and len(data) < LARGE_WRITE_BYTES:
            transport.write(data)
            return
        if len(data) // len(pieces) < LARGE_PIECE_BYTES:
            pieces = (data,)
        holding = self._hold()
        if holding is not None:
            holding.watch_output(waiting, pieces)
        transport.writelines(cast(list[bytes], pieces))

    def end(self) -> None:
        """Gives everything back: the connection is over."""
        if self._holding is not None:
            self._holding.end()
            self._holding = None
        self._holder = None  # no cycle with the connection is left
